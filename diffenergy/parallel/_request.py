"""Requests of many GPUs: `PlanRequest`, `StageClocksRequest`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from .. import reading
from ..estimator import MachineRequest, PointRequest
from ..hardware import GpuName
from ..nodes import WallRequest
from ..plans import Plan
from ..requests import (
    Argument,
    Clocks,
    Dtype,
    Excludes,
    Flag,
    Limits,
    Needs,
    Note,
    Text,
    Whole,
    Wholes,
)
from ..schema import MOST
from ..workload import Attend, Dispatch, ModelName, Stack

Granularity = Literal["instruction", "kind", "stage"]
_MODEL: Final = Argument("Bundled name, Hugging Face config.json or its folder.")
_GPU: Final = "GPU name or .toml file [h100-sxm]."


def _percent(flag: str, text: str) -> float:
    """A share, as a percentage from 0 on."""
    value = reading.number(flag, text.removesuffix("%"))
    if value < 0:
        raise ValueError(f"`{flag}` is {text}; allowed is 0 or more, in per cent.")
    return value / 100


def _straggler(flag: str, text: str) -> tuple[int, float]:
    """STAGE=PERCENT."""
    stage, equals, slower = (x.strip() for x in text.partition("="))
    if not equals or not stage.isdecimal():
        raise ValueError(f"`{flag}` is '{text}'; give STAGE=PERCENT, such as 3=20.")
    return int(stage), _percent(flag, slower)


def _above_0(unit: str, metavar: str, read: Any) -> Any:
    """The remarks of a number above 0, and how it is read."""
    words = f"allowed is a number above 0, in {unit}"
    return Meta(gt=0, le=MOST, description=words), Text(metavar, read, unit=unit)


_gigabytes: Final = functools.partial(reading.positive, unit="GB")
_Bytes = Annotated[float, *_above_0("bytes", "GB", _gigabytes)]
_Watts = Annotated[float, *_above_0("W", "W", reading.watt)]
_Ramp = Annotated[float, *_above_0("W/s", "W/S", reading.number)]
_Seconds = Annotated[float, *_above_0("s", "SECONDS", reading.seconds)]
_Share = Annotated[
    float,
    Meta(ge=0, le=10, description="allowed is a share from 0 to 10 (1000 %)"),
    Text("PERCENT", _percent),
]


class TrainedRequest(MachineRequest, PointRequest):
    """A model to train, and the operating point of its GPUs."""

    input_len: Annotated[Whole | None, "Tokens of a sequence [512]."] = None
    dtype: Annotated[Dtype | None, "Number format of linear layers [bf16]."] = None
    attention: Annotated[
        Attend | None, Flag("Attention kernels: flash or eager [flash].", "KIND")
    ] = None
    stack: Annotated[
        Stack | None,
        Flag(
            "Software: serving (fused kernels) or eager (Hugging Face modules) "
            "[serving].",
            "KIND",
        ),
    ] = None
    dispatch: Annotated[
        Dispatch | None, Flag("Launches: eager or graph [eager].", "KIND")
    ] = None
    routing: Annotated[
        str | None,
        Flag(
            "How tokens spread over experts: random, balanced, lognormal_X or "
            "power_law_X [random].",
            "KIND",
        ),
    ] = None
    lora: Annotated[
        int | None, Note("Refused: searches are for models that are trained whole.")
    ] = None
    frozen_layers: Annotated[int | None, Note("Refused, as `lora`.")] = None
    sm_clock: Annotated[
        Clocks | None,
        "SM clock [the highest]; with --stage-clocks the clocks to choose from [all "
        "from 40 % of the highest on].",
    ] = None
    mem_clock: Annotated[Clocks | None, Flag("Memory clock.", "MHZ")] = None
    power_limit: Annotated[
        Limits | None, Flag("Power limit of each GPU [TDP].", "W")
    ] = None


class SearchRequest(TrainedRequest, WallRequest):
    """Options of a search for the best plan."""

    plan: Annotated[
        str | Mapping[str, Any] | Plan | None,
        Flag(
            "Plan as in `estimate`; a search keeps these keys fixed [none].",
            "KEY=N[,...]",
        ),
    ] = None
    num_gpus: Annotated[
        Wholes | None, "Number of GPUs; of several numbers the best is taken."
    ] = None
    objective: Annotated[
        Literal["time", "energy"] | None,
        "Quantity to minimize: time or energy of a step, with --node at the wall "
        "[time].",
    ] = None
    max_memory: Annotated[_Bytes | None, "Maximum memory of a GPU [its capacity]."] = (
        None
    )
    max_power: Annotated[
        _Watts | None,
        "Maximum power of all GPUs; the SM clock is lowered where needed.",
    ] = None
    max_swing: Annotated[
        _Watts | None,
        "Maximum power less minimum power of all GPUs within a step, with --node at "
        "the wall.",
    ] = None
    max_ramp: Annotated[
        _Ramp | None,
        "Maximum change of that power per second, of means of 1 s.",
    ] = None
    sensitivity: Annotated[
        Sequence[str],
        Flag(
            "Derivatives of the best step by network, sm_clock, power_limit or fields "
            "of the GPU such as link_bandwidth.",
            "FIELD[,...]",
            reading.names,
        ),
    ] = ()


_CLOCKS: Final = Needs("stage_clocks")


class ClocksRequest(TrainedRequest):
    """Options of clocks for pipeline stages."""

    tp: Annotated[
        Whole | None,
        "Short for --plan tp=N.",
        Needs("stage_clocks", "a search holds it as `--plan tp=N`"),
    ] = None

    granularity: Annotated[
        Granularity | None,
        "What has a clock of its own: each instruction (micro-batch forward or "
        "backward), kind (all forward, all backward of a stage) or stage "
        "[instruction].",
        _CLOCKS,
    ] = None
    max_slowdown: Annotated[
        _Share | None,
        "Allowed increase of the step time [0; with --node-power as needed].",
        _CLOCKS,
    ] = None
    node_power: Annotated[
        _Watts | None,
        "Mean power limit of the GPUs of a host over a step.",
        Excludes(("deadline",), "give one of them"),
        _CLOCKS,
    ] = None
    straggler: Annotated[
        tuple[int, float] | None,
        Flag(
            "Stage (from 0) of one replica whose GPUs take longer.",
            "STAGE=PERCENT",
            _straggler,
        ),
        _CLOCKS,
    ] = None
    deadline: Annotated[
        _Seconds | None, "Step time that something slower imposes.", _CLOCKS
    ] = None
    interval: Annotated[
        bool,
        "Give the 5 to 95 % interval of the saving, too (solves several times).",
        _CLOCKS,
    ] = False


class PlanRequest(SearchRequest):
    """The best plan with which GPUs train a model."""

    model: Annotated[ModelName, _MODEL] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, _GPU] = dataclasses.field(
        default=None, kw_only=False
    )
    progress: Annotated[
        Callable[[int, int, str], None],
        Note("Called with the plans ranked, their number, and what is next."),
    ] = lambda *_: None


class StageClocksRequest(ClocksRequest):
    """Clocks for the stages of a pipeline."""

    model: Annotated[ModelName, _MODEL] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, _GPU] = dataclasses.field(
        default=None, kw_only=False
    )
    plan: Annotated[str | Mapping[str, Any] | Plan | None, "The plan."] = (
        dataclasses.field(default=None, kw_only=False)
    )
    num_gpus: Annotated[Whole | None, "GPUs in all; `dp` follows."] = None
