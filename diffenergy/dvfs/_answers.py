"""From what is asked of the clocks of a workload, or of a table, to a schedule."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..estimator import Task
from ..fitting import Readings, fit_table
from ..fitting import law_table as of_law
from ..hardware import GpuCard, lockable, unsupported
from ..nodes import Site
from ..results import Infeasible, finite
from ..workload import kernel_name
from ._advice import advice
from ._frontier import frontier
from ._meter import Boards, Meter, at_wall, tangent, wall_energy, wall_figures
from ._modelled import Modelled, clock_pairs, modelled
from ._plan import Objective, Plan, Rules
from ._problem import Problem, Total, default_total
from ._result import (
    PlanResult,
    change_pct,
    compared,
    curve_rows,
    limited,
    schedule_summary,
)
from ._schedule import Descent, Limiter, baselines, schedule, schedule_frontier
from ._shared import Shared, check_task, slow_exchanges
from ._smoothing import DRAWS, promise, smoothed
from ._solve import solve
from ._table import Table

_TANGENTS: Final = 2
"""Most tangents beyond the first."""
_TANGENT: Final = 3e-4
"""Share by which the tangent may be below the energy at the wall."""
Progress = Callable[[str, int], AbstractContextManager[Callable[[int, float], None]]]
"""`progress(word, steps)`: a context whose value hears of the steps done."""


def of_model(
    task: Task,
    objective: Objective,
    rules: Rules,
    descent: Descent | None,
    power_curve: bool,
    notes: list[str],
) -> PlanResult:
    """Schedule of a workload on a GPU, at one power limit."""
    check_task(task, rules, descent is None)
    costs = _modelled(task)
    gpus = 1 if costs.shared is None else costs.shared.gpus
    site = None if task.site is None else Boards(task.site, gpus)
    rules = _of_all(rules, gpus)
    start = default_total(costs.stage_problem())

    def metered(meter: Meter) -> "_Answered":
        at, inner = dataclasses.replace(costs, meter=meter), meter.rules(rules)
        limiter = _limiter(costs.shared, meter)
        problem, plan = limiter(lambda x: schedule(at, x, inner, descent), objective)
        free = _free(
            lambda x: limiter(lambda y: schedule(at, y, x), objective)[1], plan, inner
        )
        edge = schedule_frontier(at, problem, inner)
        stages = at.stage_problem()
        return _Answered(meter, problem, plan, free, stages, edge, limiter)

    answer = _at_the_mean_power(metered, site, start)
    limits, interval = costs.limits, task.trust.interval
    problem, plan = answer.board
    limit = limited(limits, at_wall(site, limits), objective, default_total(problem))
    time, energy = plan.time, plan.energy
    summary = {
        **task.about,
        **task.trust.to_json(),
        "memory": task.memory,
        "warnings": task.warnings,
        **_summary(answer, limit, objective, rules, site),
        "time_s_p5_p95": list(map(float, interval("time", time, time))),
        "energy_j_p5_p95": list(map(float, interval("energy", energy, time))),
    }
    if site is not None:
        power = list(map(float, interval("power", energy / time, time)))
        about = {**summary, "avg_power_w_p5_p95": power}
        summary |= wall_figures(site, problem, plan, about)
    if power_curve:
        summary["power_curve"] = curve_rows(limits, task.about)
    if costs.shared is not None:
        notes += slow_exchanges(problem, plan, task.card.values["sm_clock_max"])
    notes = [*task.warnings, *notes]
    return PlanResult(summary, problem, plan, objective, rules, notes)


def _of_all(rules: Rules, gpus: int) -> Rules:
    """Rules whose changes of clocks take the energy of all GPUs."""
    changes = rules.switching
    if changes is None or gpus == 1:
        return rules
    changes = changes._replace(energy=gpus * changes.energy)
    return dataclasses.replace(rules, switching=changes)


def _limiter(shared: Shared | None, meter: Meter) -> Limiter:
    """What solves a problem so that its exact time keeps the limit."""
    if shared is None:
        return lambda solver, objective: solver(objective)
    wait = float(meter.power(shared.gpus * shared.static))
    return lambda solver, objective: shared.keep_limit(solver, objective, wait)


class _Answered(NamedTuple):
    """A schedule in what its meter counts, with what it is compared to: the schedule if
    changes of clocks were free, stages at one setting each, and changes (%) of time and
    energy of several plans."""

    meter: Meter
    problem: Problem
    plan: Plan
    free: Plan | None
    stages: Problem
    edge: Float[np.ndarray, "point 2"]
    limiter: Limiter

    @property
    def board(self) -> tuple[Problem, Plan]:
        """Problem and plan in energies of the board."""
        boards = ~self.meter
        return boards.problem(self.problem), boards.plan(self.plan)

    @property
    def default(self) -> Total:
        """The iteration at default clocks, as it counts."""
        return default_total(self.problem)


def _at_the_mean_power(
    metered: Callable[[Meter], _Answered], site: Boards | None, start: Total
) -> _Answered:
    """The answer of the tangent at its own mean power, as far as that matters: first
    that of `start`, default clocks."""
    answer = metered(tangent(site, start))
    if site is None:
        return answer
    for _ in range(_TANGENTS):
        board = answer.board[1]
        exact = board.time * site.power(board.energy / board.time)
        if exact <= answer.plan.energy * (1 + _TANGENT):
            break
        answer = metered(tangent(site, board.total))
    return answer


def _summary(
    answer: _Answered,
    limit: dict[str, Any] | None,
    objective: Objective,
    rules: Rules,
    site: Boards | None,
) -> dict[str, Any]:
    """What is said of a schedule beside the best single setting and the best by stage
    (`stages`: at one setting each) and the best power `limit`."""
    meter, stages = answer.meter, answer.stages
    boards, inner = ~meter, meter.rules(rules)
    counted = meter.objective(objective)
    plans = baselines(stages, counted, inner, answer.limiter)
    recommendation = advice(
        objective, rules, answer.default, answer.plan, plans, len(stages.stages)
    )
    (problem, plan), free = answer.board, answer.free
    stage_costs = boards.problem(stages)
    plans = {x: y and boards.plan(y) for x, y in plans.items()}
    coarse = compared(stage_costs, plans)
    edge = answer.edge
    if site is not None:
        plan = _exactly(site, problem, plan, objective)
        edge = _of_boards(boards, edge, default_total(stages))
    summary = schedule_summary(
        problem,
        plan,
        free and boards.plan(free),
        {**coarse, "power_limit": limit},
        edge,
        objective,
        rules,
    )
    if site is not None:
        default = wall_energy(site, problem, None)
        summary["default"]["wall_energy_j"] = default
        summary["wall_frontier"] = answer.edge.tolist()
        below = answer.plan.bound_energy
        summary["bound_wall_energy_change_pct"] = change_pct(below, default)
        entries = [(summary, problem, plan)]
        for name, x in plans.items():
            if x is not None and (entry := coarse[name]) is not None:
                entries.append((entry, stage_costs, x))
        for entry, of, x in entries:
            wall = wall_energy(site, of, x)
            change = change_pct(wall, default)
            entry |= {"wall_energy_j": wall, "wall_energy_change_pct": change}
        if free is not None:
            own = boards.plan(free)
            wall = own.time * site.power(own.energy / own.time)
            summary["free"]["wall_energy_j"] = float(wall)
        for entry in (limit, summary["free"]):
            if entry is not None:
                change = change_pct(entry["wall_energy_j"], default)
                entry["wall_energy_change_pct"] = change
    return {**summary, "advice": recommendation}


def _exactly(site: Boards, problem: Problem, plan: Plan, objective: Objective) -> Plan:
    """The plan with its value at the wall instead of at the tangent."""
    wall = Total(np.asarray(plan.time), np.asarray(wall_energy(site, problem, plan)))
    value = float(objective.value(wall))
    return dataclasses.replace(plan, value=value, bound=min(plan.bound, value))


def _of_boards(
    boards: Meter, edge: Float[np.ndarray, "point 2"], default: Total
) -> Float[np.ndarray, "point 2"]:
    """Changes (%) of time and energy of the board of points in what counts."""
    time, energy = (1 + edge.T / 100) * np.array([[default.time], [default.energy]])
    own = boards.energy(time, energy)
    base = float(boards.energy(default.time, default.energy))
    return np.stack([edge[:, 0], 100 * (own / base - 1)], axis=1)


def _free(solver: Callable[[Rules], Plan], plan: Plan, rules: Rules) -> Plan | None:
    """The schedule if changes of clocks were free; None if none keeps the limits at
    the temperatures that it leads to."""
    if rules.free:
        return plan
    try:
        return solver(dataclasses.replace(rules, switching=None))
    except Infeasible:
        return None


def _modelled(task: Task) -> Modelled:
    assumed, settings = task.about["assumed"], task.settings
    sm, mem = (
        None
        if f"{name}_mhz" in assumed
        else sorted({getattr(s, name) for s in settings})
        for name in ("sm_clock", "mem_clock")
    )
    _check_clocks(sm, mem, task.card)
    kernels = [kernel for listing in task.listings for kernel in listing.kernels]
    costs = modelled(
        task.listings,
        [kernel_name(kernel) for kernel in kernels],
        task.card,
        task.corrections.serve(task.card),
        settings[0].power_limit,
        clock_pairs(task.card, sm, mem),
        settings[0].temperature,
    )
    return costs if task.step is None else costs.of_step(task)


def _check_clocks(
    sm: list[float] | None, mem: list[float] | None, card: GpuCard
) -> None:
    requested = {"sm_clock": sm, "mem_clock": mem}
    for name, (allowed, words) in zip(requested, lockable(card), strict=True):
        wrong = unsupported(np.array(requested[name] or []), allowed)
        if len(wrong):
            raise ValueError(
                f"`{name}` is {wrong[0] / 1e6:g} MHz, to which {card.name} cannot be "
                f"locked; allowed are {words}."
            )


def of_table(
    table: Table,
    objective: Objective,
    rules: Rules,
    notes: list[str],
    card: GpuCard | None,
    smooth: bool,
    progress: Progress | None,
    site: Site | None = None,
    assumed: Mapping[str, Any] | None = None,
) -> PlanResult:
    """Schedule of a measured table, taken as exact unless it is to be smoothed."""
    problem, promised = table.problem, {}
    if smooth:
        problem, promised = _smoothed(problem, objective, rules, card, progress)

    def metered(meter: Meter) -> _Answered:
        costs, inner = meter.problem(problem), meter.rules(rules)
        counted = meter.objective(objective)
        plan = solve(costs, counted, inner)
        free = _free(lambda x: solve(costs, counted, x), plan, inner)
        edge = frontier(costs, rules=inner).points(default_total(costs))
        limiter = _limiter(None, meter)
        return _Answered(meter, costs, plan, free, costs, edge, limiter)

    boards = None if site is None else Boards(site)
    answer = _at_the_mean_power(metered, boards, default_total(problem))
    # a table does not say what the limiter does
    summary = _summary(answer, None, objective, rules, boards)
    problem, plan = answer.board
    if boards is not None:
        summary |= wall_figures(boards, problem, plan, summary) | {"assumed": assumed}
    about = {"table": table.path, "gpu": card.name if card else None}
    return PlanResult(
        about | promised | summary,
        problem,
        plan,
        objective,
        rules,
        [*table.notes, *notes],
        table.default_clock,
    )


def _smoothed(
    problem: Problem,
    objective: Objective,
    rules: Rules,
    card: GpuCard | None,
    progress: Progress | None,
) -> tuple[Problem, dict[str, Any]]:
    """The problem behind noisy readings, and what its best schedule keeps."""
    if card is None:
        raise ValueError(
            "`smooth` is given without a GPU; name it (or a .toml of it), whose law of "
            "clocks, voltage and power limit the readings follow."
        )
    times, energies = (
        np.where(problem.usable, x, np.nan) for x in (problem.time, problem.energy)
    )
    fit = fit_table(
        card.spec,
        card.spec.corrections,
        problem.settings,
        Readings(times, energies),
        card.values["tdp"],
    )
    table_smoothed = smoothed(problem, of_law(fit.law, problem.settings))

    def planner(other: Problem) -> Plan:
        return solve(other, objective, rules, exact=False)

    silent = contextlib.nullcontext(lambda done, cost: None)
    with progress("bootstrap", DRAWS) if progress else silent as tell:
        bound = promise(
            table_smoothed, planner(table_smoothed.problem), planner, tell=tell
        )
    return table_smoothed.problem, {
        "time_change_pct_p95": finite(bound),
        "noise_time_pct": 100 * table_smoothed.time.noise,
        "noise_energy_pct": 100 * table_smoothed.energy.noise,
    }
