"""One plan for each model of a slot, out of candidates, within what all share."""

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, highs
from .._bound import limits, room
from .._problem import Problem, kept
from .candidates import Candidates
from .integer import least
from .work import Work, program_work

_CLOSE = 5e-4
"""Relative gap at which the choice is good enough: candidates are not all plans."""
_MANY = 2_000
"""Plans beyond which a choice is rounded first: a few times faster, 0.02 % dearer."""
_SECONDS = 10.0
"""Work (s) at most for the models that a linear program has split; tenths do."""
_TINY = 1e-6
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
    wanted = problem.demand[slot] > 0
    held = np.isfinite(room(problem, slot))
    models = np.flatnonzero(wanted)
    if not np.isin(models, plans.model).all():
        return None
    made = plans.made(len(problem.rows))
    cost = made.T @ problem.cost(slot)
    cost += start_costs(problem, slot, made, plans.model, before, after)
    one = sparse.csr_array((plans.model == models[:, None]).astype(float))
    free = room(problem, slot)[held]
    per = np.maximum(free, 1e-9) / 1e3
    use = sparse.diags_array(1 / per) @ (limits(problem)[held] @ made)
    matrix = sparse.csr_array(sparse.vstack([one, use]))
    single = np.ones(len(models))
    ends = np.r_[single, np.full(len(per), -np.inf)], np.r_[single, free / per]

    def searched() -> Float[np.ndarray, " plan"] | None:
        most = np.ones(len(plans))
        return least(cost, matrix, *ends, most, work=work, gap=_CLOSE).values

    def rounded() -> Float[np.ndarray, " plan"] | None:
        return _rounded(cost, matrix, *ends, work)

    ways = (searched, rounded) if len(plans) <= _MANY else (rounded, searched)
    values = next((x for x in (way() for way in ways) if x is not None), None)
    if values is None:
        return None
    counts = made @ values  # rounding of the solver and all
    alone = problem.at(slice(slot, slot + 1))
    return counts if kept(alone, counts[None])[0] else None


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
    split = int((surest < 1 - _TINY).sum())
    for size in (2 * split, 5 * split):
        anew = np.flatnonzero(one[split_first[:size]].sum(axis=0))
        values = np.round(shares)
        values[anew] = 0.0
        left = high - matrix @ values
        found = least(
            cost[anew], sparse.csr_array(matrix[:, anew]),
            np.where(np.isfinite(low), left, -np.inf), left, np.ones(len(anew)),
            work=work.part(_SECONDS), gap=_CLOSE,
        )  # fmt: skip
        if found.values is not None:
            values[anew] = found.values
            return values
    return None


def loaded(problem: Problem, counts: Float[np.ndarray, " row"]) -> Loaded:
    """Replicas of every (model, pool, n)."""
    return np.bincount(problem.group, counts, len(problem.firsts))


def start_costs(
    problem: Problem,
    slot: int,
    made: sparse.csr_array,
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
    here = sparse.coo_array(sums @ made)
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
