"""Neighbourhoods: a few models of a slot planned anew with what the others leave."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from .._bound.linear import Prices, charged
from .._problem.problem import Problem, kept, site_power, value_of
from .horizon import Search, Told
from .program import whole

_MODELS = 8
_SECONDS = 1.0
_NEAR = 1.6
"""Rows up to this over the least priced cost of a request are tried."""


def neighbourhoods(
    search: Search,
    counts: Float[np.ndarray, "slot row"],
    good: float,
    told: Told,
) -> Float[np.ndarray, "slot row"]:
    """The same, improved until time is up, the value is at most `good`, or every model
    of every slot was tried in vain.

    Models are taken by what they waste: their cost with prices over that of their
    demand on the cheapest row.
    """
    problem, best = search.problem, counts.copy()
    value = value_of(problem, best)
    queue = _queue(search, best)
    tried = 0
    while queue and search.left > 0 and value > good:
        slot, models = queue.pop(0)
        told("improving", tried, tried + len(queue) + 1)
        tried += 1
        here = _anew(search, slot, models, best[slot])
        if here is None:
            continue
        new = best.copy()
        new[slot] = here
        reached = value_of(problem, new)
        if reached < value * (1 - 1e-9):
            best, value = new, reached
            queue.append((slot, models))
    return best


def _queue(
    search: Search, counts: Float[np.ndarray, "slot row"]
) -> list[tuple[int, Int[np.ndarray, " model"]]]:
    """Slots with models that waste most together, the worst first."""
    found = []
    for slot in range(len(counts)):
        wasted = _waste(search.problem, slot, search.prices[slot], counts[slot])
        order = np.argsort(-wasted)
        order = order[search.problem.demand[slot][order] > 0]
        for start in range(0, len(order), _MODELS):
            models = order[start : start + _MODELS]
            found.append((float(wasted[models].sum()), slot, models))
    found.sort(key=lambda x: -x[0])
    return [(slot, models) for _, slot, models in found]


def _waste(
    problem: Problem, slot: int, prices: Prices, counts: Float[np.ndarray, " row"]
) -> Float[np.ndarray, " model"]:
    each = charged(problem, slot, np.r_[prices.gpu, prices.watt])
    models = problem.demand.shape[1]
    paid = np.bincount(problem.rows.model, counts * each, models)
    return paid - problem.demand[slot] * prices.request


def _anew(
    search: Search,
    slot: int,
    models: Int[np.ndarray, " model"],
    counts: Float[np.ndarray, " row"],
) -> Float[np.ndarray, " row"] | None:
    """Counts of a slot with these models planned anew; None where nothing was found."""
    problem = search.problem
    alone = problem.at(slice(slot, slot + 1))
    mine = np.isin(problem.rows.model, models)
    others = np.where(mine, 0.0, counts)
    prices = search.prices[slot]
    each = charged(problem, slot, np.r_[prices.gpu, prices.watt]) / problem.rows.rate
    near = each <= _NEAR * prices.request[problem.rows.model]
    chosen = np.flatnonzero(mine & (near | (counts > 0)))
    left = _without(alone, others, mine).take(chosen)
    seconds = min(_SECONDS, max(0.1, search.left))
    found = whole(left, seconds=seconds, gap=1e-4).values
    if found is None:
        return None
    new = others.copy()
    new[chosen] = found[0]
    return new if kept(alone, new[None])[0] else None


def _without(
    alone: Problem, others: Float[np.ndarray, " row"], mine: Bool[np.ndarray, " row"]
) -> Problem:
    """The slot with what others leave, and the demand of the others gone."""
    rows = alone.rows
    used = np.bincount(rows.pool, others * rows.gpus, len(alone.count))
    drawn = site_power(alone, others[None])[0] - alone.base
    models = alone.demand.shape[1]
    asked = np.bincount(rows.model[mine], minlength=models) > 0
    count = alone.count - used
    # boards that others use draw what they draw: the base of the rest stays parked
    parked = np.bincount(alone.site, used * alone.parked, minlength=len(alone.pue))
    budget = alone.budget - drawn - alone.pue * parked
    return dataclasses.replace(
        alone, count=count, demand=np.where(asked, alone.demand, 0.0), budget=budget
    )
