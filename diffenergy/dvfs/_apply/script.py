"""`apply_script`: a schedule as a Python program that sets the clocks of a GPU."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from ...units import MHz
from .._problem.plan import Granularity, Plan
from .._problem.problem import Problem, pair_text
from .launches import launches

_TEMPLATE: Final = Path(__file__).with_name("apply_clocks.py")
_PLACE: Final = "SCHEDULE: dict[str, Any] = {}\n"
"""Line of the template that the schedule takes."""


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
        clocks[name] = _mhz(problem.settings[used[0]])
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
                *_mhz(problem.settings[order.setting[i]]),
                problem.kernels[order.kernel[i]],
            ]
            for i in order.changes()
        ],
    }


def _mhz(pair: np.ndarray) -> list[int | None]:
    """Whole MHz, cut as drivers do; None for a clock left alone."""
    return [None if np.isnan(clock) else int(clock / MHz + 1e-6) for clock in pair]
