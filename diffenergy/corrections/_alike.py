"""Constants that are alike: what closes them, which rows move them, at which levels.

No list says which kernel classes a constant acts on: their formulas do (`Constant`).
"""

from functools import partial
from typing import Final

from ._constant import ANY, FREE, constant

NO_PLANS: Final = ("workload", "kernel")
"""Passes and kernels; plans move their own constants, which act on top of these."""
STREAMS: Final = ("workload", "stream")
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
    source="CUDA-core tiles", tiles=("SimtGemm",), frees=("SimtGemm",))
tiled = partial(constant, closes="one fp32 GEMM in a few hundred tiles of a tuner",
    source="Hand-made tiles", tiles=("Xgemm",), frees=("Xgemm",))
moe = partial(constant, closes="bf16 MoE layers with 16 to 1024 tokens per expert",
    source="MoE", rows=NO_PLANS, frees=("moe",))
attention = partial(constant, source="Attention", rows=NO_PLANS, levels=ATTENTION)
prefill = partial(attention,
    closes="own head layouts of that attention kernel family, prefill",
    rows=ANY, frees=("context_attention",))
decode = partial(attention,
    closes="own head layouts of that attention kernel family, decode",
    frees=("generation_attention",))
library = partial(constant, source="GEMM", rows=NO_PLANS)
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
