"""Requests of servers: `ServerRequest`, `ServeRequest`, `TraceRequest`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from .. import reading
from ..estimator import PointRequest
from ..hardware import GpuName
from ..nodes import WallRequest
from ..power_time import PowerRequest
from ..requests import Argument, Dtype, Flag, Note, Request, Text, Whole
from ..workload import ModelName, SpeculationRequest
from ._load import Load

EngineName = Literal["vllm", "sglang", "trtllm", "vllm-v0"]
Sampling = Literal["greedy", "random", "top-p", "penalties"]
Schedule = Literal["chunked", "prefill-first"]
_Share = Annotated[
    float,
    Meta(gt=0, le=1, description="allowed is a share above 0 up to 1"),
    Text("SHARE", reading.positive),
]
_Chunk = Annotated[
    int,
    Meta(ge=16, description="allowed is a whole number of at least 16"),
    Text("TOKENS", reading.whole),
]


def _constants(flag: str, texts: list[str]) -> dict[str, float]:
    """`NAME=VALUE` of constants of an engine, each once."""
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise ValueError(
                f"`{flag}` is '{text}'; give NAME=VALUE, such as untuned=0.4e-6."
            )
        if name in values:
            raise ValueError(f"`{flag} {name}` is given twice; give it once.")
        values[name] = reading.number(f"{flag} {name}", value)
    return values


ENGINE: Final = Flag(
    "Serving engine: vllm, sglang, trtllm or vllm-v0 (2024) [vllm].", "NAME"
)


class ServerRequest(SpeculationRequest, PointRequest, WallRequest):
    """How a model is served; None: as usual, what stands in brackets."""

    num_gpus: Annotated[
        Whole | None,
        Flag("Number of GPUs, a multiple of --tp [--tp].", stands_for=("tp",)),
    ] = None
    tp: Annotated[
        Whole | None,
        Flag("GPUs of a replica; N/T replicas share the load [all].", "T"),
    ] = None
    ep: Annotated[Whole | None, "GPUs of a replica that share its experts [1]."] = None
    attention_dp: Annotated[
        Whole | None,
        Flag(
            "Groups of the GPUs of a replica with attention and KV caches of their "
            "own, which share its experts [1].",
            "D",
        ),
    ] = None
    dtype: Annotated[
        Dtype | None, "Type of the linear layers, as in `estimate` [the checkpoint's]."
    ] = None
    kv_dtype: Annotated[
        Dtype | None, "Type of the KV cache [as the checkpoint, else 16 bit]."
    ] = None
    routing: Annotated[
        str | None,
        Flag(
            "How tokens spread over experts: lognormal_X, random, balanced or "
            "power_law_X [lognormal_0.8].",
            "KIND",
        ),
    ] = None
    engine: Annotated[EngineName | None, ENGINE] = None
    engine_changes: Annotated[
        Mapping[str, float] | None,
        Flag(
            "Replace a constant of the engine, in SI (untuned=0.4e-6); repeatable.",
            "NAME=VALUE",
            _constants,
            many=True,
            name="--set-engine",
        ),
    ] = None
    sampling: Annotated[
        Sampling | None,
        Flag(
            "Sampling: greedy, random, top-p (sorted logits) or penalties (also "
            "counted) [top-p for vllm, else random].",
            "KIND",
        ),
    ] = None
    schedule: Annotated[
        Schedule | None,
        Flag(
            "Order of prompts: chunked (beside decoding) or prefill-first "
            "[prefill-first for sglang, else chunked].",
            "KIND",
        ),
    ] = None
    chunk: Annotated[_Chunk | None, "Maximum tokens of a step [8192]."] = None
    memory_fraction: Annotated[
        _Share | None, "Share of the memory that the engine uses [0.9]."
    ] = None


_MODEL: Final = Argument("Bundled name, Hugging Face config.json or its folder.")
_GPU: Final = "GPU name or .toml file [h100-sxm]."


class DeployRequest(ServerRequest):
    """A server for a load."""

    model: Annotated[ModelName, _MODEL] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, _GPU] = dataclasses.field(
        default=None, kw_only=False
    )
    load: Annotated[
        Load | Mapping[str, Any] | None, Note("A `Load`, or its fields as a dict.")
    ] = dataclasses.field(default=None, kw_only=False)
    """A `Load`, or its fields as a dict [one request at a time]."""


class FiguresRequest(Request):
    """What is computed of a server in steady state."""

    optimize: Annotated[
        Literal["energy", "throughput"] | None,
        "Quantity to optimize by clock and batch limit: energy or throughput.",
    ] = None
    sensitivity: Annotated[
        Sequence[str],
        Flag(
            "Derivatives of the means by rate, concurrency, input_len, output_len, "
            "accept, prefix_hit, "
            "sm_clock, power_limit or fields of the GPU.",
            "FIELD[,...]",
            reading.names,
        ),
    ] = ()


class ServeRequest(FiguresRequest, DeployRequest):
    """A server in steady state."""


TRACE: Final = Flag(
    "Requests one by one, simulated: a table arrival_s, input_len, output_len, or a "
    "public trace of Azure (.csv) or Mooncake (.jsonl).",
    "FILE",
    files=lambda name: (name,),
)
SKIP: Final = Flag(
    "Leave out requests of --trace that exceed the model's positions; count them."
)


class TraceRequest(ServerRequest, PowerRequest):
    """A trace of requests through a server."""

    trace: Annotated[Any, TRACE] = dataclasses.field(kw_only=False)
    model: Annotated[ModelName, _MODEL] = dataclasses.field(kw_only=False)
    gpu: Annotated[GpuName | None, _GPU] = dataclasses.field(
        default=None, kw_only=False
    )
    load: Annotated[
        Load | Mapping[str, Any] | None, Note("A `Load`, or its fields as a dict.")
    ] = dataclasses.field(default=None, kw_only=False)
    """`max_batch`, `cached_len` and limits of latencies."""
    skip_too_long: Annotated[bool, SKIP] = False
