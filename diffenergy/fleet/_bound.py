"""The linear program of a slot: what it may use, and its value and prices by HiGHS."""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ..search import LinearModel, highs
from ._problem import Problem
from ._work import Work, program_work

_SCALE = 1e3
"""Limits are scaled to this: HiGHS lets each be missed by 1e-6 of 1, absolute."""


@dataclasses.dataclass(frozen=True)
class Prices:
    """What limits of a slot are worth, in the objective: of a GPU of a pool (gross: it
    brings no parked watts), of a W at the meter of a site, of a request/s of a model.

    `bound`: the value that no plan of the slot goes below, proven by the prices of GPUs
    and watts alone (`bound_at`).
    """

    gpu: Float[np.ndarray, " pool"]
    watt: Float[np.ndarray, " site"]
    request: Float[np.ndarray, " model"]
    bound: float

    @property
    def limits(self) -> Float[np.ndarray, " limit"]:
        """Prices of GPUs of pools, then of watts at sites."""
        return np.r_[self.gpu, self.watt]


def limits(problem: Problem) -> sparse.csr_array:
    """What a replica takes of pools (GPUs) and of sites (W at the meter beyond its
    boards parked) [pool then site, row]."""
    rows, pools, sites = problem.rows, len(problem.count), len(problem.pue)
    index = np.arange(len(rows))
    site = problem.row_site
    shape = (pools + sites, len(rows))
    of_pool = (rows.gpus, (rows.pool, index))
    of_site = (problem.pue[site] * problem.extra, (pools + site, index))
    both = sparse.coo_array(of_pool, shape) + sparse.coo_array(of_site, shape)
    return sparse.csr_array(both)


def room(problem: Problem, slot: int) -> Float[np.ndarray, " limit"]:
    """GPUs of pools, and W of sites beyond every GPU parked; infinite without limit."""
    return np.r_[problem.count, problem.budget[slot] - problem.base]


def cover(problem: Problem) -> sparse.csr_array:
    """Rates [model, row]."""
    rows = problem.rows
    shape = (problem.demand.shape[1], len(rows))
    entries = (rows.rate, (rows.model, np.arange(len(rows))))
    return sparse.csr_array(sparse.coo_array(entries, shape))


class Limits(NamedTuple):
    """What rows of a slot are within: `low` <= `matrix` @ replicas <= `high`, each over
    `per`, its size / 1000."""

    matrix: sparse.csr_array
    low: Float[np.ndarray, " limit"]
    high: Float[np.ndarray, " limit"]
    per: Float[np.ndarray, " limit"]


def slot_limits(problem: Problem, slot: int) -> Limits:
    """Cover of the models asked for, then GPUs and watts of a slot."""
    demand, free = problem.demand[slot], room(problem, slot)
    active, limited = demand > 0, np.isfinite(free)
    # parked boards may use up a budget: a row without room is scaled, too
    per = np.r_[demand[active], np.maximum(np.abs(free[limited]), 1e-9)] / _SCALE
    stacked = sparse.vstack([cover(problem)[active], limits(problem)[limited]])
    matrix = sparse.csr_array(sparse.diags_array(1 / per) @ stacked)
    least, none = (
        np.full(int(active.sum()), _SCALE),
        np.full(int(limited.sum()), np.inf),
    )
    high = np.r_[least + np.inf, free[limited] / per[len(least) :]]
    return Limits(matrix, np.r_[least, -none], high, per)


def solve_relaxation(problem: Problem, slot: int) -> Prices | None:
    """Value and prices of the linear program of a slot; None where it has no answer.

    Shares of a replica are allowed and starts are free, so no plan costs less.
    """
    free = room(problem, slot)
    # Parked boards alone draw more than a budget: nothing fits.
    if (free < -1e-9 * np.abs(problem.base).sum()).any():
        return None
    matrix, low, high, per = slot_limits(problem, slot)
    cost = problem.cost(slot)
    unit = float(np.abs(cost).max(initial=0.0)) or 1.0
    none = np.zeros(len(cost))
    solution = highs(LinearModel(matrix, low, high, none, none + np.inf, cost / unit))
    if solution.status == "infeasible":
        return None
    if solution.duals is None:
        raise RuntimeError(f"the linear program of slot {slot}: {solution.message}")
    limited = np.isfinite(free)
    # Below 0 is noise of the solver; `bound_at` proves a bound at any prices from 0 on.
    marginal = np.maximum(0.0, -solution.duals) * unit / per
    prices = np.zeros(len(free))
    prices[limited] = marginal[len(per) - limited.sum() :]
    return bound_at(problem, slot, prices)


def bound_at(
    problem: Problem, slot: int, prices: Float[np.ndarray, " limit"]
) -> Prices:
    """The bound that prices (at least 0) of GPUs and watts prove, whatever they are:

        sum_m demand_m min_rows (cost + sum_limits price use) / r
            - sum_limits price room + cost of every GPU parked

    With `prices` charged for what replicas take, and paid for what there is, no model
    costs less than its cheapest row for each request; all that keeps the limits gains
    by the payment. `request` is that least cost.
    """
    pools, rows = len(problem.count), problem.rows
    each = charged(problem, slot, prices) / rows.rate
    least = np.full(problem.demand.shape[1], np.inf)
    np.minimum.at(least, rows.model, each)
    demand, free = problem.demand[slot], room(problem, slot)
    active, priced = demand > 0, prices > 0
    bound = float(demand[active] @ least[active]) - float(prices[priced] @ free[priced])
    request = np.where(np.isfinite(least), least, 0.0)
    value = bound + problem.idle_cost(slot)
    return Prices(prices[:pools], prices[pools:], request, value)


def charged(
    problem: Problem, slot: int, prices: Float[np.ndarray, " limit"]
) -> Float[np.ndarray, " row"]:
    """Cost of a replica with what it pays for the limits."""
    rows, site, pools = problem.rows, problem.row_site, len(problem.count)
    drawn = (prices[pools:] * problem.pue)[site] * problem.extra
    return problem.cost(slot) + prices[:pools][rows.pool] * rows.gpus + drawn


def near_rows(
    problem: Problem,
    slot: int,
    prices: Prices,
    wasted: Float[np.ndarray, " model"],
    distance: float,
) -> Bool[np.ndarray, " row"]:
    """Rows that a plan can have in a slot which costs up to `distance` more than the
    bound by `prices` and by what each model wastes at least (`wasted`).

    A replica wastes its cost with prices less that of its requests on the cheapest row
    (reduced cost). What a plan costs above the bound is at least what one model wastes
    beyond its `wasted`, as no other wastes less than its own. Models without requests
    count as well: replicas that wait may be cheaper than to start them again.
    """
    model = problem.rows.model
    paid = prices.request[model] * problem.rows.rate
    reduced = charged(problem, slot, prices.limits) - paid
    return reduced <= distance + wasted[model]


# --- The bound by prices: Kelley's cuts in the prices of GPUs and watts alone.
#
# At given prices every model is on its own (`bound_at`), so one evaluation is a
# minimum over rows, whatever the fleet; the bound is concave in the prices, and each
# evaluation is a plane above it. Points half way between the best prices and those that
# the planes like best keep the steps short.

_ROUNDS = 200
_CLOSE = 2e-5
"""Relative distance between the bound and what the planes allow at which to end."""
_PER_ROW = 5e-8
"""Work (s) of a row in one evaluation."""
_MOST_CUTS = 150
"""Choices that the next slot begins with, the newest."""
_HIGHEST = 100.0
"""Prices up to this, over the largest cost of a row by what it takes of the limit."""


Cuts = Int[np.ndarray, "_ model"]
"""Choices of a row for each model: each is a plane above the bound of any slot."""


def no_cuts(problem: Problem) -> Cuts:
    """No choices yet."""
    return np.zeros((0, problem.demand.shape[1]), int)


def bound_by_cuts(
    problem: Problem, slot: int, cuts: Cuts, work: Work
) -> tuple[Prices | None, Cuts]:
    """The best bound of prices found; None where they have no end: the slot's linear
    program has no answer. `cuts` of other slots shorten the search; they come back with
    its own."""
    free = room(problem, slot)
    limited = np.flatnonzero(np.isfinite(free))
    if (free[limited] < 0).any():
        return None, cuts
    highest, none = _highest(problem, slot)[limited], np.zeros(len(limited))
    use = limits(problem)
    level, slope = _planes(problem, slot, cuts, use)
    at = np.zeros(len(free))
    best, best_at = bound_at(problem, slot, at), at
    for _ in range(_ROUNDS):
        work.add(_PER_ROW * len(problem.rows) + program_work(level.size * len(limited)))
        chosen = _choice(problem, slot, at)[None]
        cuts = np.vstack([cuts, chosen])
        more_level, more_slope = _planes(problem, slot, chosen, use)
        level, slope = np.r_[level, more_level], np.vstack([slope, more_slope])
        unit = max(1e-12, float(np.abs(level).max()))
        # largest z below every plane, over prices as shares of the highest
        rows = np.c_[np.ones(len(level)), -slope[:, limited] * highest / unit]
        low, high = np.r_[-np.inf, none], np.r_[np.inf, none + 1]
        goal = np.r_[-1.0, none]
        solution = highs(LinearModel.at_most(goal, rows, level / unit, low, high))
        if solution.values is None or solution.incumbent is None:
            break
        top = -solution.incumbent * unit
        if top - best.bound <= _CLOSE * abs(best.bound):
            break
        wish = np.zeros(len(free))
        wish[limited] = solution.values[1:] * highest
        at = 0.5 * (best_at + wish)
        here = bound_at(problem, slot, at)
        if here.bound > best.bound:
            best, best_at = here, at
    # Prices that rise without end: the slot may have no plan, which the linear program
    # decides.
    endless = (best_at[limited] > 0.4 * highest).any()
    return None if endless else best, cuts[-_MOST_CUTS:]


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
    demand = problem.demand[slot]
    replicas = np.where(chosen >= 0, demand / rows.rate[chosen], 0.0)
    value = (replicas * problem.cost(slot)[chosen]).sum(axis=1)
    cut = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)
    # -1 (no row) has to index something; its count is 0
    entries = (replicas.ravel(), (chosen.ravel() % len(rows), cut.ravel()))
    counts = sparse.coo_array(entries, (len(rows), len(chosen)))
    used = sparse.csr_array(use @ counts).toarray().T
    slope = used - np.where(np.isfinite(free), free, 0.0)
    return value + problem.idle_cost(slot), slope


def _highest(problem: Problem, slot: int) -> Float[np.ndarray, " limit"]:
    """A price of each limit that no sensible plan pays."""
    cost = problem.cost(slot)
    dear = float((cost / problem.rows.gpus).max(initial=0.0)) or 1.0
    watt = float((problem.weight[slot] * problem.slot).max()) or 1.0
    pools, sites = len(problem.count), len(problem.pue)
    highest = np.r_[np.full(pools, dear), np.full(sites, watt)]
    return _HIGHEST * highest
