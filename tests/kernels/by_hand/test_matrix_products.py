"""Matrix products on tensor cores and the tiles that libraries choose among."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from diffenergy import estimator
from diffenergy.corrections import Corrections
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.kernels import Context, gemm
from diffenergy.kernels._launch import with_candidates
from diffenergy.kernels.gemm._menu import candidates
from diffenergy.kernels.gemm._operands import fragments
from diffenergy.workload import op_rows

from .demands import (
    A100,
    A100_SMS,
    COLD,
    H200,
    NO_WAVES,
    V5E,
    WARM,
    check,
    demand_of,
    shape_of,
)

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
    shape = shape_of(phases, gemm.Gemm, row)
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
        activity=1 - 0.4 * 0.25**2.7,
        choice=-0.2 * math.log(2),
        tau=0.04,
    )
    eager = dataclasses.replace(shape, eager=[1.0])
    check(demand_of(gemm, eager, H200, **GEMM), fixed_cycles=1.5 * 5000 + 2000)


def test_operand_feed_of_8_bits(sample, phases):
    """Twice the rate of half the bytes."""
    row = sample("gemm", m=512, n=512, k=512, tile_m=96, tile_n=64, dtype="fp8")
    check(
        demand_of(gemm, shape_of(phases, gemm.Gemm, row), H200, **GEMM),
        tensor_efficiency=0.9 * 0.8 * 96 / (96 + 32) * 64 / (64 + 32),
        tensor_peak=8192,
        tensor_energy=0.6e-12 * (0.3 + 0.7 * 512 / 576),
    )


def test_a_slow_product_whose_sizes_are_odd(sample, phases):
    row = sample("gemm", m=64, n=63, k=64, tile_m=64, tile_n=64)
    options = GEMM | dict(misalignment=0.5, operand_half_tile=0.0)
    check(
        demand_of(gemm, shape_of(phases, gemm.Gemm, row), H200, **options),
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
    shape = shape_of(phases, gemm.Gemm, row, others)
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
    shape = shape_of(phases, gemm.Gemm, row)
    once = 2 * 2048 * 512 * 2
    side = math.sqrt(A100_SMS) * 128
    waves = 256 / A100_SMS * 2 * side * 512 * 2
    check(demand_of(gemm, shape, A100, **COLD, wave_traffic=1.0), dram=waves)
    half = demand_of(gemm, shape, A100, **COLD, wave_traffic=0.5)
    check(half, dram=(once + waves) / 2)
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
        demand_of(gemm, shape_of(phases, gemm.Gemm, row), A100, **GEMM),
        resident=resident,  # of 164 KiB, and 65,536 registers: 120 x 128 a CTA
        path_cycles=32 * (100 * 32 * 2 / 128 + waits * latency),
        flow=40 * 164 / 228 * flow,
    )


def test_a_product_smaller_than_its_tile(sample, phases):
    """Loads end where the operands do; k of one step cannot be split."""
    row = sample("gemm", m=8, n=64, k=16, tile_m=64, tile_n=64, split_k=8)
    check(
        demand_of(gemm, shape_of(phases, gemm.Gemm, row), H200, **GEMM),
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
     (64, 32, 16 + 16 + 24, 128), (256, 256, 255, 256),
     (136, 128, 68 + 4 * 68**0.5 + 24, 256), (144, 128, 72 + 4 * 72**0.5 + 24, 256)],
)  # fmt: skip
def test_registers_of_a_tile(sample, phases, tile_m, tile_n, registers, threads):
    """Accumulators, fragments and addresses of a thread; two groups of warps above
    128 x 128. Steps of one element leave shared memory out of it."""
    row = sample("gemm", m=512, n=512, k=64, tile_m=tile_m, tile_n=tile_n, tile_k=1)
    got = demand_of(gemm, shape_of(phases, gemm.Gemm, row), A100, **GEMM)
    by_threads = math.floor(65536 / (registers * threads))
    check(got, resident=max(1, min(by_threads, 2048 / threads)))


def test_a_product_on_cuda_cores_without_a_tile(sample, phases):
    """The first tile of the menu: 128 x 64, steps of 8, two stages, 256 threads."""
    row = sample("gemm", m=512, n=512, k=512, dtype="fp32")
    c = dict(fma_step_cycles=90.0, choice_tau_fma=0.07, fma_efficiency=0.8)
    loads = 32 * 64 * (128 + 64) * 8 * 4
    check(
        demand_of(gemm, shape_of(phases, gemm.Gemm, row), A100, **c),
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
    ("gpu", "dtype", "peak", "efficiency", "energy"),
    [
        ("h200-sxm", "fp32", 2048, 0.5, 3.0), ("h200-sxm", "tf32", 2048, 0.5, 3.0),
        ("h200-sxm", "bf16", 4096, 1, 1), ("h200-sxm", "fp16", 4096, 1, 1),
        ("h200-sxm", "fp8", 8192, 0.8, 0.6), ("h200-sxm", "int8", 8192, 0.8, 0.6),
        ("h200-sxm", "fp8_block", 8192, 0.7, 0.66), ("h200-sxm", "nvfp4", 4096, 1, 1),
        ("h200-sxm", "mxfp8", 4096, 1, 1), ("b200-sxm", "bf16", 8192, 1, 1),
        ("b200-sxm", "fp8", 16384, 0.8, 0.6), ("b200-sxm", "mxfp8", 16384, 0.8, 0.6),
        ("b200-sxm", "nvfp4", 32768, 0.8, 0.3), ("b200-sxm", "mxfp4", 32768, 0.8, 0.3),
    ],
)  # fmt: skip
def test_rates_by_type(sample, phases, gpu, dtype, peak, efficiency, energy):
    """On H200 fp4 and block-scaled fp8 run in bf16; on B200 block-scaled fp8 at the
    rate of fp8, fp4 at twice that and half the energy."""
    gpu = load_gpu(gpu)
    row = sample(
        "gemm", m=512, n=512, k=512, tile_m=64, tile_n=64, dtype=dtype, tensor_core=True
    )
    c = dict(
        operand_half_tile=0.0, tensor_efficiency=0.9, tf32_efficiency=0.5,
        fp8_efficiency=0.8, fp8_block_efficiency=0.7, energy_tensor=1e-12,
        energy_tf32=3.0, energy_fp8=0.6, energy_fp8_block=1.1, misalignment=0.0,
    )  # fmt: skip
    check(
        demand_of(gemm, shape_of(phases, gemm.Gemm, row), gpu, **c),
        tensor_peak=peak,
        tensor_efficiency=0.9 * efficiency,
        tensor_energy=energy * 1e-12,
    )


@pytest.mark.parametrize(
    ("weights", "options", "size"),
    [
        ("b", dict(weight_dtype="int4"), 0.5 + 2 / 128),
        ("b", dict(weight_dtype="int4", weight_group=32), 0.5 + 2 / 32),
        ("b", dict(weight_dtype="mxfp4"), 0.5 + 1 / 32),
        ("b", dict(dtype="fp8"), 1.0),  # no fp8 units
        ("b", dict(dtype="nvfp4"), 0.5625),
        ("a", dict(weight_dtype="int4"), 0.5 + 2 / 128),
    ],
)
def test_weights_that_are_expanded(sample, phases, weights, options, size):
    """Tiles of 64 x 64 over 32 of k (64 B of bf16) on an A100; products in bf16."""
    row = sample(
        "gemm", m=64, n=512, k=512, tile_m=64, tile_n=64, weights=weights, **options
    )
    shape = shape_of(phases, gemm.Gemm, row)
    a, b = (size, 2) if weights == "a" else (2, size)
    flop, loads = 2 * 64 * 512 * 512, 8 * 512 * 64 * (a + b)
    check(
        demand_of(gemm, shape, A100, **GEMM, **COLD, **NO_WAVES),
        tensor=flop,
        tensor_peak=2048,
        tensor_efficiency=0.9 * (64 / 80) ** 2,
        tensor_energy=1e-12,
        l2=loads,
        smem=flop / 2 * (a + b) / 32 + loads,
        dram=64 * 512 * a + 512 * 512 * b,
        issue=2 * 8 * 512 * 64,  # every CTA expands what it loads
        path_cycles=16 * 50,
    )
    far = shape_of(phases, gemm.Gemm, row, sample("elementwise", elements=1e20))
    warm = demand_of(gemm, far, A100, **WARM, **NO_WAVES)
    check(warm, dram=64 * 512 * a if weights == "a" else 512 * 512 * b)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("bf16", "bf16"), ("fp8", "fp8_block"), ("mxfp8", "mxfp4"), ("nvfp4", "mxfp4")],
)
def test_weights_that_matrix_pipes_take_as_they_are(sample, phases, dtype, stored):
    row = sample("gemm", m=64, n=512, k=512, dtype=dtype, weight_dtype=stored)
    gpu = load_gpu("b200-sxm")
    check(demand_of(gemm, shape_of(phases, gemm.Gemm, row), gpu, **GEMM), issue=0)


def test_types_that_a_gpu_lacks_run_in_bf16(sample, phases):
    """Weights as stored, activations of 16 bits that nobody quantises: of a product
    and of a mixture."""
    others = sample("elementwise", elements=1e12)
    rows = [
        row
        for op in ("gemm", "moe")
        for row in (
            sample(op, dtype="fp8"),
            sample(op, dtype="bf16", weight_dtype="fp8"),
            sample(op, dtype="bf16"),
        )
    ]
    work = phases(*([row, others] for row in rows))
    point = OperatingPoint(A100.sm_clock_max, A100.mem_clock, 1e9, 50.0)
    got = estimator.estimate_once(work, A100, point, Corrections()).kernels

    def total(values: jax.Array, row: int) -> float:
        return float((values * got.count * (got.row == row)).sum())

    for values in (got.time, got.energy):
        for first in (0, 6):
            alone, stored, wide = (total(values, first + i) for i in (0, 2, 4))
            assert alone == pytest.approx(stored, rel=1e-5)  # a CTA is no energy
            assert alone != pytest.approx(wide, rel=1e-2)


def test_a_pass_touches_weights_as_they_are_stored(sample):
    """640 x 640 in int4 with a scale for 32, beside activations and results of bf16."""
    row = sample("gemm", m=8, weight_dtype="int4", weight_group=32)
    (part,) = op_rows([(row, 0)])
    context = Context(pass_bytes=np.ones(1), eager=np.zeros(1))
    (launch,) = gemm.lower("gemm", part.fields, context)
    assert launch.bytes.tolist() == [640 * 640 * 0.5625 + 2 * (8 * 640 + 8 * 640)]


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
_ARRAYS = (
    "2048x1024 1024x2048 1024x1024 1024x512 512x1024 512x512 1024x256 256x1024 512x256 "
    "256x512 256x256 256x128 128x256 128x128"
)
_LINEAR = "128x64 128x32 32x128 64x32 128x32/3"
_BATCHED = "128x128 256x128 128x256 128x64 64x128 128x128/3"


@pytest.mark.parametrize(
    ("gpu", "options", "menu"),
    [
        (A100, {}, _AMPERE),
        (H200, {}, _HOPPER),
        (V5E, {}, _ARRAYS),
        (A100, {"dtype": "fp32"}, _LINEAR),
        (A100, {"dtype": "fp32", "batch": 4}, _BATCHED),
        (A100, {"dtype": "fp32", "batch": 4, "layout": "tn"}, _LINEAR),
    ],
)
def test_menus(sample, phases, gpu, options, menu):
    """Tiles that a library chooses among: rows x columns / parts of k."""
    shape = shape_of(phases, gemm.Gemm, sample("gemm", m=512, n=512, k=512, **options))
    shape = with_candidates(shape)
    tensor = shape.tensor_core * (options.get("dtype") != "fp32")
    rows, columns, split, legal = candidates(shape, gpu, tensor)
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
        (3, 1 / 256 + 1 / 64),  # weights stay in the array for the rows of the tile
    ],
)
def test_fragments(kind: int, expected: float):
    numbers = (jax.numpy.asarray(x) for x in (kind, 256.0, 64.0))
    a, b = fragments(*numbers)
    assert float(a + b) == pytest.approx(expected)
    assert float(a) == 1 / 64 if kind else float(b) == 1 / 64  # of A: 1/columns


@pytest.mark.parametrize(("tile_k", "gpu", "steps"), [
    (0, V5E, 1), (256, V5E, 8), (2048, V5E, 1), (256, A100, 1),
])  # fmt: skip
def test_steps_of_a_systolic_array(sample, phases, tile_k: int, gpu, steps: int):
    """A tile is a step of the core's grid, of a given `tile_k` k/tile_k of them."""
    tile = {"tile_m": 512, "tile_n": 512, "tile_k": tile_k}
    shape = shape_of(phases, gemm.Gemm, sample("gemm", m=512, n=512, k=2048, **tile))
    check(demand_of(gemm, shape, gpu, **GEMM), own_cycles=700 * steps)


def test_an_array_fills_up_its_rows(sample, phases):
    """16 rows run as 128, and k = 100 as 128; nothing is split or loaded in parts."""
    row = sample("gemm", m=16, n=512, k=100, tile_m=128, tile_n=512)
    shape = shape_of(phases, gemm.Gemm, row)
    check(
        demand_of(gemm, shape, V5E, **GEMM),
        tensor=2 * 128 * 512 * 128,
        tensor_peak=131072,
        # operands of 131,072 x 2 B: h = 16 x 64
        tensor_efficiency=0.9 * 128 / (128 + 1024) * 512 / (512 + 1024) / (1 + 0.8 / 3),
        issue=0,
        launches=1,
    )
