"""`solve`: the best schedule of a problem within limits, and its bound."""

import contextlib
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from ..results import Infeasible
from . import _free as free
from . import _groups as groups
from . import _pick as pick
from ._hulls import Line
from ._local import keeping
from ._plan import Objective, Plan, Rules
from ._positions import has_room
from ._problem import (
    TIE,
    Problem,
    Total,
    chosen,
    default_total,
    total,
    within_caps,
)

_SMALL: Final = 1e-7
"""Gap below which a plan is as good as proven."""
_ROUNDS: Final = 4
"""Most rounds of fewer settings and finer steps of time."""
_BETTER: Final = 1e-12
"""Share of the value by which a plan is better than another one."""
_CELLS: Final = 2e7
"""Steps x settings of a round."""
_STEPS: Final = 20_000, 200_000
"""Fewest and most steps of a round."""

_DEFAULT: Final = "default"
_HULL: Final = "hull and dynamic programming"


ANY: Final = Rules()
"""One setting for every kernel, changes free, limits on the sum."""
STRICT: Final = Objective(max_slowdown=0.0)
"""Least energy at no slowdown."""


def solve(
    problem: Problem,
    objective: Objective = STRICT,
    rules: Rules = ANY,
    *,
    exact: bool = True,
) -> Plan:
    """Best schedule within the limits, with its bound.

    A stage without a setting at which all its kernels can run leaves all stages alone
    at granularity "phase".

    Args:
        problem: what every kernel costs at every setting, s and J.
        objective: what is to be small, and the limits on the iteration.
        rules: who chooses settings, and what changing them costs.
        exact: goes on, with finer steps, where the hull's bound leaves a gap.

    Raises:
        Infeasible: nothing, the default clocks included, keeps the limits.
    """
    if rules.granularity == "iteration" or rules.changes.forbidden:
        return _single(problem, objective, rules)
    if rules.granularity == "phase":
        phases = groups.by_stage(problem)
        if not phases.problem.usable.any(1).all():
            return _single(problem, objective, rules)
        finer = dataclasses.replace(rules, granularity="kernel")
        return _expanded(
            problem, phases, solve(phases.problem, objective, finer, exact=exact)
        )
    if rules.aggregation == "local":
        allowed = keeping(problem, objective)
        return solve(
            allowed,
            objective,
            dataclasses.replace(rules, aggregation="global"),
            exact=exact,
        )
    if rules.free:
        return _free(problem, objective, rules.per_launch, exact)
    most = objective.most_time(default_total(problem))
    if not has_room(problem, rules.changes, most):
        return _single(problem, objective, rules)
    from ._switched import switched

    return switched(problem, objective, rules)


def single_settings(problem: Problem) -> free.Front:
    """One setting for all kernels, for every setting at which all can run."""
    settings = np.flatnonzero(problem.usable.all(0))
    choice = np.repeat(settings[:, None], len(problem.kernels), axis=1)
    took = chosen(problem, choice)
    cool = np.flatnonzero(within_caps(problem, took))
    return free.Front(*total(problem, took), choice).take(cool)


def _single(problem: Problem, objective: Objective, rules: Rules) -> Plan:
    """Best single setting; trying all of them is its own proof."""
    front, default = single_settings(problem), default_total(problem)
    answer = pick.best(front.total, objective, default)
    if answer is None:
        raise pick.infeasible(front.total, objective, default)
    launches = _launches(_as_it_is(problem), front.choice, answer.plan)
    plan = _plan(launches, answer, answer.value, "every setting", None)
    return dataclasses.replace(plan, switches=np.nan if rules.free else 0.0)


def _free(
    problem: Problem, objective: Objective, per_launch: bool, exact: bool
) -> Plan:
    default, line = default_total(problem), free.bound(problem)
    parts = groups.split(problem) if per_launch else _as_it_is(problem)
    # Under a limit of power a slower plan that draws less may be the only one.
    prune = bool(np.isinf(objective.power_cap))
    front = free.front(parts.problem, free.Window(objective.most_time(default)), prune)
    answer = pick.best(front.total, objective, default)
    if answer is None:
        raise pick.infeasible(front.total, objective, default)
    bound = pick.least_value(line, objective, default)
    launches = _launches(parts, front.choice, answer.plan)
    plan = _plan(launches, answer, bound, _HULL, line)
    if exact and per_launch:  # whose steps are coarser for all the parts
        with contextlib.suppress(Infeasible):  # only split launches keep the limits
            whole = _free(problem, objective, False, exact)
            whole = dataclasses.replace(whole, bound=plan.bound)
            plan = min(plan, whole, key=lambda x: x.value)
    if exact:
        plan = _closer(problem, objective, per_launch, line, plan)
    return plan.agreeing(objective)


def _closer(
    problem: Problem, objective: Objective, per_launch: bool, line: Line, plan: Plan
) -> Plan:
    """`plan`, or a better plan, with a better bound.

    A better plan takes only settings that are `worthwhile`; over those alone the steps
    of time are finer, which may find one, and so on.
    """
    default, problem = default_total(problem), free.flat(problem)
    prune = bool(np.isinf(objective.power_cap))
    for _ in range(_ROUNDS):
        window = _better_plans(objective, line, plan, default)
        if window is None or plan.gap <= _SMALL:
            break
        worth = free.worthwhile(problem, window, per_launch)
        # A kernel without a setting for a better plan: there is none, which is a proof.
        if not worth.any(1).all():
            return dataclasses.replace(plan, bound=plan.value)
        rest = free.restricted(problem, worth)
        parts = groups.split(rest, apart=True) if per_launch else _as_it_is(rest)
        steps = int(np.clip(_CELLS / parts.problem.usable.sum(), *_STEPS))
        if parts.complete:
            least = free.least_totals(parts.problem, window, steps)
            below = _least_value(least, objective, plan)
            plan = dataclasses.replace(plan, bound=max(plan.bound, below))
        front = free.front(parts.problem, window, prune, steps)
        answer = pick.best(front.total, objective, default)
        if answer is None or answer.value >= plan.value * (1 - _BETTER):
            break
        launches = _launches(parts, front.choice, answer.plan)
        plan = _plan(launches, answer, plan.bound, _HULL, line)
    return plan


def _better_plans(
    objective: Objective, line: Line, plan: Plan, default: Total
) -> free.Window | None:
    """Window of the plans better than `plan`; None: not known of this objective."""
    most, value = objective.most_time(default) * (1 + TIE), plan.value
    if objective.goal == "time":  # energy <= cap x time < cap x the time found
        most, value = plan.time, objective.power_cap * plan.time
    if objective.goal in ("edp", "ed2p") or np.isinf(value):
        return None
    price = line.price(most)
    return free.Window(most, price, value + (price * most if price else 0.0))


def _least_value(least: Total, objective: Objective, plan: Plan) -> float:
    """Bound of the value, by points below all plans better than `plan`."""
    if objective.goal == "time":
        cool = least.energy <= objective.power_cap * plan.time
        return float(least.time[cool].min(initial=plan.value))
    return float(least.energy.min(initial=plan.value))


def _as_it_is(problem: Problem) -> groups.Grouped:
    return groups.Grouped(problem, np.arange(len(problem.kernels)))


def _launches(
    parts: groups.Grouped, choice: Int[np.ndarray, "plan part"], plan: int
) -> Float[np.ndarray, "kernel setting"]:
    """Launches of every kernel at every setting under one of the plans."""
    problem = parts.problem
    setting = choice[plan] if plan >= 0 else np.zeros(len(problem.kernels), int)
    launches = np.zeros((int(parts.origin.max()) + 1, len(problem.settings)))
    np.add.at(launches, (parts.origin, setting), problem.count)
    return launches


def _plan(
    launches: Float[np.ndarray, "kernel setting"],
    answer: pick.Answer,
    bound: float,
    solver: str,
    line: Line | None,
) -> Plan:
    """`line`: below the energy of every plan (None: nothing takes less than this)."""
    kernel, setting = np.nonzero(launches)
    time, energy = (float(x) for x in answer.total)
    below = energy if line is None else float(line.at(np.array([time]))[0])
    return Plan(
        kernel,
        setting,
        launches[kernel, setting],
        time,
        energy,
        answer.value,
        min(bound, answer.value),
        min(below, energy),
        _DEFAULT if answer.plan < 0 else solver,
        np.nan,
    )


def _expanded(problem: Problem, phases: groups.Grouped, plan: Plan) -> Plan:
    """A plan of the stages as one of their kernels."""
    share = np.zeros((len(phases.problem.kernels), len(problem.settings)))
    np.add.at(share, (plan.kernel, plan.setting), plan.count)
    share /= phases.problem.count[:, None]
    launches = problem.count[:, None] * share[phases.origin]
    kernel, setting = np.nonzero(launches)
    return dataclasses.replace(
        plan, kernel=kernel, setting=setting, count=launches[kernel, setting]
    )
