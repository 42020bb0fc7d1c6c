"""What rows of kernels cannot be; what each op requires: `by_hand/test_fields`."""

from pathlib import Path
from typing import Any

import pytest
from refusals import Refusal, row

from diffenergy.kernels.moe._routing import expert_counts
from diffenergy.physics import link_kind
from diffenergy.workload import Listing, assemble, normalise_kernel

from .by_hand.test_fields import ROWS, lowered
from .test_clblast import SIZE, TILE


def kernel(sentence: str, op: str, **changes: Any) -> Any:
    return row(sentence, normalise_kernel, {"op": op} | ROWS[op][0] | changes, "row")


def assemble_rows(*rows: dict[str, Any]):
    """Kernels of a workload, whose tiles are checked together."""
    kernels = [normalise_kernel({"op": "clblast_gemm", **x}, "row") for x in rows]
    assemble([Listing("phase", kernels=tuple(kernels), dispatch="graph")])


def tile(sentence: str, **changes: Any) -> Any:
    good = dict(m=SIZE, n=SIZE, k=SIZE, dtype="fp32") | TILE
    return row(sentence, assemble_rows, good, good | changes)


KERNELS = [
    *(kernel("`kernel_size` is 9", x, kernel_size=9) for x in ROWS if "conv" in x),
    kernel("`kind` is .. gated_delta", "scan", kind="mamba"),
    kernel("`groups` 3", "scan", groups=3),
    kernel("`shared_kv`", "attention_backward", shared_kv=True),
    kernel("`flop` and `bytes` are both 0", "custom", flop=0, bytes=0),
    kernel('`class` is "odd"', "traced", **{"class": "odd"}),
    kernel("`weight_dtype` is", "gemm", weight_dtype="int3"),
    kernel("`weight_group` is", "gemm", weight_group=-1),
    kernel("`dtype` is", "gemm", dtype="int4"),
    row("`collective` is 'gossip'; allowed are all_", link_kind, "gossip"),
    row("`distribution` is 'uniform'", expert_counts, 8, 8, 2, "uniform"),
    row("`moe_ep_size` is 4; it must divide `num_experts`", lowered,
        moe_ep_size=[3, 4]),
    row("`topk` is 7; at most `num_experts` = 6 are allowed", lowered, topk=[6, 7]),
    row("`distribution` is 'zipf'; allowed", lowered,
        distribution=["balanced", "zipf"]),
    row("`distribution` is 'power_law_'; allowed", lowered,
        distribution=["power_law_"]),
]  # fmt: skip
TILES = [
    kernel("`mdimc` is no field of the op 'gemm'; allowed is the op 'clblast_gemm'",
     "gemm", mdimc=16),
    tile("`tile_m` .. 96; a multiple of `mdimc` x `vwm`", tile_m=96),
    tile("`tile_n` .. 80; a multiple of `ndimc` x `vwn`", tile_n=80),
    tile("`tile_m` .. 64; a multiple of `mdima` x `vwm`", mdima=32),
    tile("`tile_n` .. 128; a multiple of `ndimb` x `vwn`", ndimb=12),
    tile("`mdima` .. 2; it must divide the threads", mdima=2),
    tile("`vwm` is 0", vwm=0),
    tile("`tile_n` .. 0; a hand-made tile needs it", tile_n=0),
    tile("`sa` .. 2; allowed are 0 and 1", sa=2),
    tile("`ndimc` .. at most 1024", mdimc=256, tile_m=1024),
    tile("`dtype` .. bf16; fp32 only", dtype="bf16"),
]  # fmt: skip


@pytest.mark.parametrize("refusal", KERNELS + TILES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
