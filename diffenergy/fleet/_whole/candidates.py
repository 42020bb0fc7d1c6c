"""Whole plans of one model that are cheap at given prices, for every model at once.

A plan is a few replicas on each of a few rows: a bulk on cheap rows, one short of what
divides the demand or up to two, more of another row, and one row that carries the rest
for the least. Cost with prices, not cost alone: what a limit is worth to others counts.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from .._bound.linear import charged
from .._problem.problem import Problem

_LESS = 3
"""Numbers of replicas of a second row tried: what is left, and up to two fewer."""
_TINY = 1e-12
"""Relative, of a demand that whole replicas meet exactly."""


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Whole plans: `model`, and replicas `count` on `row` (0 of row 0: none)."""

    model: Int[np.ndarray, " plan"]
    row: Int[np.ndarray, "plan part"]
    count: Float[np.ndarray, "plan part"]

    def __len__(self) -> int:
        return len(self.model)

    def total(self, each: Float[np.ndarray, " row"]) -> Float[np.ndarray, " plan"]:
        """Sum of what a replica of a row has."""
        return (self.count * each[self.row]).sum(axis=1)

    def take(self, chosen: np.ndarray) -> "Candidates":
        """The chosen ones: indices, or a mask."""
        return Candidates(self.model[chosen], self.row[chosen], self.count[chosen])

    def counts(self, rows: int) -> Float[np.ndarray, " row"]:
        """Replicas of every row, of all plans together."""
        return np.bincount(self.row.ravel(), self.count.ravel(), rows)


def candidates(
    problem: Problem,
    slot: int,
    prices: Float[np.ndarray, " limit"],
    *,
    width: int,
    most: int,
    splits: int = 3,
    added: Float[np.ndarray, " row"] | float = 0.0,
) -> Candidates:
    """Up to `most` plans of every model that is asked for, the cheapest at `prices`;
    `width`: rows tried as bulk; `splits`: numbers of replicas of the first of them that
    are tried; `added`: what a replica costs besides."""
    rows, wanted = problem.rows, problem.demand[slot]
    priced = charged(problem, slot, prices) + added
    bulk = _bulk(problem, priced, width)  # [model, width], -1 where there is none
    asked = np.flatnonzero((wanted > 0) & (bulk >= 0).any(axis=1))
    bulk = bulk[asked]
    rest = wanted[asked]
    # plans as [plan, part]; `of`: model as an index of `asked`
    of = np.arange(len(asked))
    row, count = np.zeros((len(of), 0), int), np.zeros((len(of), 0))
    for less in (splits, _LESS):
        choice = bulk[of]  # [plan, width]
        whole = np.floor(rest[:, None] / rows.rate[choice] * (1 + _TINY))
        tries = np.maximum(whole[:, :, None] - np.arange(less), 0.0)
        plan, which, fewer = np.nonzero(
            np.broadcast_to(choice[..., None] >= 0, tries.shape)
        )
        taken, number = choice[plan, which], tries[plan, which, fewer]
        row, count = np.c_[row[plan], taken], np.c_[count[plan], number]
        of, rest = of[plan], rest[plan] - number * rows.rate[taken]
        keep = _apart(of, row, count)
        of, rest, row, count = of[keep], rest[keep], row[keep], count[keep]
    last = _cheapest(problem, priced, asked[of], rest)
    open_ = rest > 1e-9 * wanted[asked][of]
    fine = ~open_ | (last >= 0)
    row = np.c_[row, np.where(last >= 0, last, 0)][fine]
    count = np.c_[count, (open_ & (last >= 0)).astype(float)][fine]
    found = Candidates(asked[of[fine]], row, count)
    return found.take(_best(problem, found, found.total(priced), most))


def _bulk(
    problem: Problem, priced: Float[np.ndarray, " row"], width: int
) -> Int[np.ndarray, "model width"]:
    """Rows with the least cost a request: the best of each pool, cheap pools first,
    then the next best of any."""
    rows = problem.rows
    each = priced / rows.rate
    order = np.lexsort((each, rows.pool, rows.model))
    pool_first = np.r_[
        True, (np.diff(rows.model[order]) != 0) | (np.diff(rows.pool[order]) != 0)
    ]
    lead = np.zeros(len(rows), bool)
    lead[order[pool_first]] = True
    # half of the width for leaders of pools, half for the cheapest of any
    found = np.full((problem.demand.shape[1], width), -1)
    half = (width + 1) // 2
    _fill(found[:, :half], rows.model, each, np.flatnonzero(lead))
    taken = np.zeros(len(rows), bool)
    taken[found[found >= 0]] = True
    _fill(found[:, half:], rows.model, each, np.flatnonzero(~taken))
    return found


def _fill(found, model, each, among):
    order = among[np.lexsort((each[among], model[among]))]
    start = np.searchsorted(model[order], np.arange(len(found)))
    place = np.arange(len(order)) - start[model[order]]
    near = place < found.shape[1]
    found[model[order[near]], place[near]] = order[near]


def _cheapest(problem, priced, model, rest):
    """Row of a model that carries `rest` at the least priced cost; -1 without."""
    rows = problem.rows
    top = 2.0 * rows.rate.max(initial=1.0)
    order = np.lexsort((rows.rate, rows.model))
    key = rows.model[order] * top + rows.rate[order]
    # cheapest from a place to the end of its model: running minimum from behind
    best = _from_behind(rows.model[order], priced[order])
    place = np.searchsorted(key, model * top + rest * (1 - _TINY))
    inside = np.minimum(place, len(order) - 1)
    good = (place < len(order)) & (rows.model[order[inside]] == model)
    return np.where(good, order[best[inside]], -1)


def _from_behind(group, value):
    """Index of the least value from each place to the end of its group."""
    rank = np.argsort(np.argsort(value, kind="stable"), kind="stable")
    blocks = np.cumsum(np.r_[0, np.diff(group) != 0])
    low = rank[::-1] + (blocks[::-1]) * (len(value) + 2)
    least = np.minimum.accumulate(low)[::-1] - blocks * (len(value) + 2)
    at = np.argsort(rank)
    return at[least]


def _apart(of, row, count):
    """One of plans that are the same."""
    key = np.c_[of, np.where(count > 0, row, -1), count]
    return np.sort(np.unique(key, axis=0, return_index=True)[1])


def _best(problem, found, cost, most):
    """The cheapest plans of each model, of those with the same GPUs the cheapest."""
    pools = len(problem.count)
    used = np.zeros((len(found), pools))
    for part in range(found.row.shape[1]):
        row = found.row[:, part]
        np.add.at(
            used,
            (np.arange(len(found)), problem.rows.pool[row]),
            found.count[:, part] * problem.rows.gpus[row],
        )
    order = np.lexsort((cost, found.model))
    key = np.c_[found.model, used][order]
    first = np.sort(np.unique(key, axis=0, return_index=True)[1])
    order = order[first]
    start = np.searchsorted(found.model[order], found.model[order])
    return order[np.arange(len(order)) - start < most]
