"""Plans between a fast one and a lean one that come nearer to the limit."""

from typing import Final

import numpy as np
from jaxtyping import Int

from .._problem.plan import Objective
from .._problem.problem import Total
from .._problem.totals import default_total, total, within_caps
from .dual import Search

_MIXES: Final = 4e7
"""Most plans x positions that are totalled at once."""
_ROUNDS: Final = 40


def mix(search: Search, fast: int, lean: int, objective: Objective) -> None:
    """Adds the best plans that take one stretch of launches from each."""
    a, b = search.settings[fast], search.settings[lean]
    num = len(a)
    if num**3 <= _MIXES:
        start, end = np.triu_indices(num + 1, 1)
        inside = (np.arange(num) >= start[:, None]) & (np.arange(num) < end[:, None])
        mixed = np.concatenate([np.where(inside, b, a), np.where(inside, a, b)])
        _add_best(search, mixed, objective)
        return
    for first, second in ((a, b), (b, a)):
        _add_cut(search, first, second, objective)


def _add_cut(
    search: Search,
    first: Int[np.ndarray, " position"],
    second: Int[np.ndarray, " position"],
    objective: Objective,
) -> None:
    """One plan to a launch, the other from there on: halving finds where.

    One of both keeps the limits; the launches of the other are as many as possible.
    """
    problem, num = search.places.problem, len(first)
    default = default_total(problem)

    def keeps(cut: int) -> bool:
        joined = np.where(np.arange(num) < cut, first, second)
        exact = search.add(joined)
        return exact is not None and bool(objective.keeps(exact, default))

    good, bad = (num, 0) if keeps(num) else (0, num)
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if keeps(middle) else (good, middle)


def improve(search: Search, plan: int, objective: Objective) -> None:
    """Adds plans that change one position at a time, as long as that helps."""
    settings, problem = search.settings[plan], search.places.problem
    num, choices = len(settings), len(problem.settings)
    if num * num * choices * _ROUNDS > 20 * _MIXES:
        return
    value = np.inf
    for _ in range(_ROUNDS):
        changed = np.repeat(settings[None], num * choices, axis=0)
        place, setting = np.divmod(np.arange(num * choices), choices)
        changed[np.arange(num * choices), place] = setting
        changed = changed[problem.usable[search.places.kernel[place], setting]]
        found = _add_best(search, changed, objective)
        if found is None or found[1] >= value * (1 - 1e-9):
            return
        settings, value = found


def _add_best(
    search: Search, plans: Int[np.ndarray, "plan position"], objective: Objective
) -> tuple[Int[np.ndarray, " position"], float] | None:
    problem = search.places.problem
    default = default_total(problem)
    took = search.places.spent(plans)
    exact = total(problem, took)
    fits = np.flatnonzero(within_caps(problem, took) & np.isfinite(exact.time))
    kept = fits[objective.keeps(Total(exact.time[fits], exact.energy[fits]), default)]
    value = objective.value(Total(exact.time[kept], exact.energy[kept]))
    for plan in kept[np.argsort(value, kind="stable")]:
        if search.add(plans[plan]) is not None:
            return plans[plan], float(value.min())
    return None
