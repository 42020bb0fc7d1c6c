"""Whole plans of one model that are cheap at given prices, for every model at once.

A plan is a few replicas on each of a few rows: a bulk on cheap rows, one short of what
divides the demand or up to two, more of another row, and one row that carries the rest
for the least. Cost with prices, not cost alone: what a limit is worth to others counts.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import sparse

from .._bound.linear import charged, limits
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

    def take(self, chosen: np.ndarray) -> "Candidates":
        """The chosen ones: indices, or a mask."""
        return Candidates(self.model[chosen], self.row[chosen], self.count[chosen])

    def made(self, rows: int) -> sparse.csr_array:
        """Replicas [row, plan]."""
        index = np.repeat(np.arange(len(self)), self.row.shape[1])
        entries = (self.count.ravel(), (self.row.ravel(), index))
        return sparse.csr_array(sparse.coo_array(entries, (rows, len(self))))


def joined(parts: Sequence[Candidates]) -> Candidates:
    """All plans, one part after the other."""
    width = max(x.row.shape[1] for x in parts)

    def wide(name: str) -> np.ndarray:
        each = (getattr(part, name) for part in parts)
        return np.vstack([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in each])

    models = np.concatenate([part.model for part in parts])
    return Candidates(models, wide("row"), wide("count"))


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
    return found.take(_best(problem, found, (count * priced[row]).sum(axis=1), most))


def _bulk(
    problem: Problem, priced: Float[np.ndarray, " row"], width: int
) -> Int[np.ndarray, "model width"]:
    """Rows with the least cost a request: the best of each pool, cheap pools first,
    then the next best of any."""
    rows = problem.rows
    each = priced / rows.rate
    lead = pd.Series(each).groupby([rows.model, rows.pool]).idxmin().to_numpy()
    # half of the width for leaders of pools, half for the cheapest of any
    found = np.full((problem.demand.shape[1], width), -1)
    half = (width + 1) // 2
    _fill(found[:, :half], rows.model, each, np.sort(lead))
    taken = np.zeros(len(rows), bool)
    taken[found[found >= 0]] = True
    _fill(found[:, half:], rows.model, each, np.flatnonzero(~taken))
    return found


def _fill(found, model, each, among):
    order = among[np.lexsort((each[among], model[among]))]
    place = pd.Series(order).groupby(model[order]).cumcount().to_numpy()
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
    least = pd.Series(rank[::-1]).groupby(group[::-1]).cummin().to_numpy()[::-1]
    return np.argsort(rank)[least]


def _apart(of, row, count):
    """One of plans that are the same."""
    key = np.c_[of, np.where(count > 0, row, -1), count]
    return np.sort(np.unique(key, axis=0, return_index=True)[1])


def _best(problem, found, cost, most):
    """The cheapest plans of each model, of those with the same GPUs the cheapest."""
    pools = limits(problem)[: len(problem.count)]
    used = (pools @ found.made(len(problem.rows))).toarray().T
    order = np.lexsort((cost, found.model))
    key = np.c_[found.model, used][order]
    first = np.sort(np.unique(key, axis=0, return_index=True)[1])
    order = order[first]
    place = pd.Series(order).groupby(found.model[order]).cumcount().to_numpy()
    return order[place < most]
