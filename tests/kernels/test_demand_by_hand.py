"""`Demand` of each kernel class, field by field, against hand arithmetic.

Constants are round numbers, and L2 is made all too small (`COLD`) or all too large
(`WARM`), so that misses are 1 or 0 and every expected value is a product of the shape.
"""

import dataclasses
import math
from typing import Any

import jax
import pytest

from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import load_gpu
from diffenergy.kernels import attention, attention_backward, collective, gemm, moe
from diffenergy.kernels._shared import clblast as _clblast
from diffenergy.kernels._shared import simt, stream
from diffenergy.kernels._shared.attention_tiles import tiles_of
from diffenergy.physics._demand import Demand

H200, A100 = load_gpu("h200-sxm"), load_gpu("a100-pcie-40gb")
H200_SMS, A100_SMS = 132, 108
COLD = dict(l2_share=1e-6, l2_producer_share=1e-6, l2_sharpness=50.0)
WARM = dict(l2_share=1e6, l2_producer_share=1e6, l2_sharpness=50.0)
NO_WAVES = dict(wave_traffic=-100.0)
"""No traffic beyond reading each datum once."""
ONCE = estimator.compiler_options(once=True)
LOWERED = {
    module: jax.jit(module.demand, compiler_options=ONCE)
    for module in (
        _clblast,
        attention,
        attention_backward,
        collective,
        gemm,
        moe,
        simt,
        stream,
    )
}


def found(phases, kind: type, *rows: dict[str, Any]) -> Any:
    """The shape record of a class that rows of one phase lower to."""
    work = phases(list(rows))
    (group,) = [i for i, shape in enumerate(work.shapes) if type(shape) is kind]
    real = work.groups[group].count > 0
    return jax.tree.map(lambda x: x[real], work.shapes[group])


def demand_of(module: Any, shape: Any, gpu: Any, **constants: Any) -> Demand:
    return LOWERED[module](shape, gpu, Corrections(**constants))


def check(demand: Demand, row: int = 0, **expected: float) -> None:
    """Every given field of the first candidate."""
    got = {name: float(getattr(demand, name)[row, 0]) for name in expected}
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-20)


# matrix products ----------------------------------------------------------------

GEMM = dict(
    step_cycles=100.0, gemm_cycles=5000.0, gemm_eager=1.5, split_cycles=2000.0,
    operand_half_tile=16.0, tensor_efficiency=0.9, fp8_efficiency=0.8, sm_feed=60.0,
    in_flight=40.0, tile_load_scale=1.2, own_cycles=700.0, store_exposed=0.3,
    choice_split=0.2, choice_tau=0.04, zero_saving=0.4, energy_tensor=1e-12,
    energy_fp8=0.6, sharpness=5.0,
)  # fmt: skip


def test_a_product_on_tensor_cores(sample, phases):
    """2 x 1000^3, k in two parts: 8 x 8 tiles of 128 x 128, 8 steps of 64."""
    row = sample(
        "gemm", batch=2, m=1000, n=1000, k=1000, tile_m=128, tile_n=128, split_k=2,
        zero_share=0.25,
    )  # fmt: skip
    shape = found(phases, gemm.Gemm, row)
    flop = 256 * 2 * 128 * 128 * 64 * 8
    loads = 256 * 8 * (128 + 128) * 64 * 2
    check(
        demand_of(gemm, shape, H200, **GEMM),
        ctas=2 * 8 * 8 * 2,
        tensor=flop,
        fma=0,
        l2=loads,
        smem=flop * (1 / 64 + 1 / 128) + loads,  # 2 B / 2 FLOP a multiply-add
        store_l2=2 * 2 * 1000**2 + 8 * 2 * 2 * 1000**2,
        tensor_peak=4096,
        tensor_efficiency=0.9 * (128 / 160) ** 2,
        resident=1,  # 4 x 64 x 256 x 2 B + 1 KiB of 228 KiB
        path_cycles=8 * 100,
        fixed_cycles=5000 + 2000,
        own_cycles=700,
        launches=2,
        feed=60,
        flow=40,
        l2_sharing=1.2,
        store_exposed=0.3,
        sharpness=5,
        sharpness_memory=5,
        tensor_energy=1e-12 * (0.3 + 0.7 * (1000 / 1024) ** 2),
        activity=1 - 0.4 / 2,
        choice=-0.2 * math.log(2),
        tau=0.04,
    )
    eager = dataclasses.replace(shape, eager=[1.0])
    check(demand_of(gemm, eager, H200, **GEMM), fixed_cycles=1.5 * 5000 + 2000)


@pytest.mark.parametrize(
    ("dtype", "gpu", "half", "dtype_efficiency", "peak"),
    [
        ("bf16", H200, 32, 1.0, 4096),
        ("fp8", H200, 32, 0.8, 8192),  # twice the rate of half the bytes
        ("bf16", A100, 16, 1.0, 2048),
    ],
)
def test_operand_feed(sample, phases, dtype, gpu, half, dtype_efficiency, peak):
    row = sample("gemm", m=512, n=512, k=512, tile_m=96, tile_n=64, dtype=dtype)
    fed = 96 / (96 + half) * 64 / (64 + half)
    check(
        demand_of(gemm, found(phases, gemm.Gemm, row), gpu, **GEMM),
        tensor_efficiency=0.9 * dtype_efficiency * fed,
        tensor_peak=peak,
        tensor_energy=1e-12 * (0.6 if dtype == "fp8" else 1) * (0.3 + 0.7 * 512 / 576),
    )


def test_a_slow_product_whose_sizes_are_odd(sample, phases):
    row = sample("gemm", m=64, n=63, k=64, tile_m=64, tile_n=64)
    given = GEMM | dict(misalignment=0.5, operand_half_tile=0.0)
    check(
        demand_of(gemm, found(phases, gemm.Gemm, row), H200, **given),
        tensor_efficiency=0.9 / 1.5,
        feed=60 / 1.5,
    )


@pytest.mark.parametrize(
    ("batch", "m", "n", "k"), [(1, 512, 256, 1024), (12, 8, 64, 32)]
)
@pytest.mark.parametrize("weights", ["a", "b", "none"])
def test_dram_of_a_product(sample, phases, weights: str, batch, m, n, k):
    """Cold: both operands; in a warm L2 only weights that the pass has pushed out."""
    row = sample(
        "gemm", batch=batch, m=m, n=n, k=k, weights=weights, tile_m=64, tile_n=64
    )
    # with another kernel of the pass, over 10^20 B
    others = sample("elementwise", elements=1e20)
    shape = found(phases, gemm.Gemm, row, others)
    a, b, out = 2 * batch * m * k, 2 * batch * n * k, 2 * batch * m * n
    cold = demand_of(gemm, shape, A100, **COLD, **NO_WAVES)
    check(cold, dram=a + b, store_dram=out, store_l2=out)
    warm = demand_of(gemm, shape, A100, **WARM, **NO_WAVES)
    far = {"a": a, "b": b, "none": 0}[weights]
    check(warm, dram=far)
    assert float(warm.store_dram[0, 0]) == pytest.approx(0, abs=1e-3)


def test_waves_read_operands_again(sample, phases):
    """16 x 16 tiles, one an SM: a wave is a square of sqrt(108) tiles a side."""
    row = sample("gemm", m=2048, n=2048, k=512, tile_m=128, tile_n=128, threads=1024)
    shape = found(phases, gemm.Gemm, row)
    once = 2 * 2048 * 512 * 2
    side = math.sqrt(A100_SMS) * 128
    waves = 256 / A100_SMS * 2 * side * 512 * 2
    beyond = (once / 4 + 1) * math.log1p(math.exp((waves - once) / (once / 4 + 1)))
    check(demand_of(gemm, shape, A100, **COLD, wave_traffic=1.0), dram=once + beyond)
    check(demand_of(gemm, shape, A100, **COLD, **NO_WAVES), dram=once)


@pytest.mark.parametrize(
    ("stages", "resident", "waits", "flow"),
    [
        (0, 3, 0, 1),  # as libraries do: four stages of 12 KiB, 3 CTAs an SM
        (2, 4, 1 - 1 / 3, 4 / 3 / 3),  # registers hold 4, one load of three ahead
        (1, 4, 4 - 1 / 3, 4 / 3 * 0.25 / 3),  # none ahead: taken as a quarter
        (5, 2, 0, 2 / 3 * 4 / 3),
        (4, 3, 0, 1),
    ],
)
def test_loads_that_run_ahead(sample, phases, stages, resident, waits, flow):
    """Steps of 32 in tiles of 128 x 64: S - 1 loads are under way, so that a step waits
    1/(S - 1) of L2's latency, beyond the third that libraries wait."""
    row = sample(
        "gemm", m=1024, n=1024, k=1024, tile_m=128, tile_n=64, tile_k=32, stages=stages
    )
    latency = float(A100.l2_latency)
    check(
        demand_of(gemm, found(phases, gemm.Gemm, row), A100, **GEMM),
        resident=resident,  # of 164 KiB, and 65,536 registers: 120 x 128 a CTA
        path_cycles=32 * (100 * 32 * 2 / 128 + waits * latency),
        flow=40 * 164 / 228 * flow,
    )


def test_a_product_smaller_than_its_tile(sample, phases):
    """Loads end where the operands do; k of one step cannot be split."""
    row = sample("gemm", m=8, n=64, k=16, tile_m=64, tile_n=64, split_k=8)
    check(
        demand_of(gemm, found(phases, gemm.Gemm, row), H200, **GEMM),
        ctas=1,
        launches=1,
        tensor=2 * 64**3,
        l2=(8 + 64) * 16 * 2,
        store_l2=2 * 8 * 64,
        choice=0,
    )


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "registers", "threads"),
    [(256, 128, 128 + 4 * 128**0.5 + 24, 256), (128, 128, 128 + 4 * 128**0.5 + 24, 128),
     (64, 32, 16 + 16 + 24, 128), (256, 256, 255, 256)],
)  # fmt: skip
def test_registers_of_a_tile(sample, phases, tile_m, tile_n, registers, threads):
    """Accumulators, fragments and addresses of a thread; two groups of warps above
    128 x 128. Steps of one element leave shared memory out of it."""
    row = sample("gemm", m=512, n=512, k=64, tile_m=tile_m, tile_n=tile_n, tile_k=1)
    got = demand_of(gemm, found(phases, gemm.Gemm, row), A100, **GEMM)
    by_threads = math.floor(65536 / (registers * threads))
    check(got, resident=max(1, min(by_threads, 2048 / threads)))


def test_a_product_on_cuda_cores_without_a_tile(sample, phases):
    """The first tile of the menu: 128 x 64, steps of 8, two stages, 256 threads."""
    row = sample("gemm", m=512, n=512, k=512, dtype="fp32")
    c = dict(fma_step_cycles=90.0, choice_tau_fma=0.07, fma_efficiency=0.8)
    loads = 32 * 64 * (128 + 64) * 8 * 4
    check(
        demand_of(gemm, found(phases, gemm.Gemm, row), A100, **c),
        ctas=4 * 8,
        fma=2 * 512**3,
        tensor=0,
        l2=loads,
        smem=512**3 * 4 * 2 / 32 + loads,
        path_cycles=64 * 90,
        resident=3,  # 79 registers of 256 threads
        fma_peak=128,
        fma_efficiency=0.8,
        tau=0.07,
        launches=1,
    )


@pytest.mark.parametrize(
    ("dtype", "peak", "efficiency", "energy"),
    [
        ("fp32", 2048, 0.5, 3.0), ("tf32", 2048, 0.5, 3.0), ("bf16", 4096, 1, 1),
        ("fp16", 4096, 1, 1), ("fp8", 8192, 0.8, 0.6), ("fp8_block", 8192, 0.7, 0.6),
        ("int8", 8192, 0.8, 0.6), ("nvfp4", 8192, 0.8, 0.3), ("mxfp4", 8192, 0.8, 0.3),
    ],
)  # fmt: skip
def test_rates_by_type(sample, phases, dtype, peak, efficiency, energy):
    """Tensor cores of H200: fp4 runs at the rate of fp8, at half its energy."""
    row = sample(
        "gemm", m=512, n=512, k=512, tile_m=64, tile_n=64, dtype=dtype, tensor_core=True
    )
    c = dict(
        operand_half_tile=0.0, tensor_efficiency=0.9, tf32_efficiency=0.5,
        fp8_efficiency=0.8, fp8_block_efficiency=0.7, energy_tensor=1e-12,
        energy_tf32=3.0, energy_fp8=0.6, misalignment=0.0,
    )  # fmt: skip
    check(
        demand_of(gemm, found(phases, gemm.Gemm, row), H200, **c),
        tensor_peak=peak,
        tensor_efficiency=0.9 * efficiency,
        tensor_energy=energy * 1e-12,
    )


_AMPERE = (
    "256x128 128x256 128x128 256x64 64x256 128x64 64x128 64x64 32x128 16x128 32x64 "
    "16x64 128x128/3 128x128/8 128x64/3 128x64/8 64x64/3 64x64/8 16x128/3 16x128/8 "
    "32x64/3 32x64/8 16x64/3 16x64/8"
)
_HOPPER = (
    "256x128 128x256 128x128 192x128 128x192 128x64 64x128 64x64 32x128 16x128 32x64 "
    "16x64 96x128 160x128 96x256 192x256 32x256 64x256 128x128/3 128x128/8 128x64/3 "
    "128x64/8 64x64/3 64x64/8 16x128/3 16x128/8 32x64/3 32x64/8 16x64/3 16x64/8"
)
_LINEAR = "128x64 128x32 32x128 64x32 128x32/3"
_BATCHED = "128x128 256x128 128x256 128x64 64x128 128x128/3"


@pytest.mark.parametrize(
    ("gpu", "given", "menu"),
    [
        (A100, {}, _AMPERE),
        (H200, {}, _HOPPER),
        (A100, {"dtype": "fp32"}, _LINEAR),
        (A100, {"dtype": "fp32", "batch": 4}, _BATCHED),
        (A100, {"dtype": "fp32", "batch": 4, "layout": "tn"}, _LINEAR),
    ],
)
def test_menus(sample, phases, gpu, given, menu):
    """Tiles that a library chooses among: rows x columns / parts of k."""
    shape = found(phases, gemm.Gemm, sample("gemm", m=512, n=512, k=512, **given))
    tensor = shape.tensor_core * (given.get("dtype") != "fp32")
    rows, columns, split, legal = gemm.candidates(shape, gpu, tensor)
    names = [
        f"{m:.0f}x{n:.0f}" + (f"/{s:.0f}" if s > 1 else "")
        for m, n, s, fine in zip(rows[0], columns[0], split[0], legal[0], strict=True)
        if fine
    ]
    assert sorted(names) == sorted(menu.split())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, 1 / 64 + 1 / 32),  # mma.sync: half of each side, at most 64
        (1, 1 / 64 + 1 / 64),  # wgmma: 64 rows, all columns
        (2, 1 / 256 + 1 / 64),  # a pair of CTAs shares its operands
    ],
)
def test_fragments(kind: int, expected: float):
    numbers = (jax.numpy.asarray(x) for x in (kind, 256.0, 64.0))
    assert float(gemm.fragments(*numbers)) == pytest.approx(expected)


# CUDA cores ---------------------------------------------------------------------


@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("drift", [0.0, 1e9])
def test_a_product_on_cuda_cores(sample, phases, split: int, drift: float):
    """1000^3 fp32, 8 x 8 tiles of 128 x 128; 256 threads of 8 x 8, two stages of 8."""
    row = sample(
        "gemm", m=1000, n=1000, k=1000, dtype="fp32", tile_m=128, tile_n=128,
        split_k=split, threads=256,
    )  # fmt: skip
    shape = found(phases, simt.SimtGemm, row)
    c = dict(
        simt_loop=10.0, simt_path=1.1, simt_start=2.0, simt_drift=drift,
        split_cycles=2000.0, simt_smem=2.0, simt_issue=0.8, zero_saving=0.0,
    )  # fmt: skip
    depth = {1: 1000, 4: 256}[split]  # of a CTA, in whole steps
    ctas = 64 * split
    # a wave: all CTAs, at most two an SM (120 registers); rows of A + columns of B
    wave = min(2 * A100_SMS, ctas)
    unique = (128 * 8 + 128 * wave / 8) / (wave * 256)
    once, asked = 2 * 1000**2 * 4, ctas * 256 * 1000 / split * 4
    pressure = once / (once + float(A100.l2_capacity))
    lost = asked - max(asked * unique, once) if drift else 0
    again = max(asked * unique - once, 0) + 2 * lost  # both operands along k
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
        l2=asked,
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
        "gemm", m=1024, n=1024, k=1024, dtype="fp32", tensor_core=False, tile_m=128,
        tile_n=128, tile_k=16, mdimc=16, ndimc=16, mdima=16, ndimb=16, vwm=4, vwn=4,
        sa=1, sb=1,
    )  # fmt: skip
    shape = found(phases, _clblast.Xgemm, row)
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
        demand_of(_clblast, shape, A100, **c),
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


# fused attention ----------------------------------------------------------------

ATTENTION = dict(
    prefill_efficiency=0.5, prefill_exp=2.0, prefill_mask=0.5, prefill_feed=64.0,
    prefill_own=1000.0, prefill_query=64.0, prefill_query_fast=0.5, prefill_fill=0.25,
    prefill_cycles=7000.0, prefill_schedule=1e-8, fp8_efficiency=0.8,
    transpose_rate=32.0, decode_efficiency=0.8, decode_exp=0.5, decode_own=2000.0,
    decode_own_head=10.0, decode_own_fp8=0.75, decode_own_local=3000.0,
    decode_flow=200.0, decode_cycles=6000.0, decode_cycles_local=1700.0,
    decode_schedule=2e-8, energy_tensor=1e-12, energy_fp8=0.6, prefill_sharpness=4.0,
    prefill_serial=1.5, decode_sharpness=4.5, decode_serial=1.25,
)  # fmt: skip
HEADS = dict(num_heads=32, num_kv_heads=8, head_dim=128)


@pytest.mark.parametrize(
    ("local", "fp8", "tiles"),
    [
        (0, 0, [(192, 128), (128, 128), (128, 96), (128, 80)]),
        (1, 0, [(192, 96), (128, 128), (128, 64), (128, 64)]),
        (0, 1, [(192, 128), (128, 160), (128, 96), (128, 128)]),
        (1, 1, [(192, 160), (128, 96), (128, 128), (128, 64)]),
    ],
)
def test_tiles_of_flash_attention_3(local: int, fp8: int, tiles):
    """Heads of 64, 128, 192 and 256, of at most that many elements."""
    for head, expected in zip((64, 128, 192, 256), tiles, strict=True):
        for size in (head, head - 16):
            numbers = [jax.numpy.asarray(x) for x in (size, 1, local, fp8)]
            assert tuple(map(float, tiles_of(*numbers))) == expected


@pytest.mark.parametrize(
    ("head", "cache", "prefill", "decode"),
    [
        (64, "bf16", 4.0, 4.5), (256, "bf16", 4.0, 4.5), (128, "fp8", 4.0, 4.5),
        (192, "fp8", 4.0, 1.25), (256, "fp8", 1.5, 1.25),
    ],
)  # fmt: skip
def test_where_softmax_and_products_take_turns(
    sample, phases, head, cache, prefill, decode
):
    heads = HEADS | {"head_dim": head, "kv_cache_dtype": cache}
    row = sample("context_attention", q_len=512, **heads)
    shape = found(phases, attention.Prefill, row)
    check(demand_of(attention, shape, H200, **ATTENTION), sharpness=prefill)
    shape = found(phases, attention.Decode, decode_row(sample, **heads))
    check(demand_of(attention, shape, H200, **ATTENTION), sharpness=decode)


def test_prefill(sample, phases):
    """512 positions, 4 query heads a KV head: 16 tiles of 128 x 128 visit 40 blocks a
    KV head, 16 of them on the diagonal."""
    row = sample("context_attention", q_len=512, kv_len=512, **HEADS)
    shape = found(phases, attention.Prefill, row)
    q, kv, blocks = 32 * 512 * 128, 2 * 8 * 512 * 128, 8 * 40
    loads = blocks * 2 * 128 * 128 * 2
    products = 4 * 128**3 / (4096 * 0.5)
    softmax, feed = 128**2 / 16 * 2, 2 * 128 * 128 * 2 / 64
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=8 * 16,
        tensor=4 * 128**3 * blocks,
        sfu=128**2 * blocks,
        smem=loads,
        l2=loads + 2 * q,
        dram=2 * (q + kv),
        store_l2=2 * q,
        store_dram=2 * q,
        tensor_peak=4096,
        tensor_efficiency=0.5,
        sfu_efficiency=0.5,
        feed=64,
        longest=4 * 8 * 16 / blocks,  # 4 blocks where the mean is 2.5
        own_cycles=1000
        + 128 * 128 * (2 + 2) / 64 * 0.5
        + 0.25 * (products + softmax + feed)
        + 128**2 / 16 * 0.5,  # each tile has one masked block
        fixed_cycles=7000,
        fixed_seconds=1e-8,
        launches=1,
        sharpness=4.0,
        store_exposed=0,
        tensor_energy=1e-12,
    )


@pytest.mark.parametrize(
    ("group", "cost"), [(1, 1.0), (2, 1.0), (4, 0.5), (8, 0.5), (16, 0.5), (32, 1.0)]
)
def test_query_loads_are_fast_in_some_groups(sample, phases, group: int, cost: float):
    row = sample(
        "context_attention", q_len=512, num_heads=32, num_kv_heads=32 / group,
        head_dim=128,
    )  # fmt: skip
    shape = found(phases, attention.Prefill, row)
    c = ATTENTION | dict(prefill_own=0.0, prefill_fill=0.0, prefill_mask=0.0)
    got = demand_of(attention, shape, H200, **c)
    check(got, own_cycles=128 * 128 * 4 / 64 * cost)


def test_prefill_with_an_fp8_cache(sample, phases):
    """wgmma: tiles of 128 x 160, V turned in shared memory; mma.sync widens instead."""
    row = sample("context_attention", q_len=512, kv_cache_dtype="fp8", **HEADS)
    shape = found(phases, attention.Prefill, row)
    blocks = sum(math.ceil((i + 1) * 32 / 160) for i in range(16)) * 8
    turned, loads = 160 * 128 / 32, blocks * 2 * 160 * 128
    products = 4 * 128 * 160 * 128 / (8192 * 0.5 * 0.8)
    softmax, feed = 128 * 160 / 16 * 2, 2 * 160 * 128 / 64
    c = ATTENTION | dict(prefill_mask=0.0)
    check(
        demand_of(attention, shape, H200, **c),
        tensor=4 * 128 * 160 * 128 * blocks,
        tensor_peak=8192,
        tensor_efficiency=0.5 * 0.8,
        tensor_energy=0.6e-12,
        smem=loads + turned * blocks * 128,
        own_cycles=1000
        + 128 * 128 * (1 + 2) / 64 * 0.5
        + 0.25 * (products + softmax + feed + turned),
    )
    # 128 x 64: 16 tiles of 32 positions, one more block every second tile
    blocks = 8 * 2 * sum(range(1, 9))
    products = 4 * 128 * 64 * 128 / (2048 * 0.5)
    check(
        demand_of(attention, shape, A100, **c),
        tensor_peak=2048,
        tensor_efficiency=0.5,
        tensor_energy=1e-12,
        smem=blocks * 2 * 64 * 128,
        own_cycles=1000
        + 128 * 128 * 3 / 64 * 0.5
        + 0.25 * (products + 128 * 64 / 16 * 2 + 2 * 64 * 128 / 64),
    )


def test_prefill_with_a_window_reads_what_it_sees(sample, phases):
    sizes = dict(q_len=512, kv_len=4096, **HEADS)
    row = sample("context_attention", window_size=1024, **sizes)
    shape = found(phases, attention.Prefill, row)
    q = 2 * 32 * 512 * 128
    got = demand_of(attention, shape, H200, **ATTENTION, **COLD)
    check(got, dram=q + 2 * 2 * 8 * (512 + 1024) * 128)
    whole = found(phases, attention.Prefill, sample("context_attention", **sizes))
    got = demand_of(attention, whole, H200, **ATTENTION, **COLD)
    check(got, dram=q + 2 * 2 * 8 * 4096 * 128)


def decode_row(sample, **given: Any) -> dict[str, Any]:
    return sample(
        "generation_attention", **({"batch": 16, "kv_len": 8192} | HEADS | given)
    )


@pytest.mark.parametrize("window", [0, 1024])
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_decode(sample, phases, window: int, cache: str):
    """16 x 8 KV heads of 8,192 positions, one CTA each."""
    row = decode_row(sample, window_size=window, kv_cache_dtype=cache, split_k=1)
    shape = found(phases, attention.Decode, row)
    shape = dataclasses.replace(shape, distance=[0.0])
    fp8 = cache == "fp8"
    # FlashAttention 3: 128 x 128, fp8: one warp group alone, 64 x 96
    tile_m, tile_n, e = (64, 96, 1) if fp8 else (128, 128, 2)
    first = (8192 - window) // tile_n if window else 0
    blocks = math.ceil(8192 / tile_n) - first
    keys = window or 8192
    q, pages = 16 * 32 * 128, 4 * 16 * 128
    kv = 2 * 16 * 8 * 128 * keys * e
    elements = tile_m * tile_n * 128 * blocks
    turned = tile_n * 128 / 32 if fp8 else 0
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=128,
        tensor=4 * elements * 128,
        sfu=elements,
        smem=kv + pages + turned * 128 * blocks * 128,
        l2=kv + pages + q * e,
        dram=kv + pages + q * e,
        store_l2=2 * q,
        store_dram=2 * q,
        tensor_peak=8192 if fp8 else 4096,
        tensor_efficiency=0.8,
        sfu_efficiency=2,
        feed=200,
        own_cycles=2000 * (0.75 if fp8 else 1) + 10 * 128 + 3000 * (window > 0),
        fixed_cycles=6000 + 1700 * (window > 0),
        fixed_seconds=16 * 2e-8,
        launches=1,
        sharpness=4.5,
        tensor_energy=(0.6e-12 if fp8 else 1e-12) * (0.3 + 0.7 * 4 / tile_m),
    )


def test_decode_with_an_fp8_cache_without_fp8_products(sample, phases):
    """mma.sync widens the cache: bf16 rate and energy, nothing is turned."""
    row = decode_row(sample, kv_cache_dtype="fp8", split_k=1)
    shape = found(phases, attention.Decode, row)
    check(
        demand_of(attention, shape, A100, **ATTENTION),
        tensor_peak=2048,
        tensor_energy=1e-12 * (0.3 + 0.7 * 4 / 128),
        smem=2 * 16 * 8 * 128 * 8192 + 4 * 16 * 128,
        own_cycles=2000 + 10 * 128,
    )


def test_decode_of_a_cache_that_partly_stays(sample, phases):
    """Misses z^3.8 / (1 + z^3.8) of the bytes touched between two steps / L2."""
    shape = found(phases, attention.Decode, decode_row(sample, split_k=1))
    kv, q, pages = 2 * 16 * 8 * 128 * 8192 * 2, 16 * 32 * 128, 4 * 16 * 128
    far = dataclasses.replace(shape, distance=[1e9])
    c = ATTENTION | dict(l2_share=1e9 / 1.5 / float(H200.l2_capacity))
    miss = 1.5**3.8 / (1 + 1.5**3.8)
    check(
        demand_of(attention, far, H200, **c),
        dram=(kv + pages + 2 * q) * miss,
        store_dram=2 * q * miss,
    )


@pytest.mark.parametrize(("given", "splits"), [(0, 15), (1, 1), (7, 7)])
def test_a_given_split_wins(sample, phases, given: int, splits: int):
    """One sequence of 32,768 positions: the library takes 15 parts on 132 SMs."""
    row = decode_row(sample, batch=1, kv_len=32768, split_k=given)
    shape = found(phases, attention.Decode, row)
    q = 32 * 128
    check(
        demand_of(attention, shape, H200, **ATTENTION),
        ctas=8 * splits,
        launches=1 + (splits > 1),
        store_l2=2 * q + 8 * q * splits * (splits > 1),
        sfu=128 * 128 * 8 * splits * math.ceil(256 / splits),
    )


def test_backward_kernel(sample, phases):
    row = sample("attention_backward", q_len=512, kv_len=512, **HEADS)
    shape = found(phases, attention_backward.Backward, row)
    forward = demand_of(attention, shape, H200, **ATTENTION)
    there = {
        name: float(getattr(forward, name)[0, 0])
        for name in ("tensor", "smem", "l2", "own_cycles", "tensor_efficiency")
    }
    q, kv = 32 * 512 * 128, 2 * 8 * 512 * 128
    check(
        demand_of(attention_backward, shape, H200, **ATTENTION, **COLD),
        tensor=2.5 * there["tensor"],
        smem=2.5 * there["smem"],
        own_cycles=2.5 * there["own_cycles"],
        l2=3 * there["l2"],
        tensor_efficiency=63 / 73 * there["tensor_efficiency"],
        dram=2 * (2 * q + kv),  # Q, dO, K and V
        store_l2=2 * kv,
        store_dram=4 * q + 2 * kv,  # dQ in fp32
        launches=1,
    )


# mixture of experts -------------------------------------------------------------

EXPERTS = dict(
    num_tokens=1024, hidden_size=1024, inter_size=2048, topk=2, num_experts=8
)
MOE = dict(
    moe_efficiency=0.5, moe_efficiency_fp8=0.6, moe_efficiency_block=0.7,
    moe_cycles=1000.0, moe_cycles_fp8=2000.0, moe_cycles_block=3000.0,
    moe_quantise=2.0, moe_quantise_block=4.0, moe_stream=100.0, moe_sorting=500.0,
    moe_align=1e-9, moe_expert=1e-8, moe_feed=60.0, moe_flow=10.0, moe_empty=50.0,
    moe_misaligned=3.0, moe_own=800.0, moe_load_energy=1e-12, energy_tensor=2e-12,
    step_cycles=100.0, zero_saving=0.0, moe_quantization=0.3,
)  # fmt: skip


def moe_shapes(sample, phases, **given: Any) -> tuple[Any, Any]:
    """(gate and up, sorting) of a layer, as first rows of their classes."""
    row = sample("moe", **(EXPERTS | given))
    return found(phases, moe.Experts, row), found(phases, moe.Rows, row)


@pytest.mark.parametrize(
    ("dtype", "efficiency", "paid", "slower"),
    [("bf16", 0.5, 1000, 1), ("fp8", 0.6, 2000, 2), ("fp8_block", 0.7, 3000, 4)],
)
def test_constants_by_width(sample, phases, dtype, efficiency, paid, slower):
    experts, rows = moe_shapes(sample, phases, dtype=dtype)
    check(demand_of(moe, experts, H200, **MOE), tensor_efficiency=efficiency)
    first = int(rows.first.argmax())  # it does nothing but quantise and sort
    got = demand_of(moe, rows, H200, **MOE)
    check(
        got,
        row=first,
        fixed_cycles=paid + 500,
        fixed_seconds=2048e-9 + 8e-8,
        launches=1,
    )
    assert float(got.feed[first, 0]) == pytest.approx(100 / slower, rel=1e-4)


def test_experts(sample, phases):
    """Gate and up of 8 experts with 256 tokens each: 2 x 32 tiles of 128 x 128."""
    experts, _ = moe_shapes(sample, phases, tile_m=128, tile_n=128)
    up = int(experts.n.argmax())
    experts = dataclasses.replace(experts, distance=[1e15, 1e15])
    loads = (2048 * 32 + 512 * 128) * 1024 * 2
    weights, tokens = 8 * 4096 * 1024 * 2, 2048 * 1024 * 2
    flop = 512 * 2 * 128 * 128 * 1024
    # a grid for (2,048 + 8 x 127) / 128 row tiles, 16 of them filled
    empty = ((2048 + 8 * 127) / 128 - 16) * 32
    check(
        demand_of(moe, experts, H200, **MOE, **COLD),
        row=up,
        ctas=512,
        tensor=flop,
        l2=loads,
        smem=2 * loads,
        dram=weights + tokens,
        store_l2=2 * 2048 * 4096,
        store_dram=2 * 2048 * 4096,
        tensor_peak=4096,
        feed=60,
        # 512 CTAs load 256 different columns of weights
        flow=10 * (weights + tokens) / (weights * 2 + tokens) * 512 / H200_SMS,
        path_cycles=16 * 100,
        own_cycles=800,
        fixed_cycles=50 * empty / H200_SMS,
        launches=0,
        quantization=0.3,
        tensor_energy=2e-12 + 1e-12 * loads / flop,
    )
    warm = MOE | WARM | dict(l2_share=100.0)
    check(demand_of(moe, experts, H200, **warm), row=up, dram=weights)


def test_experts_without_vector_loads(sample, phases):
    """k = 1,000 is no multiple of 16: 8 blocks of 128, element by element."""
    experts, _ = moe_shapes(sample, phases, hidden_size=1000, tile_m=128, tile_n=128)
    up = int(experts.n.argmax())
    got = demand_of(moe, experts, H200, **MOE)
    check(got, row=up, feed=60 / (3 * 1024 / 1000), path_cycles=16 * 100)


# kernels that pass over memory ----------------------------------------------------


@pytest.mark.parametrize(
    ("op", "cols", "issue", "sfu", "ctas", "resident"),
    [
        ("softmax", 1024, 12, 1, 75, 8),  # four rows a CTA of 256 threads
        ("layernorm", 2048, 12, 0, 300, 4),
        ("rmsnorm", 256, 8, 0, 75, 16),  # at least 128 threads
        ("rmsnorm", 16384, 8, 0, 300, 2),  # at most 1,024
    ],
)
def test_reductions(sample, phases, op, cols, issue, sfu, ctas, resident):
    row = sample(op, rows=300, cols=cols, dtype="bf16")
    shape = found(phases, stream.Stream, row)
    c = dict(reduction_reads=0.5, reduction_latency=3.0, stream_feed=70.0)
    size = 300 * cols * 2
    check(
        demand_of(stream, shape, A100, **c, **COLD),
        issue=issue * 300 * cols,
        sfu=sfu * 300 * cols,
        l2=2 * size + 0.5 * size,
        dram=2 * size,
        feed=70,
        ctas=ctas,
        resident=resident,
        path_seconds=3 * float(A100.dram_latency),
        quantization=0,
    )


def test_an_elementwise_kernel(sample, phases):
    row = sample("elementwise", fn="gelu", elements=1e6, dtype="bf16", zero_share=0.5)
    shape = found(phases, stream.Stream, row)
    z = 2.0  # 4 MB over half of that
    c = dict(l2_producer_share=2e6 / float(A100.l2_capacity), l2_sharpness=3.0)
    check(
        demand_of(stream, shape, A100, **c, zero_saving=0.4),
        issue=4e6,
        sfu=1e6,
        l2=4e6,
        dram=4e6 * z**3 / (1 + z**3),
        ctas=4e6 / 16384,
        resident=1,
        path_seconds=0,
        activity=0.6,
    )


def test_a_gather_and_a_depthwise_layer(sample, phases):
    shape = found(phases, stream.Stream, sample("gather", rows=8, cols=512))
    check(demand_of(stream, shape, A100, **WARM), issue=4 * 8 * 512, dram=4 * 8 * 512)
    row = sample(
        "conv2d", images=4, in_channels=96, out_channels=96, groups=96, input_hw=56,
        kernel_size=3, padding=1, zero_share=0.5,
    )  # fmt: skip
    shape = found(phases, stream.Stream, row)
    c = dict(depthwise_efficiency=0.3, zero_saving=0.4)
    check(demand_of(stream, shape, A100, **c), fma_efficiency=0.3, activity=0.6)


def test_a_collective(sample, phases):
    """A ring of 8 sends 7/8 of what is gathered; memory reads and writes as much."""
    row = sample("collective", collective="all_gather", bytes=1e9, num_gpus=8)
    shape = found(phases, collective.Collective, row)
    got = demand_of(collective, shape, load_gpu("a100-sxm-80gb"))
    best = int((got.path_seconds + 1e9 * got.illegal)[0].argmin())
    sent = 7 / 8 * 1e9
    link, dram, l2, ctas = (
        float(getattr(got, name)[0, best]) for name in ("link", "dram", "l2", "ctas")
    )
    assert (link, dram, l2, ctas) == pytest.approx((sent, 2 * sent, 2 * sent, 24))
