"""Clocks of an instruction that can be worth choosing."""

import numpy as np
from jaxtyping import Float, Int

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
    order = np.lexsort((-np.arange(len(time)), time))
    kept: list[int] = []
    first = -np.inf  # time of the fastest among the last that count as equal
    for i in order.tolist():
        if not kept or cost[i] < cost[kept[-1]]:
            equal = time[i] <= first * (1 + ROUNDING)
            kept[-1 if equal else len(kept) :] = [i]
            first = first if equal else time[i]
    return np.array(kept)


def hull(
    time: Float[np.ndarray, " c"], cost: Float[np.ndarray, " c"]
) -> Int[np.ndarray, " k"]:
    """Of those the ones on the lower convex hull: between two of them no chord of
    others lies lower.

    >>> hull(np.array([1.0, 2.0, 3.0]), np.array([4.0, 3.5, 1.0]))
    array([0, 2])
    """
    kept: list[int] = []
    for i in pareto(time, cost).tolist():
        while len(kept) > 1 and _above(time, cost, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(i)
    return np.array(kept)


def _above(
    time: Float[np.ndarray, " c"], cost: Float[np.ndarray, " c"], a: int, b: int, i: int
) -> bool:
    """Whether b is not below the chord from a to i."""
    rise = (cost[b] - cost[a]) * (time[i] - time[a])
    return bool(rise >= (cost[i] - cost[a]) * (time[b] - time[a]))
