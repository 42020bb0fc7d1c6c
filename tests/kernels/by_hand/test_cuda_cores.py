"""Matrix products on CUDA cores: of libraries, and in hand-made tiles."""

import pytest

from diffenergy.kernels.gemm import clblast, simt

from .demands import A100, A100_SMS, check, demand_of, shape_of


@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("drift", [0.0, 1e9])
def test_a_product_on_cuda_cores(sample, phases, split: int, drift: float):
    """1000^3 fp32, 8 x 8 tiles of 128 x 128; 256 threads of 8 x 8, two stages of 8."""
    row = sample(
        "gemm", m=1000, n=1000, k=1000, dtype="fp32", tile_m=128, tile_n=128,
        split_k=split, threads=256,
    )  # fmt: skip
    shape = shape_of(phases, simt.SimtGemm, row)
    c = dict(
        simt_loop=10.0, simt_path=1.1, simt_start=2.0, simt_drift=drift,
        split_cycles=2000.0, simt_smem=2.0, simt_issue=0.8, zero_saving=0.0,
    )  # fmt: skip
    depth = {1: 1000, 4: 256}[split]  # of a CTA, in whole steps
    ctas = 64 * split
    # a wave: all CTAs, at most two an SM (120 registers); rows of A + columns of B
    wave = min(2 * A100_SMS, ctas)
    unique = (128 * 8 + 128 * wave / 8) / (wave * 256)
    once, repeated = 2 * 1000**2 * 4, ctas * 256 * 1000 / split * 4
    pressure = once / (once + float(A100.l2_capacity))
    lost = repeated - max(repeated * unique, once) if drift else 0
    again = max(repeated * unique - once, 0) + 2 * lost  # both operands along k
    out = 4 * 1000**2 + 8 * (split - 1) * 1000**2
    check(
        demand_of(simt, shape, A100, **c),
        ctas=ctas,
        resident=2,
        fma=ctas * 2 * 128**2 * depth,
        math_issue=ctas * 128**2 * depth,
        # 8 warps: 8 fragment reads of two a step of k, loop; copies of 16 B
        issue=ctas * 32 * (8 * 4 * depth + 8 * 10 * depth / 8 + 256 * depth / 16),
        issue_efficiency=0.8,
        smem=ctas * 128 * depth * (8 * 8 + 256 / 32),
        smem_efficiency=0.5,
        l2=repeated,
        dram=once + pressure * again,
        store_l2=out,
        store_dram=out,
        fma_peak=128,
        path_cycles=1.1 * depth / 8 * (float(A100.smem_latency) + 8 * 64 * 2)
        + 2 * float(A100.l2_latency),
        fixed_cycles=2000 * (split > 1),
        launches=1 + (split > 1),
    )


def test_a_hand_made_tile(sample, phases):
    """1024^3 in tiles of 128 x 128 x 16 by 16 x 16 threads of 8 x 8, vectors of 4, both
    operands staged: 8 warps, nothing spilled."""
    row = sample(
        "clblast_gemm", m=1024, n=1024, k=1024, dtype="fp32", tile_m=128, tile_n=128,
        tile_k=16, mdimc=16, ndimc=16, mdima=16, ndimb=16, vwm=4, vwn=4,
        sa=1, sb=1,
    )  # fmt: skip
    shape = shape_of(phases, clblast.Xgemm, row)
    c = dict(
        tiled_smem=1.5, tiled_l1=0.5, tiled_broadcast=0.5, tiled_loop=3.0,
        tiled_staging_address=4.0, tiled_staging_store=2.0, tiled_staging_load=1.0,
        tiled_issue=0.8, tiled_clock=0.9, tiled_fma=0.7, tiled_l2=1.1,
        tiled_staging_latency=0.0, tiled_latency=2.0, tiled_dependence=0.5,
        tiled_sharpness=3.0, tiled_spill=1.0, tiled_address=1.0,
    )  # fmt: skip
    steps, ctas = 64, 64
    # a step: A is read in 8 lines a vector of 8 lanes, B's few addresses are broadcast
    served = 8 * 16 * 1.5 * (2 * 8 + 2 * max(1, 4 * 0.5))
    stored = 2 * 16 * 128 / 32 * 8 / 4 * (2 * 1.5 + 0.5)
    beside, staging = 8 * 16 * (2 + 2 + 3), (2 + 4) * 2 * 16 * 128 / 4 * 8 / 256
    math_, slots = 8 * 16 * 64, float(A100.issue_slots_per_cycle) * 0.8 / 32
    compute = sum(
        x**3
        for x in (
            2 * 128 * 128 * 16 / (128 * 0.7),
            (math_ + beside) / slots,
            served,
            0.5 * float(A100.fma_latency) * (math_ + beside) / 8,
        )
    ) ** (1 / 3)
    stage = 80 + stored + staging / slots
    exposed = 2 * 16 * float(A100.smem_latency)
    check(
        demand_of(clblast, shape, A100, **c),
        ctas=ctas,
        resident=2,  # 104 registers of 256 threads
        fma=2 * 1024**3,
        math_issue=1024**3,
        issue=ctas * steps * (beside + staging) * 32,
        issue_efficiency=0.8 * 0.9,
        smem=ctas * steps * (served + stored) * 128,
        smem_efficiency=0.9,
        fma_peak=128,
        fma_efficiency=0.7 * 0.9,
        l2=ctas * 1024 * 4 * 256,
        dram=4 * 1024**2 * 4,  # A, B, and C read and written
        l2_sharing=1.1 * 0.9,
        path_cycles=steps * (stage + compute + exposed) / 0.9,
        launches=1,
    )


def test_a_hand_made_tile_that_is_taller_than_the_product(sample, phases):
    """32 x 1024 in tiles of 128 x 128: 8 CTAs share the one padded tile of A and read a
    tile of B each, once."""
    row = sample(
        "clblast_gemm", m=32, n=1024, k=1024, dtype="fp32", tile_m=128, tile_n=128,
        tile_k=16, mdimc=16, ndimc=16, mdima=16, ndimb=16, vwm=4, vwn=4, sa=1, sb=1,
    )  # fmt: skip
    shape = shape_of(phases, clblast.Xgemm, row)
    check(
        demand_of(clblast, shape, A100),
        ctas=8,
        dram=(128 + 8 * 128) * 1024 * 4 + 8 * 32 * 1024,
    )
