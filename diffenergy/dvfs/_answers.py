"""From what is asked of the clocks of a workload, or of a table, to a schedule."""

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from jaxtyping import Float

from ..estimator import Task
from ..fitting import Readings, fit_table
from ..fitting import law_table as of_law
from ..hardware import GpuCard, lockable, unsupported
from ..results import Infeasible, finite
from ..workload import kernel_name
from ._advice import advice
from ._frontier import frontier
from ._modelled import Modelled, clock_pairs, modelled
from ._plan import Objective, Plan, Rules
from ._problem import Problem, default_total
from ._result import PlanResult, compared, curve_rows, limited, schedule_summary
from ._schedule import Descent, baselines, schedule, schedule_frontier
from ._smoothing import DRAWS, promise, smoothed
from ._solve import solve
from ._table import Table

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
    costs = _modelled(task)
    problem, plan = schedule(costs, objective, rules, descent)
    limits = costs.uniform.limits
    free = _free(lambda x: schedule(costs, objective, x)[1], plan, rules)
    limit = limited(limits, objective, default_total(problem))
    edge = schedule_frontier(costs, problem, rules)
    stages, interval = costs.stage_problem(), task.trust.interval
    summary = {
        **task.about,
        **task.trust.to_json(),
        "memory": task.memory,
        "warnings": task.warnings,
        **_summary(problem, plan, free, stages, limit, edge, objective, rules),
        "time_s_p5_p95": list(map(float, interval("time", plan.time, plan.time))),
        "energy_j_p5_p95": list(map(float, interval("energy", plan.energy, plan.time))),
    }
    if power_curve:
        summary["power_curve"] = curve_rows(limits, task.about)
    notes = [*task.warnings, *notes]
    return PlanResult(summary, problem, plan, objective, rules, notes)


def _summary(
    problem: Problem,
    plan: Plan,
    free: Plan | None,
    stages: Problem,
    limit: dict[str, Any] | None,
    edge: Float[np.ndarray, "point 2"],
    objective: Objective,
    rules: Rules,
) -> dict[str, Any]:
    """What is said of a schedule beside the best single setting and the best by stage
    (`stages`: at one setting each) and the best power `limit`."""
    plans, default = baselines(stages, objective, rules), default_total(problem)
    coarse = {**compared(stages, plans), "power_limit": limit}
    recommendation = advice(objective, rules, default, plan, plans, len(stages.stages))
    summary = schedule_summary(problem, plan, free, coarse, edge, objective, rules)
    return {**summary, "advice": recommendation}


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
    return modelled(
        task.listings,
        [kernel_name(kernel) for kernel in kernels],
        task.card,
        task.corrections.serve(task.card),
        settings[0].power_limit,
        clock_pairs(task.card, sm, mem),
        settings[0].temperature,
    )


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
) -> PlanResult:
    """Schedule of a measured table, taken as exact unless it is to be smoothed."""
    problem, promised = table.problem, {}
    if smooth:
        problem, promised = _smoothed(problem, objective, rules, card, progress)
    plan = solve(problem, objective, rules)
    free = _free(lambda x: solve(problem, objective, x), plan, rules)
    edge = frontier(problem, rules=rules).points(default_total(problem))
    # a table does not say what the limiter does
    summary = _summary(problem, plan, free, problem, None, edge, objective, rules)
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
