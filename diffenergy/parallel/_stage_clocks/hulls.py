"""Clocks of an instruction that can be worth choosing."""

import numpy as np
from jaxtyping import Float, Int

from ...search import lower_hull, pareto_front

ROUNDING = 1e-9
"""Share of a time that is rounding."""


def pareto(
    time: Float[np.ndarray, " c"], cost: Float[np.ndarray, " c"]
) -> Int[np.ndarray, " k"]:
    """Clocks by rising time, each cheaper than all faster ones; of equals the lower
    clock (the later row).

    >>> pareto(np.array([1.0, 1.0, 2.0, 3.0]), np.array([5.0, 5.0, 2.0, 4.0]))
    array([1, 2])
    """
    last = len(time) - 1
    rows: list[int] = []
    first = -np.inf  # time of the fastest among the last that count as equal
    for i in (last - pareto_front(time[::-1], cost[::-1])).tolist():
        equal = time[i] <= first * (1 + ROUNDING)
        rows[-1 if equal else len(rows) :] = [i]
        first = first if equal else time[i]
    return np.array(rows)


def hull(
    time: Float[np.ndarray, " c"], cost: Float[np.ndarray, " c"]
) -> Int[np.ndarray, " k"]:
    """Of those the ones on the lower convex hull: between two of them no chord of
    others lies lower.

    >>> hull(np.array([1.0, 2.0, 3.0]), np.array([4.0, 3.5, 1.0]))
    array([0, 2])
    """
    rows = pareto(time, cost)
    return rows[lower_hull(time[rows], cost[rows])]
