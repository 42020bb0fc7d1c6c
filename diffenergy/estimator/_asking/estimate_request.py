"""`EstimateRequest`: the fields of an estimate by name."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from msgspec import Meta

from ... import reading
from ...hardware import GpuName, GpuNames, assignments
from ...nodes import WallRequest
from ...plans import Plan
from ...power_time import PowerRequest
from ...requests import (
    Argument,
    Celsius,
    Clocks,
    Dtypes,
    Excludes,
    File,
    Flag,
    Limits,
    Needs,
    Note,
    Request,
    Whole,
    Wholes,
)
from ...schema import MOST
from ...workload import ModelName, ModelRequest

if TYPE_CHECKING:
    from ...imports import ImportResult


Progress = Callable[[int, int], None]
"""Called with the number of combinations that are done, and of all."""


MODEL_WORDS: Final = (
    "Bundled name, Hugging Face config.json or its folder, .jsonl kernel listing, or a "
    "trace, graph or report that `import` reads"
)


class PointRequest(Request):
    """Operating point: clocks (Hz), power limits (W), temperature (C); corrections."""

    sm_clock: Annotated[
        Clocks | None, "SM clock, also with a unit (1.98GHz), or a list [the highest]."
    ] = None
    mem_clock: Annotated[Clocks | None, "Memory clock, or a list [the highest]."] = None
    power_limit: Annotated[Limits | None, "Power limit, or a list [TDP]."] = None
    temperature: Annotated[
        Celsius | None, "Temperature of the chip [computed from the power]."
    ] = None
    changes: Annotated[
        Mapping[str, float | str] | None,
        Flag(
            "Replace a field of the GPU, in SI or with a unit (dram_bandwidth="
            "3.35TB/s), also its process_node or memory; repeatable.",
            "FIELD=VALUE",
            assignments,
            many=True,
            name="--set",
        ),
    ] = None
    corrections: Annotated[
        File | None, Flag("Fitted constants [the shipped ones].", "FILE|none")
    ] = None


class MachineRequest(Request):
    """Global batch of a training plan, and the topology of its GPUs."""

    global_batch: Annotated[
        Whole | None,
        "Sequences per training step on all GPUs [one micro-batch per replica].",
    ] = None
    topology: Annotated[
        File | None,
        Flag(
            "Machine: dgx-a100, dgx-h100, dgx-b200 or gb200-nvl72, NAME-N for N of "
            "them, a topology of `collective`, or a .toml file [that of the GPU].",
            "NAME",
        ),
    ] = None


class SharingRequest(MachineRequest):
    """How many GPUs share a model; None where a flag was not given."""

    plan: Annotated[
        str | Mapping[str, Any] | Plan | None,
        Flag(
            "Parallel plan: sizes of tensor (tp), pipeline (pp), data (dp) and expert "
            "(ep) parallelism [all 1]; in training also cp, vp, etp, microbatch, zero, "
            "schedule, recompute, overlap, sums, software.",
            "KEY=N[,...]",
            stands_for=("tp", "ep", "cp", "etp"),
        ),
    ] = None
    tp: Annotated[Whole | None, "Tensor-parallel size; short for --plan tp=N."] = None
    num_gpus: Annotated[
        Whole | None,
        Flag(
            "Number of GPUs: alone as --tp N; with --plan it sets dp.",
            stands_for=("tp",),
        ),
    ] = None


_Positive = Annotated[
    float, Meta(gt=0, le=MOST, description="allowed is a number above 0")
]

_Share = Annotated[
    float, Meta(gt=0, le=1, description="allowed is a share above 0 up to 1")
]


class WorkRequest(ModelRequest, SharingRequest, PointRequest, WallRequest):
    """A model or listing, and the GPU that runs it."""

    model: Annotated[
        Union[ModelName, "ImportResult"],  # noqa: UP007
        Argument(f"{MODEL_WORDS}."),
    ] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, "GPU name or .toml file [h100-sxm]."] = (
        dataclasses.field(default=None, kw_only=False)
    )
    workload: Annotated[
        str | None, Flag("Workload of a listing file to run.", "NAME")
    ] = None
    every: Annotated[bool, Note("All workloads of a listing as one.")] = False
    split: Annotated[
        tuple[int, ...] | None, Note("Layers of each virtual stage of the plan.")
    ] = None
    require_fit: Annotated[
        bool, "Exit with status 3 if the model does not fit the memory."
    ] = False


class EstimateRequest(WorkRequest, PowerRequest):
    """A request for one estimate."""

    detail: Annotated[bool, "List every kernel."] = False
    sensitivity: Annotated[
        bool, "Show how each number of the GPU changes time and energy."
    ] = False
    events: Annotated[
        str | None,
        Flag(
            "TOML file of what interrupts the steps of a training: [[events]] with "
            "every_s, lasts_s, kind (pause or work) and share.",
            "FILE",
            files=lambda name: (name,),
        ),
    ] = None
    tokens: Annotated[
        _Positive | None,
        Flag(
            "Tokens of a whole training run (15e12); adds its time, energy and "
            "GPU-hours.",
            "N",
            reading.positive,
        ),
    ] = None
    goodput: Annotated[
        _Share | None,
        Flag(
            "Share of the run's time in which steps go on for good [1].",
            "SHARE",
            reading.number,
        ),
        Needs("tokens"),
        Excludes(("mtbf",), "it follows from that; give one of them"),
    ] = None
    mtbf: Annotated[
        _Positive | None,
        Flag(
            "GPU-hours between failures, from which goodput follows.",
            "HOURS",
            reading.positive,
        ),
        Needs("tokens"),
        Needs("restart"),
        Needs("checkpoint_time"),
    ] = None
    restart: Annotated[
        _Positive | None,
        Flag("Seconds from a failure to the next step.", "S", reading.positive),
        Needs("mtbf"),
    ] = None
    checkpoint_time: Annotated[
        _Positive | None,
        Flag("Seconds that a checkpoint stops the steps.", "S", reading.positive),
        Needs("mtbf"),
    ] = None
    checkpoint_every: Annotated[
        _Positive | None,
        Flag(
            "Seconds of steps between checkpoints [Young: the square root of twice "
            "the product of checkpoint time and time between failures].",
            "S",
            reading.positive,
        ),
        Needs("mtbf"),
    ] = None


class SweepRequest(EstimateRequest):
    """An estimate whose lists of values are crossed."""

    gpu: GpuNames | None = dataclasses.field(default=None, kw_only=False)  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    batch: Wholes | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    input_len: Wholes | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    output_len: Wholes | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    dtype: Dtypes | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    progress: Annotated[
        Progress | None, Note("Called with how many estimates of how many are done.")
    ] = None
