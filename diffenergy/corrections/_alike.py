"""Constants that are alike: what closes them, which rows move them, at which levels."""

from functools import partial
from typing import Final

from ._constant import FREE, constant

LIBRARY: Final = ("workload", "gemm", "conv2d")
STREAMING: Final = ("elementwise", "softmax", "layernorm", "rmsnorm", "gather")
"""Ops that pass over memory, by one formula."""
STREAMS: Final = ("workload", *STREAMING)
"""Rows whose streaming kernels are long; those beside attention are launches."""
GIVEN: Final = ("Xgemm", "SimtGemm")
OF_MMA: Final = (*FREE, "mma")
ATTENTION: Final = (*OF_MMA, "architecture:Ada")
"""Ada runs other attention libraries than the Ampere GPU."""

# fmt: off
activity = partial(constant,
    closes="activities of core-bound and memory-bound programs at 8 SM clocks",
    source="Activity", rows=("activity",), levels=())
simt = partial(constant,
    closes="fp32 GEMM of known tile and grid, from one tile to many waves",
    source="CUDA-core tiles", rows=("SimtGemm",), frees=("SimtGemm",))
tiled = partial(constant, closes="one fp32 GEMM in a few hundred tiles of a tuner",
    source="Hand-made tiles", rows=("Xgemm",), frees=("Xgemm",))
moe = partial(constant, closes="bf16 MoE layers with 16 to 1024 tokens per expert",
    source="MoE", rows=("moe",), frees=("moe",))
attention = partial(constant, source="Attention",
    rows=("context_attention", "generation_attention"), levels=ATTENTION)
prefill = partial(attention,
    closes="own head layouts of that attention kernel family, prefill",
    rows=("context_attention", "Prefill"), frees=("context_attention",))
decode = partial(attention,
    closes="own head layouts of that attention kernel family, decode",
    rows=("generation_attention",), frees=("generation_attention",))
library = partial(constant, source="GEMM", rows=LIBRARY)
choice = partial(library,
    closes="kernel names (tile, split) of the library's GEMM over many shapes",
    source="Choice")
dispatch = partial(constant, closes="small eager passes of two model families",
    source="Timeline", rows=("workload",), frees=("workload",))
energy = partial(constant, source="Power", power=True)
training = partial(constant, source="Training programs", rows=("plan",),
    frees=("plan",))
plan = partial(constant, source="Many GPUs", rows=("plan",), frees=("plan",),
    levels=FREE)
board = partial(energy, frees=("workload", "moe", "gemm"))
# fmt: on
