"""The linear program of a slot: what it may use, and its value and prices by HiGHS."""

import dataclasses
from typing import NamedTuple

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

    @property
    def limits(self) -> Float[np.ndarray, " limit"]:
        """Of pools, then of sites."""
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
    wanted, free = problem.demand[slot], room(problem, slot)
    asked, held = wanted > 0, np.isfinite(free)
    per = np.r_[wanted[asked], np.maximum(np.abs(free[held]), 1e-9)] / _SCALE
    stacked = sparse.vstack([cover(problem)[asked], limits(problem)[held]])
    matrix = sparse.csr_array(sparse.diags_array(1 / per) @ stacked)
    least, none = np.full(int(asked.sum()), _SCALE), np.full(int(held.sum()), np.inf)
    high = np.r_[least + np.inf, free[held] / per[len(least) :]]
    return Limits(matrix, np.r_[least, -none], high, per)


def relaxed(problem: Problem, slot: int) -> Prices | None:
    """Value and prices of the linear program of a slot; None where it has no answer.

    Shares of a replica are allowed and starts are free, so no plan costs less.
    """
    free = room(problem, slot)
    if (free < -1e-9 * np.abs(problem.base).sum()).any():
        return None
    matrix, low, high, per = slot_limits(problem, slot)
    cost = problem.cost(slot)
    unit = float(np.abs(cost).max(initial=0.0)) or 1.0
    none = np.zeros(len(cost))
    found = highs(LinearModel(matrix, low, high, none, none + np.inf, cost / unit))
    if found.status == "infeasible":
        return None
    if found.duals is None:
        raise RuntimeError(f"the linear program of slot {slot}: {found.message}")
    held = np.isfinite(free)
    marginal = np.maximum(0.0, -found.duals) * unit / per
    prices = np.zeros(len(free))
    prices[held] = marginal[len(per) - held.sum() :]
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
