"""`schedule`: a plan with what it is measured against."""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from ..results import Infeasible
from ..search import pareto_front
from ._costs import applied
from ._free import restricted
from ._frontier import frontier
from ._modelled import Modelled
from ._plan import Objective, Plan, Rules
from ._problem import (
    TIE,
    Problem,
    Total,
    default_total,
    stage_totals,
    total,
)
from ._solve import ANY, STRICT, solve

_NEAR: Final = 3
"""Legal clocks on either side of a continuous one that rounding may take."""
_SETTLING: Final = 8
"""Rounds from power to temperature to leakage; each leaves a fifth of the error."""
_ANSWERS: Final = 2
"""Most exact answers, each at the temperature of the plan before."""
_HEAT: Final = 1e-4
"""Share of a cap that a plan may pass by what its own temperature adds."""
_SETTLED: Final = 1e-6
"""Share of the power that leakage may be off by at an answer's own temperature."""


Solver = Callable[[Objective], tuple[Problem, Plan]]
Limiter = Callable[[Solver, Objective], tuple[Problem, Plan]]
"""The plan of a solver that keeps the limits of an objective exactly."""


@dataclasses.dataclass(frozen=True)
class Descent:
    """Number of starts and seed of the gradient descent."""

    starts: int = 8
    seed: int = 0


def schedule(
    modelled: Modelled,
    objective: Objective = STRICT,
    rules: Rules = ANY,
    descent: Descent | None = None,
) -> tuple[Problem, Plan]:
    """Best schedule of a modelled workload, and the problem at its temperatures.

    Leakage follows the temperature, which follows the power of the schedule: solved at
    the temperature of the default clocks, then at that of the answer until it stays
    (`_settled`), so that energies are of the plan's own temperature. `descent`
    searches by gradients through the model instead of in the table; its bound is that
    of the table. Raises `Infeasible`.
    """
    if rules.granularity != "kernel":
        problem = modelled.stage_problem()
        return problem, solve(problem, objective, rules)
    problem, plan, growth = _settled(modelled, objective, rules)
    if descent is None:
        return _or_by_stage(modelled, problem, plan, objective, rules)
    descended = _descended(modelled, growth, objective, rules, descent)
    descended = dataclasses.replace(
        descended, bound=plan.bound, bound_energy=plan.bound_energy
    )
    if rules.free:
        return problem, descended
    # clocks that descent finds differ by kernel, which dear changes do not pay for
    return _or_by_stage(modelled, problem, descended, objective, rules)


def _settled(
    modelled: Modelled, objective: Objective, rules: Rules
) -> tuple[Problem, Plan, Float[np.ndarray, " stage"]]:
    """The best schedule at its own temperature, with the problem and the growth of
    leakage there.

    At the temperature of a schedule another one may be best: of both, each at its own,
    the better one is taken, with the bound at its temperature.
    """
    growth = modelled.default_growth
    problem = modelled.problem(growth)
    plan = solve(problem, objective, rules, exact=False)
    settled: list[tuple[Problem, Plan, Float[np.ndarray, " stage"]]] = []
    for _ in range(_ANSWERS):
        before = problem
        for _ in range(_SETTLING):
            growth = modelled.growth(stage_power(problem, plan))
            problem = modelled.problem(growth)
        answer = solve(problem, objective, rules)
        repriced = _repriced(plan, before, problem, objective)
        caps = problem.power_cap * (1 + _HEAT)
        if np.all(stage_power(problem, plan) <= caps) or repriced.solver == "default":
            bound = min(answer.bound, repriced.value)
            energy = min(answer.bound_energy, repriced.energy)
            repriced = dataclasses.replace(repriced, bound=bound, bound_energy=energy)
            settled.append((problem, repriced, growth))
        power = stage_power(problem, answer)
        if np.allclose(power, stage_power(problem, plan), rtol=_SETTLED, atol=0):
            settled.append((problem, answer, growth))
            break
        plan = answer
    if not settled:  # at their own temperatures all pass a cap
        return problem, plan, growth
    return min(settled, key=lambda x: x[1].value)


def _repriced(
    plan: Plan, before: Problem, problem: Problem, objective: Objective
) -> Plan:
    """A plan of one problem at the energies of another: its times are the same."""
    energies = [total(x, plan.spent(x)).energy for x in (before, problem)]
    energy = plan.energy + float(energies[1] - energies[0])
    value = float(objective.value(Total(np.asarray(plan.time), np.asarray(energy))))
    return dataclasses.replace(plan, energy=energy, value=value)


def _or_by_stage(
    modelled: Modelled, problem: Problem, plan: Plan, objective: Objective, rules: Rules
) -> tuple[Problem, Plan]:
    """A plan of the kernels, or one of the stages if that is better.

    Where changes of clocks are dear, a stage at one pair of clocks that the limiter
    lowers further can be best; kernels of their own clocks leave the limiter no work.
    """
    stages = modelled.stage_problem()
    whole = dataclasses.replace(rules, per_launch=False)
    try:
        coarse = solve(stages, objective, whole)
    except Infeasible:
        return problem, plan
    if not coarse.value < plan.value * (1 - TIE):
        return problem, plan
    # changes at no cost: below what a limiter makes of some stages
    free = solve(problem, objective, dataclasses.replace(rules, switching=None))
    return stages, dataclasses.replace(
        coarse,
        bound=min(free.bound, coarse.value),
        bound_energy=min(free.bound_energy, coarse.energy),
    ).agreeing(objective)


def baselines(
    problem: Problem,
    objective: Objective = STRICT,
    rules: Rules = ANY,
    limiter: Limiter = lambda solver, objective: solver(objective),
) -> dict[str, Plan | None]:
    """Best single setting ("iteration") and best per stage ("phase").

    The limits are kept by the sum, whatever `rules.aggregation` says; changes between
    stages cost what `rules` says. `None` where nothing keeps the limits.
    """
    plans: dict[str, Plan | None] = {}
    for granularity in ("iteration", "phase"):
        coarse = dataclasses.replace(
            rules, granularity=granularity, aggregation="global", per_launch=False
        )
        try:
            _, plans[granularity] = limiter(
                lambda x, rules=coarse: (problem, solve(problem, x, rules)), objective
            )
        except Infeasible:
            plans[granularity] = None
    return plans


def schedule_frontier(
    modelled: Modelled, problem: Problem, rules: Rules
) -> Float[np.ndarray, "point 2"]:
    """Changes of time and energy (%) of the schedules that no other one beats: of
    kernels at clocks of their own, at the temperatures of `problem`, or of stages."""
    stages = modelled.stage_problem()
    frontiers = [frontier(stages, rules=dataclasses.replace(rules, per_launch=False))]
    if rules.granularity == "kernel":
        by_kernel = problem.kernels == modelled.kernels
        kernels = problem if by_kernel else modelled.problem(modelled.default_growth)
        frontiers.append(frontier(kernels, rules=rules))
    default = default_total(stages)
    points = np.concatenate([edge.points(default) for edge in frontiers])
    return points[pareto_front(points[:, 0], points[:, 1])]


def stage_power(problem: Problem, plan: Plan) -> Float[np.ndarray, " stage"]:
    """Mean power of every stage, W."""
    time, energy = stage_totals(problem, plan.spent(problem))
    return energy / time


def _descended(
    modelled: Modelled,
    growth: Float[np.ndarray, " stage"],
    objective: Objective,
    rules: Rules,
    descent: Descent,
) -> Plan:
    """The best legal schedule next to what gradient descent finds."""
    from ._descent import descend  # optax takes a while to load

    problem = modelled.problem(growth)
    local = rules.aggregation == "local"
    clocks = descend(modelled, growth, objective, local, descent.starts, descent.seed)
    settings = np.stack(applied(modelled.card, problem.settings), axis=-1)
    near = np.any([_neighbours(settings, start) for start in clocks], axis=0)
    plan = solve(restricted(problem, near), objective, rules, exact=False)
    if plan.solver == "default":
        return plan
    return dataclasses.replace(plan, solver="gradient descent, rounded")


def _neighbours(
    settings: Float[np.ndarray, "setting 2"], clocks: Float[np.ndarray, "kernel 2"]
) -> Bool[np.ndarray, "kernel setting"]:
    """Settings both of whose clocks are among the next ones below or above; the first
    setting, so that kernels can make up for time that others lose in rounding."""
    near = np.ones((len(clocks), len(settings)), bool)
    for axis in range(2):
        legal = np.unique(settings[:, axis])
        above = np.searchsorted(legal, clocks[:, axis])
        steps = np.arange(-_NEAR, _NEAR) + above[:, None]
        allowed = legal[steps.clip(0, len(legal) - 1)]
        near &= (settings[None, :, None, axis] == allowed[:, None]).any(axis=2)
    near[:, 0] = True
    return near
