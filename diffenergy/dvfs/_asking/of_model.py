"""From a checked request and what is asked of its clocks to a schedule."""

import numpy as np

from ...compiling import compiler_options
from ...estimator import Task, _programs
from ...estimator._jax_setup import cache_folder
from ...hardware import GpuCard
from ...hardware._clocks import mem_clocks, sm_clock_words, sm_clocks, unsupported
from ...workload import kernel_name
from .._problem.modelled import Modelled, clock_pairs, modelled
from .._problem.plan import Objective
from .._problem.totals import default_total
from .._solving.schedule import Descent, baselines, schedule, schedule_frontier
from .._solving.solve import Rules
from . import summary as summaries
from .result import PlanResult


def of_model(
    task: Task,
    objective: Objective,
    rules: Rules,
    descent: Descent | None,
    power_curve: bool,
    notes: list[str],
) -> PlanResult:
    """Schedule of a workload on a GPU, at one power limit."""
    found = _modelled(task)
    problem, plan = schedule(found, objective, rules, descent)
    stages, limits = found.stage_problem(), found.uniform.limits
    coarse = summaries.compared(stages, baselines(stages, objective, rules))
    default = default_total(problem)
    coarse["power_limit"] = summaries.limited(limits, objective, default)
    edge = schedule_frontier(found, problem, rules)
    summary = {
        **task.about,
        "grade": task.trust.grade,
        **summaries.schedule_summary(problem, plan, coarse, edge, objective, rules),
        "time_s_p5_p95": _interval(task, "time", plan.time, plan.time),
        "energy_j_p5_p95": _interval(task, "energy", plan.energy, plan.time),
    }
    if power_curve:
        summary["power_curve"] = summaries.curve_rows(limits, task.about)
    return PlanResult(summary, problem, plan, objective, rules, [*task.notes, *notes])


def _modelled(task: Task) -> Modelled:
    """What every kernel costs at every pair of clocks."""
    taken, settings = task.about["assumed"], task.settings
    sm, mem = (
        None if f"{name}_mhz" in taken else sorted({getattr(s, name) for s in settings})
        for name in ("sm_clock", "mem_clock")
    )
    _check_clocks(sm, mem, task.card)
    kernels = [kernel for listing in task.listings for kernel in listing.kernels]
    folder, options = cache_folder(), compiler_options(once=True)
    return modelled(
        task.listings,
        [kernel_name(kernel) for kernel in kernels],
        task.card,
        task.corrections.serve(task.card),
        settings[0].power_limit,
        clock_pairs(task.card, sm, mem),
        settings[0].temperature,
        lambda function, arguments: _programs.run(function, arguments, folder, options),
    )


def _check_clocks(
    sm: list[float] | None, mem: list[float] | None, card: GpuCard
) -> None:
    """Raises `ValueError` at the first clock that the GPU cannot be locked to."""
    locked = mem_clocks(card)
    words = " or ".join(f"{clock / 1e6:g}" for clock in locked) + " MHz"
    for name, asked, known, allowed in (
        ("sm_clock", sm, sm_clocks(card), sm_clock_words(card)),
        ("mem_clock", mem, locked, words),
    ):
        wrong = unsupported(np.array(asked or []), known)
        if len(wrong):
            raise ValueError(
                f"`{name}` is {wrong[0] / 1e6:g} MHz, to which {card.name} cannot be "
                f"locked; allowed are {allowed}."
            )


def _interval(task: Task, word: str, value: float, time: float) -> list[float]:
    return [float(x) for x in task.trust.interval(word, value, time)]
