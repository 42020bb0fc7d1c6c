"""`DvfsRequest`: what a frequency schedule is asked for."""

import dataclasses
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from msgspec import Meta

from .. import reading
from ..estimator import MODEL_WORDS, PointRequest, SharingRequest
from ..hardware import GpuName
from ..nodes import WallRequest
from ..requests import (
    Argument,
    Clocks,
    Excludes,
    File,
    Flag,
    Limits,
    Needs,
    Note,
    Seed,
    Whole,
)
from ..workload import ModelName, ModelRequest
from ._switching import Switching

if TYPE_CHECKING:
    from ..estimator import Task
    from ._table import Table

Goal = Literal["energy", "edp", "ed2p", "time"]
Aggregation = Literal["global", "local"]
Granularity = Literal["kernel", "phase", "iteration"]
Solver = Literal["exact", "descent"]
Progress = Callable[..., Any]
"""`progress(word, steps)`: a context that gives a function of steps."""


def _percent(flag: str, text: str) -> float:
    """A percentage; infinite for `none`."""
    return math.inf if text == "none" else reading.number(flag, text, "%")


_Slowdown = Annotated[
    float,
    Meta(
        gt=-100,
        description="allowed are percentages above -100 (negative asks for a "
        "speed-up), or none (infinite)",
    ),
]


_DECIDED = (
    *(x.name for x in dataclasses.fields(ModelRequest)), "sm_clock", "mem_clock",
    "temperature", "changes", "corrections", "plan", "tp", "num_gpus",
    "global_batch", "topology",
)  # fmt: skip
"""Fields that a measured table decides."""
_DESCENT = Needs("solver", "leave it out", "descent")


class DvfsRequest(ModelRequest, SharingRequest, PointRequest, WallRequest):
    """Clocks for the kernels of a model, or of a measured table."""

    model: Annotated[
        Union[ModelName, "Task", None], Argument(f"{MODEL_WORDS}; not with --table.")
    ] = dataclasses.field(default=None, kw_only=False)
    gpu: Annotated[
        GpuName | None, "GPU name or .toml file [h100-sxm; of --table none]."
    ] = dataclasses.field(default=None, kw_only=False)
    table: Annotated[
        Union[File, os.PathLike[str], "Table", None],
        Flag(
            "Table of measured times and energies by clock, instead of MODEL.",
            "FILE.csv",
        ),
        Excludes(
            ("model", *_DECIDED, "workload"),
            "it decides that; leave one of them out",
        ),
    ] = None
    default_clock: Annotated[
        str | None,
        Flag("Default clocks of a table [auto].", "MHZ[,MHZ]"),
        Needs(
            "table",
            "the default of a model is what the GPU does when its clocks are left "
            "alone",
        ),
    ] = None
    smooth: Annotated[
        bool,
        "Plan on smoothed readings of a noisy table and state a 95 % bound of the "
        "slowdown; needs --gpu.",
        Needs("table", "a model has no noise to smooth"),
    ] = False
    objective: Annotated[
        Goal,
        "Quantity to minimize: energy (with --node at the wall), edp, ed2p or time",
    ] = "energy"
    max_slowdown: Annotated[
        _Slowdown | None,
        Flag(
            "Maximum slowdown against default clocks; negative: a speed-up; none: no "
            "limit [0 for energy, else none].",
            "PERCENT",
            _percent,
        ),
    ] = None
    granularity: Annotated[
        Granularity, "What has clocks of its own: kernel, phase or iteration"
    ] = "kernel"
    aggregation: Annotated[
        Aggregation, "What keeps the limit: global, the sum; local, every kernel"
    ] = "global"
    per_launch: Annotated[
        bool, "Allow launches of one kernel to have different clocks."
    ] = False
    switching: Annotated[Switching | None, Note("What a change of clocks costs.")] = (
        None
    )
    solver: Annotated[
        Solver,
        Flag("Solver: exact, or descent (gradients through the model)", "WHICH"),
        Excludes(("table",), "a table has its settings only, and no model"),
    ] = "exact"
    seed: Annotated[Seed | None, "Seed of the starts of the descent [0].", _DESCENT] = (
        None
    )
    starts: Annotated[
        Whole | None, "Number of starts of the descent [8].", _DESCENT
    ] = None
    power_curve: Annotated[
        bool,
        "Add a table of time and energy by power limit.",
        Excludes(
            ("table",),
            "a table does not say what a power limit does; give a model and a GPU",
        ),
    ] = False
    workload: Annotated[str | None, Flag("One workload of a listing file.", "NAME")] = (
        None
    )
    sm_clock: Annotated[Clocks | None, "SM clocks to choose from [all steps]."] = None
    mem_clock: Annotated[Clocks | None, "Memory clocks to choose from [all]."] = None
    power_limit: Annotated[
        Limits | None, Flag("Power limit of the GPU [TDP].", "W")
    ] = None
    require_fit: Annotated[
        bool, "Exit with 3 if the GPU's memory does not suffice."
    ] = False
    progress: Annotated[
        Progress | None,
        Note("`progress(word, steps)`: a context that gives a function of steps."),
    ] = None
