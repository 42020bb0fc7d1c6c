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

from ..search import LinearModel, highs
from ._bound import charged, limits, room
from ._integer import minimize
from ._problem import Problem, keeps_limits
from ._work import Work, program_work

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

    def replicas(self, rows: int) -> sparse.csr_array:
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
    rows, demand = problem.rows, problem.demand[slot]
    priced = charged(problem, slot, prices) + added
    bulk = _bulk(problem, priced, width)  # [model, width], -1 where there is none
    active = np.flatnonzero((demand > 0) & (bulk >= 0).any(axis=1))
    bulk = bulk[active]
    rest = demand[active]
    # plans as [plan, part]; `of`: model as an index of `asked`
    of = np.arange(len(active))
    row, count = np.zeros((len(of), 0), int), np.zeros((len(of), 0))
    for less in (splits, _LESS):
        choice = bulk[of]  # [plan, width]
        # more by a little, so that rounding does not cost a replica where it divides
        # evenly
        whole = np.floor(rest[:, None] / rows.rate[choice] * (1 + _TINY))
        tries = np.maximum(whole[:, :, None] - np.arange(less), 0.0)
        plan, which, fewer = np.nonzero(
            np.broadcast_to(choice[..., None] >= 0, tries.shape)
        )
        picked, number = choice[plan, which], tries[plan, which, fewer]
        row, count = np.c_[row[plan], picked], np.c_[count[plan], number]
        of, rest = of[plan], rest[plan] - number * rows.rate[picked]
        keep = _apart(of, row, count)
        of, rest, row, count = of[keep], rest[keep], row[keep], count[keep]
    last = _cheapest(problem, priced, active[of], rest)
    open_ = rest > 1e-9 * demand[active][of]
    fine = ~open_ | (last >= 0)
    row = np.c_[row, np.where(last >= 0, last, 0)][fine]
    count = np.c_[count, (open_ & (last >= 0)).astype(float)][fine]
    fine_plans = Candidates(active[of[fine]], row, count)
    return fine_plans.take(
        _best(problem, fine_plans, (count * priced[row]).sum(axis=1), most)
    )


def _bulk(
    problem: Problem, priced: Float[np.ndarray, " row"], width: int
) -> Int[np.ndarray, "model width"]:
    """Rows with the least cost a request: the best of each pool, cheap pools first,
    then the next best of any."""
    rows = problem.rows
    each = priced / rows.rate
    lead = pd.Series(each).groupby([rows.model, rows.pool]).idxmin().to_numpy()
    # half of the width for leaders of pools, half for the cheapest of any
    chosen = np.full((problem.demand.shape[1], width), -1)
    half = (width + 1) // 2
    _fill(chosen[:, :half], rows.model, each, np.sort(lead))
    used = np.zeros(len(rows), bool)
    used[chosen[chosen >= 0]] = True
    _fill(chosen[:, half:], rows.model, each, np.flatnonzero(~used))
    return chosen


def _fill(chosen, model, each, among):
    order = among[np.lexsort((each[among], model[among]))]
    place = pd.Series(order).groupby(model[order]).cumcount().to_numpy()
    near = place < chosen.shape[1]
    chosen[model[order[near]], place[near]] = order[near]


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
    """Plans without duplicates."""
    key = np.c_[of, np.where(count > 0, row, -1), count]
    return np.sort(np.unique(key, axis=0, return_index=True)[1])


def _best(problem, chosen, cost, most):
    """The cheapest plans of each model, of those with the same GPUs the cheapest."""
    pools = limits(problem)[: len(problem.count)]
    used = (pools @ chosen.replicas(len(problem.rows))).toarray().T
    order = np.lexsort((cost, chosen.model))
    key = np.c_[chosen.model, used][order]
    first = np.sort(np.unique(key, axis=0, return_index=True)[1])
    order = order[first]
    place = pd.Series(order).groupby(chosen.model[order]).cumcount().to_numpy()
    return order[place < most]


# --- One plan for each model of a slot, out of candidates, within what all share.

_CLOSE = 5e-4
"""Relative gap at which the choice is good enough: candidates are not all plans."""
_MANY = 2_000
"""Plans beyond which a choice is rounded first: a few times faster, 0.02 % dearer."""
_SECONDS = 10.0
"""Work (s) at most for the models that a linear program has split; tenths do."""
_SPLIT = 1e-6
"""Share of another plan from which on a model counts as split."""
Loaded = Float[np.ndarray, " group"]


def choose(
    problem: Problem,
    slot: int,
    plans: Candidates,
    before: Loaded | None,
    after: Loaded | None,
    work: Work,
) -> Float[np.ndarray, " row"] | None:
    """Replicas of the cheapest choice, starts after the slot `before` and those of the
    slot `after` counted; None where no choice keeps the limits."""
    active = problem.demand[slot] > 0
    limited = np.isfinite(room(problem, slot))
    models = np.flatnonzero(active)
    if not np.isin(models, plans.model).all():
        return None
    replicas = plans.replicas(len(problem.rows))
    cost = replicas.T @ problem.cost(slot)
    cost += start_costs(problem, slot, replicas, plans.model, before, after)
    one = sparse.csr_array((plans.model == models[:, None]).astype(float))
    free = room(problem, slot)[limited]
    per = np.maximum(free, 1e-9) / 1e3
    use = sparse.diags_array(1 / per) @ (limits(problem)[limited] @ replicas)
    matrix = sparse.csr_array(sparse.vstack([one, use]))
    single = np.ones(len(models))
    ends = np.r_[single, np.full(len(per), -np.inf)], np.r_[single, free / per]

    def searched() -> Float[np.ndarray, " plan"] | None:
        most = np.ones(len(plans))
        return minimize(cost, matrix, *ends, most, work=work, gap=_CLOSE).values

    def rounded() -> Float[np.ndarray, " plan"] | None:
        return _rounded(cost, matrix, *ends, work)

    ways = (searched, rounded) if len(plans) <= _MANY else (rounded, searched)
    values = next((x for x in (way() for way in ways) if x is not None), None)
    if values is None:
        return None
    counts = replicas @ values  # rounding of the solver and all
    alone = problem.at(slice(slot, slot + 1))
    return counts if keeps_limits(alone, counts[None])[0] else None


def _rounded(
    cost: Float[np.ndarray, " plan"],
    matrix: sparse.csr_array,
    low: Float[np.ndarray, " limit"],
    high: Float[np.ndarray, " limit"],
    work: Work,
) -> Float[np.ndarray, " plan"] | None:
    """Nearly the cheapest choice: that of the linear program, which splits no more
    models than there are limits; these, and others with them, are chosen anew within
    what the rest leaves. The first limits, with a `low`, are one plan of each model."""
    unit = float(np.abs(cost).max()) or 1.0
    ends = np.zeros(len(cost)), np.full(len(cost), np.inf)
    work.add(program_work(matrix.nnz))
    shares = highs(LinearModel(matrix, low, high, *ends, cost / unit)).values
    if shares is None:
        return None
    one = matrix[: int(np.isfinite(low).sum())]
    surest = (one * shares).max(axis=1).toarray().reshape(-1)
    split_first = np.argsort(surest, kind="stable")
    split = int((surest < 1 - _SPLIT).sum())
    for size in (2 * split, 5 * split):
        anew = np.flatnonzero(one[split_first[:size]].sum(axis=0))
        values = np.round(shares)
        values[anew] = 0.0
        left = high - matrix @ values
        solution = minimize(
            cost[anew], sparse.csr_array(matrix[:, anew]),
            np.where(np.isfinite(low), left, -np.inf), left, np.ones(len(anew)),
            work=work.part(_SECONDS), gap=_CLOSE,
        )  # fmt: skip
        if solution.values is not None:
            values[anew] = solution.values
            return values
    return None


def loaded(problem: Problem, counts: Float[np.ndarray, " row"]) -> Loaded:
    """Replicas of every (model, pool, n)."""
    return np.bincount(problem.group, counts, len(problem.firsts))


def start_costs(
    problem: Problem,
    slot: int,
    replicas: sparse.csr_array,
    model: Int[np.ndarray, " plan"],
    before: Loaded | None,
    after: Loaded | None,
) -> Float[np.ndarray, " plan"]:
    """What plans cost in starts: those they need after `before`, less those that they
    spare the slot `after`."""
    cost = np.zeros(len(model))
    if not problem.start.any():
        return cost
    first, rows = problem.firsts, np.arange(len(problem.rows))
    ones = (np.ones(len(rows)), (problem.group, rows))
    sums = sparse.coo_array(ones, (len(first), len(rows)))
    here = sparse.coo_array(sums @ replicas)
    which, plan = here.coords
    for other, price_of, sign in ((before, slot, 1.0), (after, slot + 1, -1.0)):
        if other is None:
            continue
        price = problem.start_cost(price_of)[first]
        if sign > 0:
            number = np.maximum(0.0, here.data - other[which])
        else:
            number = np.minimum(here.data, other[which])
        cost += sign * np.bincount(plan, number * price[which], len(model))
    return cost
