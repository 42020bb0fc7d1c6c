"""Schedules as JSON, as rows for tables and as CSV in the form of Perseus."""

import csv
import io
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from ...units import MHz
from .._problem.plan import Plan
from .._problem.problem import AUTO, Problem, Total
from .._problem.totals import default_total
from .launches import default_change, launch_costs

SCHEDULE_KEYS: Final = (
    "kernel",
    "count",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "time_s",
    "energy_j",
)
"""Keys of an entry of `schedule` in the JSON."""


def schedule_rows(problem: Problem, plan: Plan) -> list[dict[str, Any]]:
    """One dict for every row of `plan`: what runs, at which clocks, at what cost.

    `SCHEDULE_KEYS`, where a clock left alone is None and time (s) and energy (J) are of
    one launch; `stage`; and `time_change_pct`, `energy_change_pct` against the default
    clocks.
    """
    cost, change = launch_costs(problem, plan), default_change(problem, plan)
    columns = {
        "stage": [problem.stages[s] for s in problem.stage[plan.kernel]],
        "kernel": [problem.kernels[k] for k in plan.kernel],
        "count": [int(x) if x == int(x) else float(x) for x in plan.count],
        "sm_clock_mhz": _mhz(problem.settings[plan.setting, 0]),
        "mem_clock_mhz": _mhz(problem.settings[plan.setting, 1]),
        "time_s": cost.time.tolist(),
        "energy_j": cost.energy.tolist(),
        "time_change_pct": change.time.tolist(),
        "energy_change_pct": change.energy.tolist(),
    }
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def outcome(total: Total, default: Total, **more: Any) -> dict[str, Any]:
    """Time and energy of an iteration and their change against `default`, as JSON.

    `more` are further keys, as those that say which clock or limit a baseline has.
    """
    return {
        "time_s": float(total.time),
        "energy_j": float(total.energy),
        "time_change_pct": change_pct(float(total.time), float(default.time)),
        "energy_change_pct": change_pct(float(total.energy), float(default.energy)),
        **more,
    }


def change_pct(value: float, default: float) -> float | None:
    """Change against `default` in per cent; None if either is not known.

    >>> change_pct(90.0, 100.0)
    -10.0
    """
    return _known(100 * (value - default) / default)


def schedule_json(
    problem: Problem,
    plan: Plan,
    baselines: Mapping[str, Mapping[str, Any] | None],
    frontier: Float[np.ndarray, "point 2"],
) -> dict[str, Any]:
    """What `dvfs --json` prints; None for what is not known.

    **Arguments:**

    - `baselines`: by name (`iteration`, `phase`, `power_limit`), each as `outcome`
      gives it; None where there is none.
    - `frontier`: change of time and energy of several plans, %.
    """
    default = default_total(problem)
    return {
        **outcome(plan.total, default),
        "bound_energy_change_pct": change_pct(plan.bound_energy, float(default.energy)),
        "gap_pct": _known(100 * plan.gap),
        "solver": plan.solver,
        "default": {"time_s": float(default.time), "energy_j": float(default.energy)},
        "baselines": {name: found and dict(found) for name, found in baselines.items()},
        "frontier": frontier.tolist(),
        "schedule": [
            {key: row[key] for key in SCHEDULE_KEYS}
            for row in schedule_rows(problem, plan)
        ],
    }


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
    return [_known(float(clock) / MHz) for clock in clocks]


def _cells(clocks: np.ndarray) -> list[str]:
    return ["auto" if np.isnan(clock) else f"{clock / MHz:.9g}" for clock in clocks]


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
