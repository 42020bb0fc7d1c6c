"""`solve`: the best schedule of a problem within limits, and its bound."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .._free import free, pick
from .._free.exact import price_of_time, prove, worthwhile
from .._free.hulls import Line
from .._free.local import keeping
from .._problem import groups
from .._problem.plan import Objective, Plan, Rules
from .._problem.problem import (
    Problem,
    Total,
    chosen,
    default_total,
    listed,
    total,
    within_caps,
)
from .._switching.room import has_room

_SMALL: Final = 1e-6
"""Gap below which a plan needs no exact finish."""


_DEFAULT: Final = "default"
_HULL: Final = "hull and dynamic programming"
_PROOF: Final = "integer programme (HiGHS)"


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
    at granularity "phase". `exact` lets HiGHS finish plans whose gap the hull bound
    leaves open. Raises `Infeasible` if nothing, the default clocks included, keeps the
    limits.
    """
    if rules.granularity == "iteration" or rules.held:
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
    from .._switching.switch import switched

    return switched(problem, objective, rules)


def single_settings(problem: Problem) -> free.Front:
    """One setting for all kernels, for every setting at which all can run."""
    settings = np.flatnonzero(problem.usable.all(0))
    choice = np.repeat(settings[:, None], len(problem.kernels), axis=1)
    took = chosen(problem, choice)
    kept = np.flatnonzero(within_caps(problem, took))
    return free.Front(*total(problem, took), choice).take(kept)


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
    prune = bool(np.isinf(objective.power_cap))
    front = free.front(parts.problem, objective.most_time(default), prune)
    answer = pick.best(front.total, objective, default)
    bound = pick.least_value(line, objective, default)
    found = None
    if answer is not None:
        launches = _launches(parts, front.choice, answer.plan)
        found = _plan(launches, answer, bound, _HULL, line)
    if exact and objective.goal in ("energy", "time"):
        found = _finished(problem, objective, per_launch, line, found, bound)
    if found is None:
        raise pick.infeasible(front.total, objective, default)
    return found.agreeing(objective)


def _finished(
    problem: Problem,
    objective: Objective,
    per_launch: bool,
    line: Line,
    found: Plan | None,
    bound: float,
) -> Plan | None:
    """`found`, or a better plan or bound from the integer programme."""
    if found is not None and found.gap <= _SMALL:
        return found
    allowed, default = problem.usable, default_total(problem)
    if found is not None and found.solver != _DEFAULT and objective.goal == "energy":
        most = objective.most_time(default)
        price = price_of_time(line, most)
        rows = found.kernel, found.setting, found.count
        worth = worthwhile(problem, rows, found.value, most, price)
        if worth.any(
            1
        ).all():  # else rounding of a plan at the limit left a kernel none
            allowed = worth
    proof = prove(free.flat(problem), objective, allowed, not per_launch)
    bound = max(bound, proof.bound)
    for launches in proof.launches:
        better = _checked(problem, launches, objective, default)
        if better is not None and (found is None or better.value < found.value):
            found = _plan(launches, better, bound, _PROOF, line)
    if found is None:
        return None
    proven = found.solver != _DEFAULT and found.value <= bound * (1 + _SMALL)
    solver = _PROOF if proven else found.solver
    found = dataclasses.replace(found, bound=min(bound, found.value), solver=solver)
    return dataclasses.replace(found, out_of_time=proof.out_of_time)


def _as_it_is(problem: Problem) -> groups.Grouped:
    return groups.Grouped(problem, np.arange(len(problem.kernels)))


def _launches(
    parts: groups.Grouped, choice: Int[np.ndarray, "plan part"], plan: int
) -> Float[np.ndarray, "kernel setting"]:
    """Launches of every kernel at every setting under one of the plans."""
    problem = parts.problem
    setting = choice[plan] if plan >= 0 else np.zeros(len(problem.kernels), int)
    found = np.zeros((int(parts.origin.max()) + 1, len(problem.settings)))
    np.add.at(found, (parts.origin, setting), problem.count)
    return found


def _checked(
    problem: Problem,
    launches: Float[np.ndarray, "kernel setting"],
    objective: Objective,
    default: Total,
) -> pick.Answer | None:
    """Exact totals of an integer answer, if it keeps limits and caps."""
    kernel, setting = np.nonzero(launches)
    took = listed(problem, kernel, setting, launches[kernel, setting])
    found = total(problem, took)
    if not (within_caps(problem, took) and objective.keeps(found, default)):
        return None
    return pick.Answer(0, float(objective.value(found)), found)


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
