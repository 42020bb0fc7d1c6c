"""One slot to its proof, where it has few rows.

Every plan that costs less than a known one is made of rows that waste less at given
prices than the distance between the known plan and the bound (reduced costs). Among
these, branches are on what stands on a pool, serves a model, and runs at a site: done
in seconds where branches on rows take hours.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel
from .._bound.linear import Prices, charged, slot_limits
from .._problem.problem import Problem, kept
from .._problem.rows import mixed
from .branches import branched
from .integer import Found
from .settled import Choice
from .work import Work

_TINY = 1e-12
_WITHIN = 1 - 1e-6
"""Of a relative gap, what is aimed at: what is rounded must be within it, too."""
_NEARER = 0.6
"""Part of the distance between plan and bound: a plan as near leaves so few rows that
it is quicker to begin anew with these."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """A slot at prices: `wasted` is what a plan of a model costs at least above its
    demand on the cheapest row."""

    problem: Problem
    number: int
    prices: Prices
    wasted: Float[np.ndarray, " model"]

    @property
    def bound(self) -> float:
        """What no plan of the slot costs less than: one that costs `distance` more has
        no model that wastes more than its `wasted` and `distance`."""
        return self.prices.bound + float(self.wasted.sum())

    @property
    def reduced(self) -> Float[np.ndarray, " row"]:
        """Cost of a replica, with prices, above that of its requests."""
        rows, prices = self.problem.rows, self.prices
        paid = prices.request[rows.model] * rows.rate
        return np.maximum(charged(self.problem, self.number, prices.limits) - paid, 0.0)


def best_below(slot: Slot, upper: float, *, work: Work, gap: float) -> Found:
    """The least plan of the slot, starts aside, among those below `upper`; no plan is
    below its `bound`. It ends where these are within the relative `gap`."""
    problem, idle = slot.problem, slot.problem.idle_cost(slot.number)
    counts, bound = None, slot.bound
    if upper <= bound:
        return Found(None, bound, True)
    while True:
        part = _WITHIN * gap
        if np.isfinite(upper):  # branches are without `idle`
            part *= upper / max(upper - idle, _TINY * abs(upper))
        choice, rows = _within(slot, upper - slot.bound)
        near = slot.bound + _NEARER * (upper - slot.bound)
        found = branched(choice, upper - idle, work=work, gap=part, until=near - idle)
        bound = max(bound, found.bound + idle)
        if found.values is not None:
            counts = np.zeros((1, len(problem.rows)))
            counts[0, rows] = found.values
            upper = float(choice.model.cost @ found.values) + idle
        if found.proven or upper >= near or not work.left:
            return Found(counts, bound, found.proven)


def _within(slot: Slot, distance: float) -> tuple[Choice, Int[np.ndarray, " column"]]:
    """All that a plan may be made of that lies up to `distance` above the bound, and
    which rows that is."""
    problem = slot.problem
    most = distance + slot.wasted
    asked = problem.demand[slot.number] > 0
    of = problem.rows.model
    near = np.flatnonzero(asked[of] & (slot.reduced <= most[of]))
    part = problem.take(near)
    matrix, low, high, _ = slot_limits(part, slot.number)
    columns = np.zeros(len(near))
    model = LinearModel(
        matrix, low, high, columns, columns + np.inf, part.cost(slot.number)
    )
    alone = part.at(slice(slot.number, slot.number + 1))
    return Choice(
        model, _numbers(part), int(part.group.max(initial=-1)) + 1, mixed(part),
        lambda counts: bool(kept(alone, counts[None]).all()),
    ), near  # fmt: skip


def _numbers(problem: Problem) -> sparse.csr_array:
    """What is a whole number of any plan [number, row]: replicas of each (model, pool,
    n), of each model, GPUs used of each pool, and of each site; all replicas."""
    rows, index = problem.rows, np.arange(len(problem.rows))

    def sums(of: np.ndarray, each: np.ndarray) -> sparse.coo_array:
        shape = (int(of.max(initial=-1)) + 1, len(index))
        return sparse.coo_array((each, (of, index)), shape)

    ones = np.ones(len(index))
    return sparse.csr_array(
        sparse.vstack(
            [
                sums(problem.group, ones), sums(rows.model, ones),
                sums(rows.pool, rows.gpus), sums(problem.row_site, rows.gpus),
                ones[None],
            ]
        )
    )  # fmt: skip
