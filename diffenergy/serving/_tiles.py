"""Expert kernels in tiles that nobody tuned for their shape, or that are far too tall.

*Untuned.* vLLM's Triton kernel of 16-bit experts reads its tiles from a file for each
shape and GPU (`data/facts/expert_tiles.toml` lists shapes without one). Without a file,
a step of more tokens than experts on the GPU runs in tiles of 64 x 64 that load 32
values along the depth at a time, one of fewer in tiles that load 64
(`get_default_config` of its `fused_moe.py`): few bytes are in flight, and the latency
of each of these loads shows,

    time = untuned x layers x (hidden + inner)/depth

with `untuned` s a load, whatever the GPUs that share the experts; fp8 in blocks has one
size for any number of tokens. The law was found by this project in ML.ENERGY's rows of
Qwen3-235B-A22B, whose steps lengthen from 17 tokens on with 16 experts on a GPU and
from 33 on with 32.

*Padded.* Experts in block-scaled fp8 of the same model take vLLM 0.11 longer by the
same time at 8 and at 256 requests, at about the TDP: the time of 128 rows for
each expert on a GPU, rows or none,

    time = padded x layers x experts x 128 x 6 hidden inner/(peak rate of fp8)

Later releases (0.16 to 0.19, MiniMax-M2.5) show nothing of it, so that it is taken for
the listed shapes alone.
"""

from typing import Final, NamedTuple

from ..files import facts
from ..hardware import GpuCard
from ..workload import Kernel, LanguageModel
from ..workload.models import Request
from ._step.rows import Step, listing

_DEPTH: Final = 32
"""Values along the depth that an untuned tile of many tokens loads at a time."""
_FEW: Final = 0.5
"""Loads of an untuned tile of few tokens over those: it loads 64 values."""
_WIDE: Final = ("bf16", "fp16")
"""Types of experts that this kernel computes; narrower ones have others."""
_PADDED: Final = 128
"""Rows of every expert that block-scaled products pad to."""
_PRODUCTS: Final = 6.0
"""FLOP of a row over hidden x inner features: gate, up and down."""


class Tiles(NamedTuple):
    """Tiles of all layers. Loads of 32 values along the depth, one after the other, in
    steps of up to `rows` tokens (`few`) and of more (`many`; 0: tuned, or no experts);
    s of rows that are padded (`padded`), at the peak rate."""

    few: float
    many: float
    rows: float
    padded: float = 0.0


TUNED: Final = Tiles(0.0, 0.0, 0.0)


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
    padded = [x for x in experts if _is_listed(x, gpu, engine, "padded")]
    idle = sum(_flop(x) for x in padded) / _peak(gpu)
    bare = [x for x in experts if untuned or _is_listed(x, gpu, engine, "untuned")]
    if not bare:
        return TUNED._replace(padded=idle)
    depths = ((x["hidden_size"] + _width(x)) / _DEPTH * x["count"] for x in bare)
    many, wide = float(sum(depths)), _is_wide(bare[0])
    rows = float(_number(bare[0])) if wide else 0.0
    return Tiles(_FEW * many if wide else many, many, rows, idle)


def _is_listed(kernel: Kernel, gpu: GpuCard, engine: str, what: str) -> bool:
    """Whether an expert kernel is listed as one that the engine has no tuned tiles for
    (`untuned`; 16 bits), or whose rows it pads (`padded`; block-scaled fp8)."""
    shapes = facts("expert_tiles").get(engine, {}).get(what, {}).get(gpu.served_as, [])
    shape = [_number(kernel), _width(kernel), kernel["hidden_size"]]
    if what == "untuned":
        return _is_wide(kernel) and shape[:2] in shapes
    return kernel["dtype"] == "fp8_block" and shape in shapes


def _peak(gpu: GpuCard) -> float:
    """FLOP/s of fp8 at the highest clock."""
    x = gpu.values
    return x["tensor_flop_per_cycle_fp8"] * x["num_sms"] * x["sm_clock_max"]


def _flop(kernel: Kernel) -> float:
    """FLOP of the padded rows of a kernel in all layers."""
    rows = _PADDED * _number(kernel) * kernel["count"]
    return rows * _PRODUCTS * kernel["hidden_size"] * _width(kernel)


def _is_wide(kernel: Kernel) -> bool:
    return kernel.get("weight_dtype", kernel["dtype"]) in _WIDE


def _number(kernel: Kernel) -> int:
    return kernel["num_experts"] // kernel["moe_ep_size"]


def _width(kernel: Kernel) -> int:
    return kernel["inter_size"] // kernel["moe_tp_size"]
