"""Requests of several servers: `ListedRequest` (lists, crossed), `SearchRequest`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from ... import reading
from ...hardware import GpuNames
from ...requests import (
    Argument,
    Dtypes,
    Excludes,
    Flag,
    Needs,
    Note,
    Text,
    Whole,
    Wholes,
    each,
)
from ...schema import MOST
from ...workload import ModelName
from .._load import Load
from .._request import EngineName, FiguresRequest, ServerRequest

Objective = Literal["energy", "cost", "gpus"]
Apart = Literal["no", "auto", "only"]
_EngineNames = Annotated[
    Sequence[EngineName] | EngineName, Text("NAME[,...]", reading.names, take=each)
]


class ServersRequest(ServerRequest):
    """Servers that differ in GPUs, sharing, types and engines: one value or a list."""

    model: Annotated[
        ModelName, Argument("Bundled name, Hugging Face config.json or its folder.")
    ] = dataclasses.field(kw_only=False)
    gpu: Annotated[
        GpuNames | None,
        "GPU names or .toml files [h100-sxm; with --search h100-sxm, h200-sxm and "
        "b200-sxm]; with --search NAME@COUNT limits the number.",
    ] = dataclasses.field(default=None, kw_only=False)
    load: Annotated[
        Load | Mapping[str, Any] | None, Note("A `Load`, or its fields as a dict.")
    ] = dataclasses.field(default=None, kw_only=False)
    num_gpus: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Wholes | None,
        "Number of GPUs, a multiple of --tp, or a list [--tp]; with --search the "
        "maximum.",
    ] = None
    tp: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Wholes | None,
        Flag(
            "GPUs of a replica, or a list; N/T replicas share the load [all; with "
            "--search powers of two up to the host].",
            "T[,T...]",
        ),
    ] = None
    ep: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Wholes | None,
        "GPUs of a replica that share its experts, or a list [1; with --search 1 and "
        "--tp].",
    ] = None
    dtype: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Dtypes | None,
        "Type of the linear layers, as in `estimate`, or a list [the checkpoint's].",
    ] = None
    engine: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        _EngineNames | None,
        "Serving engine: vllm, sglang, trtllm, vllm-v0 (2024), or a list [vllm].",
    ] = None
    progress: Annotated[
        Callable[[int, int], None] | None,
        Note("Called with how many tables of how many are done."),
    ] = None


class ListedRequest(FiguresRequest, ServersRequest):
    """Servers in steady state whose lists are crossed."""


_SEARCH: Final = Needs("search", "it is of a search")
_Price = Annotated[
    float, Meta(ge=0, le=MOST, description="give a number of at least 0")
]
_Watts = Annotated[
    float,
    Meta(gt=0, le=MOST, description="allowed is a number above 0, in W"),
    Text("W", reading.watt, unit="W"),
]


APART: Final = Flag(
    "Read prompts on GPUs of their own, and decode on others. In a search at a --rate: "
    "auto (beside servers that do both) or only.",
    "[auto|only|no]",
    bare="only",
)


def _prices(flag: str, text: str) -> dict[str, float]:
    """NAME=PRICE[,...]."""
    prices = {}
    for word in reading.names(flag, text):
        name, equals, value = (x.strip() for x in word.partition("="))
        if not equals:
            raise ValueError(
                f"`{flag}` is '{word}'; give NAME=PRICE, such as h100-sxm=2.5."
            )
        prices[name] = reading.number(flag, value)
    return prices


class SearchRequest(ServersRequest):
    """The deployment that serves a load within limits of latency."""

    objective: Annotated[
        Objective,
        Note(
            "Quantity to minimize: energy (with a node: at the wall), cost (of GPUs, "
            "and of energy at `price`) or gpus (their number, then energy)."
        ),
    ] = "energy"
    gpu_price: Annotated[
        Mapping[str, _Price] | None,
        Flag(
            "Price of a GPU an hour, by name; energy costs --price beside it.",
            "NAME=PRICE[,...]",
            _prices,
        ),
        _SEARCH,
    ] = None
    power_budget: Annotated[
        _Watts | None,
        "Maximum mean power of all GPUs, with --node at the wall.",
        _SEARCH,
    ] = None
    apart: Annotated[Apart, APART] = "no"
    top: Annotated[Whole, "Number of deployments in the table.", _SEARCH] = 8


SEARCH: Final = Flag(
    "Find the deployment of least energy, cost or number of GPUs (gpus) within the "
    "limits of latency."
)
NOT_SEARCHED: Final = Excludes(
    ("optimize", "sensitivity", "trace", "waves", "prefill", "decode", "kv_link"),
    "a search chooses servers and pools for a steady load",
)
