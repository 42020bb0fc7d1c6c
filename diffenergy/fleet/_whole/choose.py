"""One plan for each model of a slot, out of candidates, within what all share."""

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, highs
from .._bound.linear import limits, room
from .._problem.problem import Problem
from .candidates import Candidates
from .integer import least

_CLOSE = 5e-4
"""Relative gap at which the choice is good enough: candidates are not all plans."""
_MANY = 2_000
"""Plans beyond which a choice is rounded first: a few times faster, 0.02 % dearer."""
_SECONDS = 10.0
"""s at most for the models that a linear program has split; tenths of one do."""
_TINY = 1e-6
Loaded = Float[np.ndarray, " group"]


def choose(
    problem: Problem,
    slot: int,
    plans: Candidates,
    before: Loaded | None,
    after: Loaded | None,
    seconds: float,
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
    place = np.searchsorted(models, plans.model)
    index = np.arange(len(plans))
    one = sparse.coo_array(
        (np.ones(len(plans)), (place, index)), (len(models), len(plans))
    )
    free = room(problem, slot)[held]
    per = np.maximum(free, 1e-9) / 1e3
    use = sparse.diags_array(1 / per) @ (limits(problem)[held] @ made)
    matrix = sparse.csr_array(sparse.vstack([one, use]))
    single = np.ones(len(models))
    low = np.r_[single, np.full(len(per), -np.inf)]

    def searched() -> Float[np.ndarray, " plan"] | None:
        high = np.r_[single, free / per]
        most = np.ones(len(plans))
        return least(cost, matrix, low, high, most, seconds=seconds, gap=_CLOSE).values

    def rounded() -> Float[np.ndarray, " plan"] | None:
        return _rounded(cost, matrix, free / per, place)

    ways = (searched, rounded) if len(plans) <= _MANY else (rounded, searched)
    values = next((x for x in (way() for way in ways) if x is not None), None)
    return None if values is None else made @ values


def _rounded(
    cost: Float[np.ndarray, " plan"],
    matrix: sparse.csr_array,
    free: Float[np.ndarray, " limit"],
    model: Int[np.ndarray, " plan"],
) -> Float[np.ndarray, " plan"] | None:
    """Nearly the cheapest choice: that of the linear program, which splits no more
    models than there are limits; these, and others with them, are chosen anew within
    what the rest leaves."""
    models = len(matrix.indptr) - 1 - len(free)
    single = np.ones(models)
    one, use = matrix[:models], matrix[models:]
    unit = float(np.abs(cost).max()) or 1.0
    shares = highs(
        LinearModel(
            sparse.csr_array(sparse.vstack([use, one])),
            np.r_[np.full(len(free), -np.inf), single],
            np.r_[free, single],
            np.zeros(len(cost)),
            np.full(len(cost), np.inf),
            cost / unit,
        )
    ).values
    if shares is None:
        return None
    surest = np.zeros(models)
    np.maximum.at(surest, model, shares)
    split_first = np.argsort(surest, kind="stable")
    split = int((surest < 1 - _TINY).sum())
    for size in (2 * split, 5 * split):
        anew = np.isin(model, split_first[:size])
        values = np.where(anew, 0.0, np.round(shares))
        left = np.r_[single - one @ values, free - use @ values]
        low = np.r_[left[:models], np.full(len(free), -np.inf)]
        part = sparse.csr_array(matrix[:, np.flatnonzero(anew)])
        found = least(
            cost[anew], part, low, left, np.ones(int(anew.sum())),
            seconds=_SECONDS, gap=_CLOSE,
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
