"""Schedules as rows for tables and as CSV in the form of Perseus."""

import csv
import io
from typing import Any

import numpy as np

from ...results import finite
from ...units import MHz
from .._problem.plan import Plan
from .._problem.problem import AUTO, Problem
from .launches import launch_costs


def schedule_rows(problem: Problem, plan: Plan) -> list[dict[str, Any]]:
    """One dict for every row of `plan`: what runs, at which clocks, at what cost.

    A clock left alone is None; time (s) and energy (J) are of one launch;
    `time_change_pct` and `energy_change_pct` are against the default clocks.
    """
    cost, k = launch_costs(problem, plan), plan.kernel
    slower = 100 * (cost.time / problem.default_time[k] - 1)
    dearer = 100 * (cost.energy / problem.default_energy[k] - 1)
    columns = {
        "stage": [problem.stages[s] for s in problem.stage[plan.kernel]],
        "kernel": [problem.kernels[k] for k in plan.kernel],
        "count": [int(x) if x == int(x) else float(x) for x in plan.count],
        "sm_clock_mhz": _mhz(problem.settings[plan.setting, 0]),
        "mem_clock_mhz": _mhz(problem.settings[plan.setting, 1]),
        "time_s": cost.time.tolist(),
        "energy_j": cost.energy.tolist(),
        "time_change_pct": slower.tolist(),
        "energy_change_pct": dearer.tolist(),
    }
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def schedule_csv(
    problem: Problem, plan: Plan, default_clock: tuple[float, float] = AUTO
) -> str:
    """`stage,instruction,frequency,time,energy` of every row of `plan` (MHz, s, J).

    `memory_frequency` and `count` are there if a memory clock is locked or a kernel is
    launched more than once: the columns that `read_table` reads. Clocks left alone are
    `default_clock` (Hz), as far as that is known, else `auto`.
    """
    clocks = np.where(
        (plan.setting == 0)[:, None], default_clock, problem.settings[plan.setting]
    )
    rows = schedule_rows(problem, plan)
    columns = {
        "stage": [row["stage"] for row in rows],
        "instruction": [row["kernel"] for row in rows],
        "frequency": _cells(clocks[:, 0]),
        "memory_frequency": _cells(clocks[:, 1]),
        "count": [row["count"] for row in rows],
        "time": [repr(row["time_s"]) for row in rows],
        "energy": [repr(row["energy_j"]) for row in rows],
    }
    if np.isnan([*problem.settings[:, 1], default_clock[1]]).all():
        del columns["memory_frequency"]
    if (problem.count == 1).all():
        del columns["count"]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _mhz(clocks: np.ndarray) -> list[float | None]:
    """Hz -> MHz, None for clocks left alone."""
    return [finite(float(clock) / MHz) for clock in clocks]


def _cells(clocks: np.ndarray) -> list[str]:
    return ["auto" if np.isnan(clock) else f"{clock / MHz:.9g}" for clock in clocks]
