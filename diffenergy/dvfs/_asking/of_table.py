"""From a measured table and what is asked of its clocks to a schedule."""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...fitting._clock_law.clock_fit import fit_table
from ...fitting._clock_law.clock_law import table as of_law
from ...fitting._clock_law.clock_model import Readings
from ...hardware import GpuCard
from .._measured.smoothing import DRAWS, promise, smoothed
from .._measured.table import Table
from .._problem.plan import Objective, Plan
from .._problem.problem import Problem
from .._problem.totals import default_total
from .._solving.frontier import frontier
from .._solving.schedule import baselines
from .._solving.solve import Rules, solve
from . import summary as summaries
from .result import PlanResult

Progress = Callable[[str, int], AbstractContextManager[Callable[[int, float], None]]]
"""`progress(word, steps)`: a context whose value hears of the steps done."""


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
        problem, promised = _smoothed(
            problem, objective, rules, card, progress or _silent
        )
    plan = solve(problem, objective, rules)
    coarse = summaries.compared(problem, baselines(problem, objective, rules))
    coarse["power_limit"] = None  # a table does not say what the limiter does
    edge = frontier(problem, rules=rules).points(default_total(problem))
    found = summaries.schedule_summary(problem, plan, coarse, edge, objective, rules)
    about = {"table": table.path, "gpu": card.name if card else None}
    return PlanResult(
        about | promised | found,
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
    progress: Progress,
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
        Readings.of_table(times, energies),
        card.values["tdp"],
    )
    found = smoothed(problem, of_law(fit.law, problem.settings))

    def planner(other: Problem) -> Plan:
        return solve(other, objective, rules, exact=False)

    with progress("bootstrap", DRAWS) as tell:
        bound = promise(found, planner(found.problem), planner, tell=tell)
    return found.problem, {
        "time_change_pct_p95": None if math.isnan(bound) else bound,
        "noise_time_pct": 100 * found.time.noise,
        "noise_energy_pct": 100 * found.energy.noise,
    }


@contextlib.contextmanager
def _silent(word: str, steps: int) -> Iterator[Callable[[int, float], None]]:
    """A `Progress` that says nothing."""
    yield lambda done, cost: None
