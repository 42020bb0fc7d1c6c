"""Expert kernels in tiles that nobody tuned for their shape.

vLLM's Triton kernel of 16-bit experts reads its tiles from a file for each shape and
GPU (`data/facts/expert_tiles.toml` lists shapes without one). Without a file, a step of
more tokens than experts on the GPU runs in tiles of 64 x 64 that load 32 values along
the depth at a time (`get_default_config` of its `fused_moe.py`): few bytes are in
flight, and the latency of each of these loads shows,

    time = untuned x layers x (hidden + inner)/32

whatever the GPUs that share the experts. Of fewer tokens the tiles load 64 deep, and
nothing is seen of it; fp8 in blocks has one size for any number of tokens. The law was
found by this project in ML.ENERGY's rows of Qwen3-235B-A22B, whose steps lengthen from
17 tokens on with 16 experts on a GPU and from 33 on with 32.
"""

from typing import Final, NamedTuple

from ..files import facts
from ..hardware import GpuCard
from ..workload import Kernel, LanguageModel
from ..workload.models import Request
from ._step.rows import Step, listing

_DEPTH: Final = 32
"""Values along the depth that an untuned tile loads at a time."""
_WIDE: Final = ("bf16", "fp16")
"""Types of experts that this kernel computes; narrower ones have others."""


class Tiles(NamedTuple):
    """`loads` along the depth of untuned tiles, one after the other, of all layers (0:
    tuned, or no experts); in steps of more tokens than `rows`."""

    loads: float
    rows: float


TUNED: Final = Tiles(0.0, 0.0)


def expert_tiles(
    model: LanguageModel,
    request: Request,
    gpu: GpuCard,
    engine: str,
    untuned: bool = False,
) -> Tiles:
    """Tiles of a model's experts on one of its GPUs; `untuned`: whatever the list of
    shapes says."""
    if request.routing is None:
        return TUNED
    kernels, _ = listing(model, request, Step(1, 2))
    experts = [x for x in kernels.kernels if x["op"] == "moe"]
    bare = [x for x in experts if untuned or _is_listed(x, gpu, engine)]
    if not bare:
        return TUNED
    depths = ((x["hidden_size"] + _width(x)) / _DEPTH * x["count"] for x in bare)
    rows = _number(bare[0]) if _is_wide(bare[0]) else 0
    return Tiles(float(sum(depths)), float(rows))


def _is_listed(kernel: Kernel, gpu: GpuCard, engine: str) -> bool:
    """Whether the engine has no tuned tiles for an expert kernel."""
    shapes = facts("expert_tiles").get(engine, {}).get("untuned", {})
    shape = [_number(kernel), _width(kernel)]
    return _is_wide(kernel) and shape in shapes.get(gpu.served_as, [])


def _is_wide(kernel: Kernel) -> bool:
    return kernel.get("weight_dtype", kernel["dtype"]) in _WIDE


def _number(kernel: Kernel) -> int:
    return kernel["num_experts"] // kernel["moe_ep_size"]


def _width(kernel: Kernel) -> int:
    return kernel["inter_size"] // kernel["moe_tp_size"]
