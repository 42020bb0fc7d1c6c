"""The bound by prices: Kelley's cuts in the prices of GPUs and watts alone.

At given prices every model is on its own (`linear.proven`), so one evaluation is a
minimum over rows, whatever the fleet; the bound is concave in the prices, and each
evaluation is a plane above it. Points half way between the best prices and those that
the planes like best keep the steps short.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, highs
from .._problem.problem import Problem
from .linear import Prices, charged, limits, proven, room

_ROUNDS = 200
_CLOSE = 2e-5
"""Relative distance between the bound and what the planes allow at which to end."""
_KEPT = 150
"""Choices that the next slot begins with, the newest."""
_HIGHEST = 100.0
"""Prices up to this, over the largest cost of a row by what it takes of the limit."""


@dataclasses.dataclass
class Cuts:
    """Choices of a row for each model: each is a plane above the bound of any slot."""

    chosen: Int[np.ndarray, "cut model"]

    @staticmethod
    def none(problem: Problem) -> "Cuts":
        """No choices yet."""
        return Cuts(np.zeros((0, problem.demand.shape[1]), int))


def by_prices(problem: Problem, slot: int, cuts: Cuts) -> Prices | None:
    """The best bound of prices found; None where they have no end: the slot's linear
    program has no answer. `cuts` of other slots shorten the search, and grow."""
    free = room(problem, slot)
    held = np.flatnonzero(np.isfinite(free))
    if (free[held] < 0).any():
        return None
    highest, none = _highest(problem, slot), np.zeros(len(held))
    planes = _Planes(problem, slot)
    known = cuts.chosen
    level, slope = planes(known)
    at = np.zeros(len(free))
    best, best_at = proven(problem, slot, at), at
    for _ in range(_ROUNDS):
        chosen = _choice(problem, slot, at)[None]
        known = np.vstack([known, chosen])
        more_level, more_slope = planes(chosen)
        level, slope = np.r_[level, more_level], np.vstack([slope, more_slope])
        unit = max(1e-12, float(np.abs(level).max()))
        # largest z below every plane, over prices as shares of the highest
        rows = np.c_[np.ones(len(level)), -slope[:, held] * highest[held] / unit]
        matrix = sparse.csr_array(rows)
        low, high = np.r_[-np.inf, none], np.r_[np.inf, none + 1]
        goal = np.r_[-1.0, none]
        found = highs(LinearModel.at_most(goal, matrix, level / unit, low, high))
        if found.values is None or found.incumbent is None:
            break
        top = -found.incumbent * unit
        wish = np.zeros(len(free))
        wish[held] = found.values[1:] * highest[held]
        if top - best.bound <= _CLOSE * abs(best.bound):
            break
        at = 0.5 * (best_at + wish)
        here = proven(problem, slot, at)
        if here.bound > best.bound:
            best, best_at = here, at
    cuts.chosen = known[-_KEPT:]
    if len(held) and (best_at[held] > 0.4 * highest[held]).any():
        return None
    return best


def _choice(
    problem: Problem, slot: int, prices: Float[np.ndarray, " limit"]
) -> Int[np.ndarray, " model"]:
    """Cheapest row of every model at prices; -1 without any."""
    rows = problem.rows
    each = charged(problem, slot, prices) / rows.rate
    least = np.full(problem.demand.shape[1], np.inf)
    np.minimum.at(least, rows.model, each)
    chosen = np.full(len(least), -1)
    first = np.flatnonzero(each <= least[rows.model])
    chosen[rows.model[first]] = first
    return chosen


class _Planes:
    """Planes above the bound of a slot, of choices of a row for each model."""

    def __init__(self, problem: Problem, slot: int):
        self.cost, self.idle = problem.cost(slot), problem.idle_cost(slot)
        self.each = problem.demand[slot], problem.rows.rate
        free = room(problem, slot)
        self.free = np.where(np.isfinite(free), free, 0.0)
        self.use = sparse.csc_array(limits(problem))

    def __call__(
        self, chosen: Int[np.ndarray, "cut model"]
    ) -> tuple[Float[np.ndarray, " cut"], Float[np.ndarray, "cut limit"]]:
        """Value at prices of 0, and slope by prices."""
        wanted, rate = self.each
        replicas = np.where(chosen >= 0, wanted / rate[chosen], 0.0)
        value = (replicas * self.cost[chosen]).sum(axis=1) + self.idle
        index = np.repeat(np.arange(len(chosen)), chosen.shape[1])
        shape = (len(self.cost), len(chosen))
        taken = sparse.csc_array(
            sparse.coo_array(
                (replicas.ravel(), (chosen.ravel() % shape[0], index)), shape
            )
        )
        taken = sparse.csr_array(self.use @ taken)
        return value, taken.toarray().T - self.free


def _highest(problem: Problem, slot: int) -> Float[np.ndarray, " limit"]:
    """A price of each limit that no sensible plan pays."""
    cost = problem.cost(slot)
    dear = float((cost / problem.rows.gpus).max(initial=0.0)) or 1.0
    watt = float((problem.weight[slot] * problem.slot).max()) or 1.0
    pools, sites = len(problem.count), len(problem.pue)
    highest = np.r_[np.full(pools, dear), np.full(sites, watt)]
    return _HIGHEST * highest
