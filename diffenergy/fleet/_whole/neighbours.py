"""Neighbourhoods: a few models of a slot planned anew with what the others leave."""

import numpy as np
from jaxtyping import Float, Int

from .._bound.linear import Prices, charged
from .._problem.problem import Problem, value_of
from .horizon import Search, Told
from .program import anew

_MODELS = 8
_SECONDS = 1.0
_NEAR, _CLOSE = 1.6, 1e-4
"""Rows up to this over the least priced cost of a request are tried, to this gap."""


def neighbourhoods(
    search: Search,
    counts: Float[np.ndarray, "slot row"],
    good: float,
    told: Told,
) -> Float[np.ndarray, "slot row"]:
    """The same, improved until no work is left, the value is at most `good`, or every
    model of every slot was tried in vain.

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
        part = search.work.part(min(_SECONDS, max(0.1, search.left)))
        prices, how = search.prices[slot], (_NEAR, part, _CLOSE)
        here = anew(problem, slot, prices, models, best[slot], *how)
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
    each = charged(problem, slot, prices.limits)
    models = problem.demand.shape[1]
    paid = np.bincount(problem.rows.model, counts * each, models)
    return paid - problem.demand[slot] * prices.request
