"""Schedules when changing clocks costs time or energy.

Plans of the search by prices (`dual`) are mixed and improved by hand towards the limit.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Int

from . import _free as free
from . import _pick as pick
from ._dual import Search, search
from ._hulls import Line
from ._labels import exact_schedule
from ._plan import Objective, Plan, Rules
from ._positions import positions
from ._problem import Problem, Total, default_total, total, within_caps

_SOLVER: Final = "dynamic programming along the launches"
_HIGHEST: Final = 1e6
"""Price at which only time counts, in mean powers of the default."""
_SWEEP: Final = 24
"""Prices of time from the highest to the lowest in a sweep."""
_FOLLOWED: Final = 10
"""Most steps towards the least E T^n."""
_MIXES: Final = 4e7
"""Most plans x positions that are totalled at once."""
_ROUNDS: Final = 40
"""Most rounds of changes of one position."""


def switched(problem: Problem, objective: Objective, rules: Rules) -> Plan:
    """Best schedule found when changes of setting cost what `rules` say.

    Stalls: positions of the loops' bodies keep their setting over the turns, unless
    launches may differ. Look-ahead: every launch may. Raises `Infeasible`.
    """
    state = _start(problem, rules)
    default = default_total(problem)
    _search(state, objective, default)
    line, whole = state.line(), free.bound(problem)
    bound = max(pick.least_value(x, objective, default) for x in (line, whole))
    if not state.latency:  # no setting has to stay
        exact = exact_schedule(state.places, objective, objective.most_time(default))
        if exact is not None:
            bound = max(bound, exact.bound)
        if exact is not None and exact.settings is not None:
            state.add(exact.settings)
    answer = pick.best(state.total, objective, default)
    if answer is None:
        raise pick.infeasible(state.total, objective, default)
    time = np.array([answer.total.time])
    below = max(float(x.at(time)[0]) for x in (line, whole))
    return _plan(state, answer, bound, below).agreeing(objective)


def switched_front(problem: Problem, rules: Rules) -> tuple[Total, Line]:
    """Totals of plans from the fastest to the leanest, and a line below all."""
    state = _start(problem, rules)
    _sweep(state)
    return state.total, state.line()


def _start(problem: Problem, rules: Rules) -> Search:
    """A search that knows the single settings."""
    switching = rules.changes
    ahead = switching.kind == "lookahead"
    stall = 0.0 if ahead else switching.latency
    energy = switching.energy + stall * rules.stalled(problem)
    places = positions(problem, stall, energy, rules.per_launch or ahead)
    state = search(places, switching.latency if ahead else None)
    for setting in np.flatnonzero(problem.usable.all(0)):
        state.add(np.full(len(places.kernel), setting))
    return state


def _search(state: Search, objective: Objective, default: Total) -> None:
    """Plans near the best of the objective, and the lines that bound it."""
    highest = float(_HIGHEST * default.energy / default.time)
    lean, fast = state.at(0.0), state.at(highest)
    if objective.goal in ("edp", "ed2p"):
        _sweep(state)
        _follow(state, objective, default)
    if lean >= 0 and fast >= 0:
        fast, lean = state.between(fast, lean, _quick(objective, default))
        _mix(state, fast, lean, objective)
    answer = pick.best(state.total, objective, default)
    if answer is not None and answer.plan >= 0:
        _improve(state, answer.plan, objective)


def _quick(objective: Objective, default: Total) -> Callable[[Total], bool]:
    """Whether a plan lies on the fast side of the limit that binds."""
    if objective.goal == "time":
        return lambda plan: bool(plan.energy > objective.power_cap * plan.time)
    return lambda plan: bool(objective.keeps(plan, default))


def _follow(state: Search, objective: Objective, default: Total) -> None:
    """Towards the least E T^n: at the best plan a second is worth n E / T."""
    value = np.inf
    for _ in range(_FOLLOWED):
        answer = pick.best(state.total, objective, default)
        if answer is None or answer.value >= value:
            return
        value = answer.value
        state.at(float(objective.powers[1] * answer.total.energy / answer.total.time))


def _sweep(state: Search) -> None:
    """Plans at prices from one at which time is all to nothing."""
    default = default_total(state.places.problem)
    power = float(default.energy / default.time)
    for price in np.append(np.geomspace(30 * power, 0.01 * power, _SWEEP), 0.0):
        state.at(float(price))


def _mix(search: Search, fast: int, lean: int, objective: Objective) -> None:
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


def _improve(search: Search, plan: int, objective: Objective) -> None:
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
        improved = _add_best(search, changed, objective)
        if improved is None or improved[1] >= value * (1 - 1e-9):
            return
        settings, value = improved


def _add_best(
    search: Search, plans: Int[np.ndarray, "plan position"], objective: Objective
) -> tuple[Int[np.ndarray, " position"], float] | None:
    problem = search.places.problem
    default, took = default_total(problem), search.places.spent(plans)
    exact = total(problem, took)
    fits = within_caps(problem, took) & np.isfinite(exact.time)
    allowed = np.flatnonzero(fits & objective.keeps(exact, default))
    value = objective.value(Total(exact.time[allowed], exact.energy[allowed]))
    for plan in allowed[np.argsort(value, kind="stable")]:
        if search.add(plans[plan]) is not None:
            return plans[plan], float(value.min())
    return None


def _plan(
    state: Search, answer: pick.Answer, bound: float, bound_energy: float
) -> Plan:
    places, default = state.places, answer.plan < 0
    settings = np.zeros(len(places.kernel), np.int64)
    if not default:
        settings = state.settings[answer.plan]
    return Plan(
        places.kernel,
        settings,
        places.count,
        float(answer.total.time),
        float(answer.total.energy),
        answer.value,
        min(bound, answer.value),
        min(bound_energy, float(answer.total.energy)),
        "default" if default else _SOLVER,
        float(places.changes(settings).sum()),
    )
