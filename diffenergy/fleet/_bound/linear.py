"""The linear program of a slot: what it may use, and its value and prices by HiGHS."""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ...search import LinearModel, highs
from .._problem.problem import Problem

_SCALE = 1e3
"""Limits are scaled to this: HiGHS lets each be missed by 1e-6 of 1, absolute."""


@dataclasses.dataclass(frozen=True)
class Prices:
    """What limits of a slot are worth, in the objective: of a GPU of a pool (gross: it
    brings no parked watts), of a W at the meter of a site, of a request/s of a model.

    `bound`: the value that no plan of the slot goes below, proven by the prices of GPUs
    and watts alone (`prices.proven`).
    """

    gpu: Float[np.ndarray, " pool"]
    watt: Float[np.ndarray, " site"]
    request: Float[np.ndarray, " model"]
    bound: float


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


def relaxed(problem: Problem, slot: int) -> Prices | None:
    """Value and prices of the linear program of a slot; None where it has no answer.

    Shares of a replica are allowed and starts are free, so no plan costs less.
    """
    use, rates = limits(problem), cover(problem)
    free, wanted = room(problem, slot), problem.demand[slot]
    held = np.isfinite(free)
    asked = wanted > 0
    if (free < -1e-9 * np.abs(problem.base).sum()).any():
        return None
    cost = problem.cost(slot)
    unit = float(np.abs(cost).max(initial=0.0)) or 1.0
    per = np.r_[wanted[asked], np.maximum(free[held], 1e-9)] / _SCALE
    matrix = sparse.vstack([-rates[asked], use[held]])
    upper = np.r_[-wanted[asked], free[held]]
    scaled = sparse.diags_array(1 / per) @ matrix
    found = highs(LinearModel.at_most(cost / unit, scaled, upper / per))
    if found.status == "infeasible":
        return None
    if found.duals is None:
        raise RuntimeError(f"the linear program of slot {slot}: {found.message}")
    marginal = np.maximum(0.0, -found.duals) * unit / per
    prices = np.zeros(len(free))
    prices[held] = marginal[asked.sum() :]
    return proven(problem, slot, prices)


def proven(problem: Problem, slot: int, prices: Float[np.ndarray, " limit"]) -> Prices:
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
    wanted, free = problem.demand[slot], room(problem, slot)
    asked, held = wanted > 0, prices > 0
    bound = float(wanted[asked] @ least[asked]) - float(prices[held] @ free[held])
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
