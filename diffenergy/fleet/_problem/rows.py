"""Which rows can be of use: the Pareto rows of whole replicas, the hull of the LP."""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from .problem import Problem


def pareto(
    group: Int[np.ndarray, " row"],
    rate: Float[np.ndarray, " row"],
    power: Float[np.ndarray, " row"],
) -> Bool[np.ndarray, " row"]:
    """Rows that none of their group carries as much as for no more power.

    What is left out is never needed, for whole replicas too. Of equal rows the first
    stays.
    """
    order = np.lexsort((power, -rate, group))  # stable: the first of equal ones
    found = np.zeros(len(rate), bool)
    found[order] = _falls(group[order], power[order])
    return found


def hull(problem: Problem) -> Bool[np.ndarray, " row"]:
    """Rows on the lower hull of (n / r, extra / r) of their model and pool: all that a
    linear program uses whose prices of GPUs and watts are at least 0.

    `extra`, not power: a used GPU saves its parked watts, so on the plane of p / r the
    price of a GPU could be below 0, and the bound above the true one.
    """
    rows = problem.rows
    group = rows.model * len(problem.count) + rows.pool
    return _corners(group, rows.gpus / rows.rate, problem.extra / rows.rate)


def mixed(problem: Problem) -> Bool[np.ndarray, " row"]:
    """Rows on the lower hull of power against rate of their group: all that a given
    number of its replicas needs, where rows may be mixed in shares."""
    return _corners(problem.group, -problem.rows.rate, problem.extra)


def _corners(
    group: Int[np.ndarray, " row"],
    across: Float[np.ndarray, " row"],
    up: Float[np.ndarray, " row"],
) -> Bool[np.ndarray, " row"]:
    """Points of the lower left hull of each group."""
    order = np.lexsort((np.arange(len(group)), up, across, group))
    order = order[_falls(group[order], up[order])]
    while len(order) > 2:
        inner = _above_chord(group[order], across[order], up[order])
        if not inner.any():
            break
        order = order[~inner]
    found = np.zeros(len(group), bool)
    found[order] = True
    return found


def _falls(
    group: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"]
) -> Bool[np.ndarray, " row"]:
    """Whether a value is below all before it of its group."""
    least = pd.Series(value).groupby(group).cummin()
    return value < least.groupby(group).shift(fill_value=np.inf).to_numpy()


def _above_chord(
    group: Int[np.ndarray, " row"],
    x: Float[np.ndarray, " row"],
    y: Float[np.ndarray, " row"],
) -> Bool[np.ndarray, " row"]:
    """Points on or above the line between their neighbours: no corners of the hull, so
    that all of them may go at once."""
    inner = np.zeros(len(x), bool)
    within = (group[:-2] == group[1:-1]) & (group[1:-1] == group[2:])
    left, right = x[1:-1] - x[:-2], x[2:] - x[1:-1]
    turn = (y[1:-1] - y[:-2]) * right - (y[2:] - y[1:-1]) * left
    inner[1:-1] = within & (turn >= 0)
    return inner
