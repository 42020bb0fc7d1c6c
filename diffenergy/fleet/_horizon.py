"""Slot by slot: candidates at the slot's prices, one chosen for each model, starts
after the slot before counted; then every slot once more between its neighbours."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from ._bound import Prices, charged
from ._candidates import Candidates, candidates, choose, joined, loaded
from ._integer import plan_anew
from ._problem import Problem, value_of
from ._work import Work

_NEAR = 1.15
_ENOUGH = 0.005
"""Relative gap of a slot that is planned directly."""
_PLANS = 1_200
"""Candidates of a slot, about."""
_MOST = 50
"""Candidates of a model at most: where several limits bind, more take longer than they
are worth."""
_TRIES = ((12, 8, 40, 12), (60, 10, 8, 12), (np.inf, 6, 3, 12))
"""Models up to which so many rows are tried as bulk, in so many numbers, and so many
plans of each are kept at least: few models have to split finely over pools."""
_SHARES = (1.0, 0.5, 0.75, 1.5)
"""Prices over those of the bound at which plans are looked for where the first choice
kept no limits."""
_SECONDS = 0.5
"""Work (s) of one choice at least."""

_PER_CANDIDATE = 6e-6
"""Work (s) of a candidate that is tried, by row of its bulk."""

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass
class Search:
    """What is known so far: prices of slots, plans that others found, the best counts.

    `work`: what it may take.
    """

    problem: Problem
    prices: Sequence[Prices]
    work: Work
    extra: dict[int, Candidates] = dataclasses.field(default_factory=dict)

    @property
    def left(self) -> float:
        """Work (s) that is left."""
        return self.work.left


def slot_by_slot(
    search: Search, progress: Progress
) -> Float[np.ndarray, "slot row"] | int:
    """Replicas of every slot; the number of the slot that none were found for."""
    problem = search.problem
    counts = np.zeros((problem.slots, len(problem.rows)))
    before = None
    for slot in range(problem.slots):
        progress("planning", slot, problem.slots)
        here = _slot(search, slot, before, None, problem.slots - slot)
        if here is None:
            return slot
        counts[slot], before = here, loaded(problem, here)
    return counts


def between_neighbours(
    search: Search, counts: Float[np.ndarray, "slot row"], progress: Progress
) -> Float[np.ndarray, "slot row"]:
    """The same, every slot planned anew with both neighbours as they are, while it
    pays and time is left."""
    problem, best = search.problem, counts.copy()
    if problem.slots == 1 or not problem.start.any():
        return best
    value = value_of(problem, best)
    while search.left > 0:
        gained = False
        for slot in range(problem.slots):
            if search.left <= 0:
                break
            progress("planning again", slot, problem.slots)
            before = loaded(problem, best[slot - 1]) if slot else None
            last = slot == problem.slots - 1
            after = None if last else loaded(problem, best[slot + 1])
            here = _slot(search, slot, before, after, problem.slots)
            if here is None:
                continue
            tried = best.copy()
            tried[slot] = here
            new = value_of(problem, tried)
            # Take every gain, but go round again only where that still pays.
            if new < value * (1 - 1e-9):
                gained = gained or new < value * (1 - 1e-4)
                best, value = tried, new
        if not gained:
            break
    return best


def _slot(
    search: Search,
    slot: int,
    before: np.ndarray | None,
    after: np.ndarray | None,
    shared: int,
) -> Float[np.ndarray, " row"] | None:
    """Replicas of a slot; None where none were found."""
    problem = search.problem
    seconds = max(_SECONDS, search.left / shared / 8)
    part = search.work.part
    plans = _candidates(search, slot, before, 1)
    counts = choose(problem, slot, plans, before, after, part(seconds))
    if counts is not None:
        return counts
    counts = _directly(search, slot, _NEAR, part(seconds))
    if counts is not None:
        return counts
    plans = _candidates(search, slot, before, 4)
    counts = choose(problem, slot, plans, before, after, part(2 * seconds))
    if counts is not None:
        return counts
    seconds = max(2 * seconds, search.left / 4)
    return _directly(search, slot, np.inf, part(seconds))


def _directly(
    search: Search, slot: int, near: float, work: Work
) -> Float[np.ndarray, " row"] | None:
    """Replicas of a slot by its integer program, over rows that cost up to `near` times
    the least of their model with prices; starts are not counted."""
    problem, prices = search.problem, search.prices[slot]
    models, none = np.arange(len(prices.request)), np.zeros(len(problem.rows))
    return plan_anew(problem, slot, prices, models, none, near, work, _ENOUGH)


def _candidates(
    search: Search, slot: int, before: np.ndarray | None, more: int
) -> Candidates:
    """Plans at the slot's prices, and around them where there are few models; with a
    slot before, also those that start nothing new."""
    problem, prices = search.problem, search.prices[slot]
    at = prices.limits
    models = max(1, int((problem.demand[slot] > 0).sum()))
    width, splits, few = next(x for top, *x in _TRIES if models <= top)
    most = more * max(few, min(_MOST, _PLANS // models))
    tries = {"width": width + 2 * (more - 1), "most": most, "splits": splits}
    each = _PER_CANDIDATE * models * tries["width"] ** 2 * splits
    # Limits of price 0 may bind once replicas are whole: where the first choice failed
    # they get a small price, so that plans spare them, too.
    nudged = at + (at == 0) * (more > 1) * at.max(initial=0.0) * 0.1
    parts = [
        candidates(problem, slot, scale * nudged, **tries)
        for scale in (_SHARES if more > 1 else _SHARES[:1])
    ]
    search.work.add(each * len(parts))
    if before is not None and problem.start.any():
        group = problem.group
        new = problem.start_cost(slot) * (before[group] == 0)
        search.work.add(each)
        parts.append(candidates(problem, slot, at, added=new, **tries))
    if slot in search.extra:
        parts.append(search.extra[slot])
    return joined(parts)


# --- Neighbourhoods: a few models of a slot planned anew with what the others leave.

_MODELS = 8
_SECONDS_EACH = 1.0
_ROW_COST, _ROW_GAP = 1.6, 1e-4
"""Rows up to this over the least priced cost of a request are tried, to this gap."""


def neighbourhoods(
    search: Search,
    counts: Float[np.ndarray, "slot row"],
    good: float,
    progress: Progress,
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
        progress("improving", tried, tried + len(queue) + 1)
        tried += 1
        part = search.work.part(min(_SECONDS_EACH, max(0.1, search.left)))
        prices, how = search.prices[slot], (_ROW_COST, part, _ROW_GAP)
        here = plan_anew(problem, slot, prices, models, best[slot], *how)
        if here is None:
            continue
        new = best.copy()
        new[slot] = here
        reached = value_of(problem, new)
        if reached < value * (1 - 1e-9):
            best, value = new, reached
            # what it left to others has changed: they, and it, may gain again
            queue.append((slot, models))
    return best


def _queue(
    search: Search, counts: Float[np.ndarray, "slot row"]
) -> list[tuple[int, Int[np.ndarray, " model"]]]:
    """Slots with models that waste most together, the worst first."""
    queue = []
    for slot in range(len(counts)):
        wasted = _waste(search.problem, slot, search.prices[slot], counts[slot])
        order = np.argsort(-wasted)
        order = order[search.problem.demand[slot][order] > 0]
        for start in range(0, len(order), _MODELS):
            models = order[start : start + _MODELS]
            queue.append((float(wasted[models].sum()), slot, models))
    queue.sort(key=lambda x: -x[0])
    return [(slot, models) for _, slot, models in queue]


def _waste(
    problem: Problem, slot: int, prices: Prices, counts: Float[np.ndarray, " row"]
) -> Float[np.ndarray, " model"]:
    each = charged(problem, slot, prices.limits)
    models = problem.demand.shape[1]
    paid = np.bincount(problem.rows.model, counts * each, models)
    return paid - problem.demand[slot] * prices.request
