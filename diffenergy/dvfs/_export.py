"""A schedule unrolled (which kernel runs when and at which clocks), as rows for tables,
as CSV in the form of Perseus, and as a program that sets the clocks of a GPU."""

import csv
import io
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..physics import stage_time
from ..results import finite
from ..units import MHz
from ._plan import Granularity, Plan
from ._problem import AUTO, Problem, Spent, pair_text

_TEMPLATE: Final = Path(__file__).with_name("_apply_clocks.py")
_PLACE: Final = "SCHEDULE: dict[str, Any] = {}\n"
"""Line of the template that the schedule takes."""


class Launches(NamedTuple):
    """The launches of one iteration in order.

    A kernel that the launch order names less often than it is launched repeats itself.
    """

    kernel: Int[np.ndarray, " launch"]
    setting: Int[np.ndarray, " launch"]
    start: Float[np.ndarray, " launch"]  # s after the iteration begins
    time: Float[np.ndarray, " launch"]  # s until the next one

    def changes(self) -> Int[np.ndarray, " change"]:
        """The first launch, and those at another setting than the one before."""
        return np.flatnonzero(np.diff(self.setting, prepend=-1))


def launch_costs(problem: Problem, plan: Plan) -> Spent:
    """Time (s) and energy (J) of one launch of every row of `plan`."""
    if plan.solver == "default":
        return Spent(
            problem.default_time[plan.kernel], problem.default_energy[plan.kernel]
        )
    return Spent(
        problem.time[plan.kernel, plan.setting],
        problem.energy[plan.kernel, plan.setting],
    )


def launches(problem: Problem, plan: Plan) -> Launches:
    """Every launch of one iteration of a `problem` by a `plan` of clocks.

    Time in which a stage waits for its host lies evenly over the stage, time in which
    clocks change evenly over the iteration: `plan.time` is the end of the last launch.
    """
    kernel = problem.sequence()
    row = _row_of_launch(problem, plan, kernel)
    repeats = problem.count / np.bincount(kernel, minlength=len(problem.kernels))
    busy = launch_costs(problem, plan).time[row] * repeats[kernel]
    stage = problem.stage[kernel]
    gpu = np.bincount(stage, busy, len(problem.stages))
    time = busy * (stage_time(gpu, problem.host_time) / gpu)[stage]
    time = time * (plan.time / time.sum())
    return Launches(kernel, plan.setting[row], np.cumsum(time) - time, time)


def _row_of_launch(
    problem: Problem, plan: Plan, kernel: Int[np.ndarray, " launch"]
) -> Int[np.ndarray, " launch"]:
    """Row of `plan` that every launch belongs to.

    If the rows are the kernels of all loop bodies in order, each turn repeats them;
    else the launches of a kernel take its rows one after the other.
    """
    bodies = np.concatenate([loop.kernels for loop in problem.loops])
    widths = [len(loop.kernels) for loop in problem.loops]
    turns = np.repeat(np.array(problem.turns, float), widths)
    if np.array_equal(bodies, plan.kernel):
        repeats = problem.count / np.bincount(kernel, minlength=len(problem.count))
        if np.allclose(turns * repeats[bodies], plan.count):
            parts = np.split(np.arange(len(bodies)), np.cumsum(widths)[:-1])
            return problem.in_order(parts)
    row = np.empty(len(kernel), dtype=np.int64)
    for number in range(len(problem.kernels)):
        mine, rows = (np.flatnonzero(x == number) for x in (kernel, plan.kernel))
        ends = np.cumsum(plan.count[rows]) / plan.count[rows].sum()
        middles = (np.arange(len(mine)) + 0.5) / len(mine)
        row[mine] = rows[np.searchsorted(ends, middles)]
    return row


# --- rows and CSV


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


# --- a program


def apply_script(
    problem: Problem,
    plan: Plan,
    granularity: Granularity = "kernel",
    latency: float = 0.0,
    title: str = "",
) -> str:
    """Text of a program that applies `plan`; it needs no diffenergy.

    It uses nvidia-smi for phases and iterations, NVML for kernels, and resets the
    clocks on any exit; `apply_clocks.py`, from which it is made, says how to call it.
    Nothing is applied here.

    **Arguments:**

    - `latency`: s by which requests for kernels are sent ahead.
    - `title`: what the schedule is for, in its help.

    Raises `ValueError` if the plan changes clocks within what `granularity` names.
    """
    schedule: dict[str, Any] = {
        "title": " ".join(title.split()) or "frequency schedule",
        "granularity": granularity,
    }
    if granularity == "kernel":
        schedule |= _timeline(problem, plan, latency)
    else:
        schedule["stages"] = _stages(problem, plan, granularity)
    entries = "".join(
        f"    {key!r}: {_literal(value)},\n" for key, value in schedule.items()
    )
    text = _TEMPLATE.read_text(encoding="utf-8")
    written = f"SCHEDULE: dict[str, Any] = {{\n{entries}}}\n"
    return text.replace(_PLACE, written, 1)


def _literal(value: Any) -> str:
    """Python text of a value in a dict, with one entry a line."""
    if isinstance(value, list):
        return "[\n" + "".join(f"        {entry!r},\n" for entry in value) + "    ]"
    if isinstance(value, dict):
        entries = (f"        {key!r}: {entry!r},\n" for key, entry in value.items())
        return "{\n" + "".join(entries) + "    }"
    return repr(value)


def _stages(
    problem: Problem, plan: Plan, granularity: Granularity
) -> dict[str, list[int | None]]:
    """Clocks (MHz) of every stage, or of the iteration."""
    stage = problem.stage[plan.kernel]
    names = problem.stages if granularity == "phase" else ("iteration",)
    owner = stage if granularity == "phase" else np.zeros_like(stage)
    clocks: dict[str, list[int | None]] = {}
    for number, name in enumerate(names):
        used = np.unique(plan.setting[owner == number])
        if len(used) > 1:
            pairs = " and ".join(pair_text(problem.settings[i]) for i in used[:2])
            raise ValueError(
                f"the schedule changes clocks within `{name}` ({pairs} MHz), which a "
                f"script for granularity '{granularity}' cannot do; plan with that "
                f"granularity or write a script for kernels."
            )
        clocks[name] = _whole_mhz(problem.settings[used[0]])
    return clocks


def _timeline(problem: Problem, plan: Plan, latency: float) -> dict[str, Any]:
    """Changes of clocks with their planned times (s), for one iteration."""
    order = launches(problem, plan)
    return {
        "latency_s": float(latency),
        "duration_s": float(plan.time),
        "changes": [
            [
                round(float(order.start[i]), 9),
                *_whole_mhz(problem.settings[order.setting[i]]),
                problem.kernels[order.kernel[i]],
            ]
            for i in order.changes()
        ],
    }


def _whole_mhz(pair: np.ndarray) -> list[int | None]:
    """Clock in whole MHz, truncated as drivers do; None for a default clock."""
    return [None if np.isnan(clock) else int(clock / MHz + 1e-6) for clock in pair]
