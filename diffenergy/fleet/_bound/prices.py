"""The bound by prices: Kelley's cuts in the prices of GPUs and watts alone.

At given prices every model is on its own (`linear.proven`), so one evaluation is a
minimum over rows, whatever the fleet; the bound is concave in the prices, and each
evaluation is a plane above it. Points half way between the best prices and those that
the planes like best keep the steps short.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, highs
from .._problem.problem import Problem
from .._whole.work import Work, program_work
from .linear import Prices, charged, limits, proven, room

_ROUNDS = 200
_CLOSE = 2e-5
"""Relative distance between the bound and what the planes allow at which to end."""
_PER_ROW = 5e-8
"""Work (s) of a row in one evaluation."""
_KEPT = 150
"""Choices that the next slot begins with, the newest."""
_HIGHEST = 100.0
"""Prices up to this, over the largest cost of a row by what it takes of the limit."""


Cuts = Int[np.ndarray, "cut model"]
"""Choices of a row for each model: each is a plane above the bound of any slot."""


def no_cuts(problem: Problem) -> Cuts:
    """No choices yet."""
    return np.zeros((0, problem.demand.shape[1]), int)


def by_prices(
    problem: Problem, slot: int, cuts: Cuts, work: Work
) -> tuple[Prices | None, Cuts]:
    """The best bound of prices found; None where they have no end: the slot's linear
    program has no answer. `cuts` of other slots shorten the search; they come back with
    its own."""
    free = room(problem, slot)
    held = np.flatnonzero(np.isfinite(free))
    if (free[held] < 0).any():
        return None, cuts
    highest, none = _highest(problem, slot)[held], np.zeros(len(held))
    use = limits(problem)
    level, slope = _planes(problem, slot, cuts, use)
    at = np.zeros(len(free))
    best, best_at = proven(problem, slot, at), at
    for _ in range(_ROUNDS):
        work.add(_PER_ROW * len(problem.rows) + program_work(level.size * len(held)))
        chosen = _choice(problem, slot, at)[None]
        cuts = np.vstack([cuts, chosen])
        more_level, more_slope = _planes(problem, slot, chosen, use)
        level, slope = np.r_[level, more_level], np.vstack([slope, more_slope])
        unit = max(1e-12, float(np.abs(level).max()))
        # largest z below every plane, over prices as shares of the highest
        rows = np.c_[np.ones(len(level)), -slope[:, held] * highest / unit]
        low, high = np.r_[-np.inf, none], np.r_[np.inf, none + 1]
        goal = np.r_[-1.0, none]
        found = highs(LinearModel.at_most(goal, rows, level / unit, low, high))
        if found.values is None or found.incumbent is None:
            break
        top = -found.incumbent * unit
        if top - best.bound <= _CLOSE * abs(best.bound):
            break
        wish = np.zeros(len(free))
        wish[held] = found.values[1:] * highest
        at = 0.5 * (best_at + wish)
        here = proven(problem, slot, at)
        if here.bound > best.bound:
            best, best_at = here, at
    endless = (best_at[held] > 0.4 * highest).any()
    return None if endless else best, cuts[-_KEPT:]


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


def _planes(
    problem: Problem, slot: int, chosen: Cuts, use: sparse.csr_array
) -> tuple[Float[np.ndarray, " cut"], Float[np.ndarray, "cut limit"]]:
    """Planes above the bound of a slot, of choices of a row for each model: value at
    prices of 0, and slope by prices. `use`: the problem's `limits`."""
    free, rows = room(problem, slot), problem.rows
    wanted = problem.demand[slot]
    replicas = np.where(chosen >= 0, wanted / rows.rate[chosen], 0.0)
    value = (replicas * problem.cost(slot)[chosen]).sum(axis=1)
    cut = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)
    entries = (replicas.ravel(), (chosen.ravel() % len(rows), cut.ravel()))
    counts = sparse.coo_array(entries, (len(rows), len(chosen)))
    taken = sparse.csr_array(use @ counts).toarray().T
    slope = taken - np.where(np.isfinite(free), free, 0.0)
    return value + problem.idle_cost(slot), slope


def _highest(problem: Problem, slot: int) -> Float[np.ndarray, " limit"]:
    """A price of each limit that no sensible plan pays."""
    cost = problem.cost(slot)
    dear = float((cost / problem.rows.gpus).max(initial=0.0)) or 1.0
    watt = float((problem.weight[slot] * problem.slot).max()) or 1.0
    pools, sites = len(problem.count), len(problem.pue)
    highest = np.r_[np.full(pools, dear), np.full(sites, watt)]
    return _HIGHEST * highest
