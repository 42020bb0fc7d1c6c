"""Tiles of matrix products: what is legal, where they go, which is best."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.codesign._result import tiles_json
from diffenergy.codesign._tiles import grid, tuning
from diffenergy.codesign._tiles.tiles import (
    FIELDS,
    VALUES,
    Shapes,
    Tiles,
    gemm_rows,
    legal,
    owners,
    shapes_of,
    usual_tiles,
    with_tiles,
)
from diffenergy.codesign._tiles.tuning import tune
from diffenergy.compiling import call_compiled, compiler_options
from diffenergy.dtypes import code
from diffenergy.estimator import estimate_once
from diffenergy.hardware import default_point, load_gpu, read_gpu
from diffenergy.kernels import gemm as kernels_gemm
from diffenergy.report._views.tiles import tiles_blocks
from diffenergy.workload import Listing, assemble, normalise_kernel

ONCE = compiler_options(once=True)
H100 = read_gpu("h100-sxm")
C = H100.spec.corrections


def gemm(m: int, n: int, k: int, dtype: str = "bf16", **fields: Any) -> dict[str, Any]:
    row = {"op": "gemm", "m": m, "n": n, "k": k, "dtype": dtype, **fields}
    return normalise_kernel(row, "here")


def listing(*kernels: dict[str, Any], mode: str = "prefill") -> Listing:
    return Listing(mode, kernels=kernels, mode=mode, dispatch="graph")


NORM = normalise_kernel(
    {"op": "rmsnorm", "rows": 64, "cols": 4096, "dtype": "bf16"}, ""
)
LISTINGS = (
    listing(
        gemm(500, 4096, 1024, count=3), NORM, gemm(500, 1024, 4096),
        gemm(500, 4096, 1024, tile_m=64, tile_n=64),
    ),
    listing(gemm(8, 4096, 1024, count=40), NORM, gemm(8, 4096, 1024), mode="decode"),
)  # fmt: skip


# tile_m, tile_n, tile_k, stages, split_k; GPU, type; legal, by hand from shared memory
# (H100: 227 KiB a CTA, A100: 163, L40S: 99), registers and instructions
HAND = [
    ((128, 128, 64, 7, 1), "h100-sxm", "bf16", True),  # 224 KiB
    ((128, 128, 64, 8, 1), "h100-sxm", "bf16", False),  # 256 KiB
    ((192, 256, 64, 4, 1), "h100-sxm", "bf16", True),  # 224 KiB, 49,152 accumulators
    ((256, 256, 64, 2, 1), "h100-sxm", "bf16", False),  # 65,536 accumulators
    ((96, 160, 64, 4, 1), "h100-sxm", "bf16", False),  # no side of 64 rows
    ((96, 128, 64, 4, 1), "h100-sxm", "bf16", True),
    ((128, 128, 32, 4, 1), "h100-sxm", "bf16", False),  # half a step
    ((128, 128, 128, 3, 1), "h100-sxm", "bf16", True),  # two steps at once, 192 KiB
    ((128, 128, 128, 4, 1), "h100-sxm", "fp8", True),  # 128 B of k
    ((128, 128, 128, 4, 2), "h100-sxm", "fp8", False),  # 8-bit kernels do not split
    ((128, 128, 64, 4, 8), "h100-sxm", "bf16", True),  # k = 512: 8 steps
    ((128, 128, 64, 4, 16), "h100-sxm", "bf16", False),
    ((128, 128, 64, 4, 5), "h100-sxm", "bf16", False),  # a split that nobody offers
    ((256, 128, 32, 4, 1), "a100-sxm-80gb", "bf16", True),  # 96 KiB
    ((192, 128, 32, 4, 1), "a100-sxm-80gb", "bf16", False),  # mma.sync: powers of two
    ((32, 32, 32, 4, 1), "a100-sxm-80gb", "bf16", False),  # below every menu
    ((256, 128, 32, 5, 1), "l40s", "bf16", False),  # 120 KiB
    ((128, 64, 8, 2, 4), "a100-sxm-80gb", "fp32", True),
    ((128, 64, 8, 3, 4), "a100-sxm-80gb", "fp32", False),  # CUDA cores: 2 stages
    ((32, 32, 8, 2, 1), "a100-sxm-80gb", "fp32", False),
    ((128, 64, 8, 2, 1), "gtx-1080-ti", "fp16", True),  # no tensor cores at all
    ((128, 64, 32, 4, 1), "gtx-1080-ti", "fp16", False),
]


@pytest.mark.parametrize(("tile", "gpu", "dtype", "expected"), HAND)
def test_legal_by_hand(tile, gpu, dtype, expected):
    shape = Shapes(512, 512, 512, code(dtype), float(dtype != "fp32"))
    tiles = Tiles(*map(float, tile))
    assert bool(legal(load_gpu(gpu), shape, tiles)) == expected


def test_the_nearest_tile_that_fits_an_sm():
    """Of all combinations of values, in logarithms: on the SM as it is and on one of
    half the shared memory and registers."""
    spec = H100.spec
    products = [gemm(512, 512, 512), gemm(512, 4096, 128, dtype="fp8")]
    shapes = shapes_of(gemm_rows([listing(*products)]))
    random = np.random.default_rng(0)
    wanted = np.exp(random.uniform(0.5, 5.0, (2, len(FIELDS), len(products))))
    sm, registers = float(spec.smem_per_sm), float(spec.registers_per_sm)
    table = grid.TileTable(spec, shapes)
    sizes = np.array([sm, sm / 2]), np.array([registers, registers / 2])
    result = table(wanted, *sizes)
    every = np.array(list(itertools.product(*VALUES.values())), float)
    tiles = Tiles(*every.T[:, :, None])
    for design, (smem, room) in enumerate(zip(*sizes, strict=True)):
        small = dataclasses.replace(
            spec, smem_per_sm=jnp.asarray(smem), registers_per_sm=jnp.asarray(room)
        )
        allowed = np.asarray(jax.jit(legal)(small, shapes, tiles))
        for n in range(len(products)):
            away = (np.log(every / wanted[design, :, n]) ** 2).sum(axis=1)
            least = away[allowed[:, n]].min()
            at = (np.log(result[design, :, n] / wanted[design, :, n]) ** 2).sum()
            assert at == pytest.approx(least)
            assert (every[allowed[:, n]] == result[design, :, n]).all(axis=1).any()


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "t4", "h100-sxm"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp32"])
def test_usual_tiles_are_legal(gpu: str, dtype: str):
    sizes = [(1, 8192, 64), (7, 16, 4096), (4096, 4096, 4096), (100, 24, 128)]
    m, n, k = np.array(sizes, float).T
    types = np.full(4, code(dtype))
    shapes = Shapes(m, n, k, types, np.full(4, float(dtype != "fp32")))
    spec = load_gpu(gpu)
    usual = usual_tiles(spec, shapes)
    assert np.all(legal(spec, shapes, usual))
    if gpu == "h100-sxm":  # cut to the next power of 2, 64 columns below 64 rows
        m, n = [16, 16, 128, 128], [128, 64, 128, 32]
        if dtype == "fp32":
            m, n = [32, 32, 128, 128], [64] * 4
        assert (usual.tile_m.tolist(), usual.tile_n.tolist()) == (m, n)


def total(listings: Any, card: Any = H100) -> tuple[float, float]:
    """Time and energy of a workload, through the front door."""
    result = estimate_once(assemble(listings), card.spec, default_point(card.spec), C)
    return float(result.time), float(result.energy)


@pytest.mark.slow
def test_place_is_what_the_listing_says():
    products = gemm_rows(LISTINGS)
    spec = H100.spec
    usual = usual_tiles(spec, shapes_of(products))
    workload = assemble(with_tiles(LISTINGS, usual))
    other = Tiles([64, 128, 16], [128, 256, 64], [64, 128, 64], [3, 2, 8], [2, 1, 4])
    owner = owners(products, workload.num_rows)

    # six choices: the program that `tune` runs
    stacked = jax.tree.map(lambda x, y: jnp.stack([x, y] * 3), other, usual)
    arguments = (workload, owner, stacked, spec, default_point(spec), C)
    result = np.array(call_compiled(tuning.whole_costs, arguments))
    expected = [total(with_tiles(LISTINGS, x)) for x in (other, usual)] * 3
    np.testing.assert_allclose(result.T, expected, rtol=1e-12)
    assert expected[0][0] != pytest.approx(expected[1][0], rel=1e-3)


SMALL = ((16.0, 128.0), (64.0, 256.0), (64.0,), (2.0, 4.0), (1.0, 4.0))
"""A menu of 16 tiles: small enough to estimate one by one."""


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["time", "energy"])
def test_tune_is_brute_force(monkeypatch: pytest.MonkeyPatch, goal: tuning.Goal):
    """One product alone: every tile estimated as a listing of its own."""
    monkeypatch.setattr(grid, "VALUES", dict(zip(FIELDS, SMALL, strict=True)))
    small = [Tiles(*([x] for x in tile)) for tile in itertools.product(*SMALL)]
    rows = [listing(gemm(16, 4096, 8192))]
    result = tune(rows, H100, C, goal=goal)
    shapes = shapes_of(gemm_rows(rows))
    allowed = [x for x in small if bool(legal(H100.spec, shapes, x)[0])]
    costs = [total(with_tiles(rows, tile)) for tile in allowed]
    best = min(range(len(costs)), key=lambda i: costs[i][goal == "energy"])
    assert result.tried == len(allowed)
    assert (result.time, result.energy) == pytest.approx(costs[best], rel=1e-9)
    (tuned,) = result.products
    assert tuned.tile == {x: float(getattr(allowed[best], x)[0]) for x in FIELDS}
    assert tuned.time == pytest.approx(costs[best][0], rel=1e-9)
    # nothing else runs and no limiter binds, but leakage follows the power
    assert tuned.energy == pytest.approx(costs[best][1], rel=5e-3)
    assert (result.default_time, result.default_energy) == pytest.approx(total(rows))
    assert total(result.listings) == pytest.approx(
        (result.time, result.energy), rel=1e-9
    )


@pytest.mark.slow
def test_default_costs_at_least_the_best():
    """The mixture of library tiles never undercuts the best legal tile."""
    result = tune(LISTINGS, H100, C)
    for tuned in result.products:
        assert tuned.default_time >= tuned.time * (1 - 1e-9)
    assert result.time < result.default_time
    cheap = tune(LISTINGS, H100, C, goal="energy")
    assert cheap.energy <= result.energy
    for least, fast in zip(cheap.products, result.products, strict=True):
        assert fast.time <= least.time * (1 + 1e-9)
    summary = tiles_json(result)
    assert [x["count"] for x in summary["gemms"]] == [3, 1, 41]
    first, tuned = summary["gemms"][0], result.products[0]
    more = 100 * (tuned.default_time - tuned.time) / tuned.time
    assert first["default_costs_more_pct"] == pytest.approx(more)
    assert (first["m"], first["n"], first["k"]) == (500, 4096, 1024)
    assert len(tiles_blocks(summary)) == 3


# stages and step of 128 x 128 on an H100 (32 KiB a step of 64): by how many L2
# latencies the path is longer for every 64 of k, and bytes in flight / those of four
# stages of 64, where one CTA is resident
DEPTHS = [
    ({"stages": 4}, 0.0, 1.0),
    ({"stages": 2}, 1 - 1 / 3, 2 / 3),  # two CTAs of 64 KiB, one step each under way
    ({"stages": 3}, 1 / 2 - 1 / 3, 1.0),  # two CTAs of 96 KiB with two steps
    ({"stages": 6}, 0.0, 1.0),  # more than libraries have does not pay
    ({"stages": 2, "tile_k": 128}, 1 / 2 - 1 / 3, 2 / 3),
]


@pytest.mark.parametrize(("options", "latencies", "share"), DEPTHS)
def test_stages_hide_latency(options, latencies, share):
    demand = jax.jit(kernels_gemm.demand, compiler_options=ONCE)

    def lowered(**tile: Any) -> Any:
        row = gemm(128, 1024, 8192, tile_m=128, tile_n=128, **tile)
        return demand(assemble([listing(row)]).shapes[0], H100.spec, C)

    usual, result = lowered(), lowered(**options)
    more = latencies * H100.values["l2_latency"] * 8192 / 64
    path = float(usual.path_cycles[0, 0]) + more
    assert float(result.path_cycles[0, 0]) == pytest.approx(path, rel=1e-12)
    flow = share * float(usual.flow[0, 0])
    assert float(result.flow[0, 0]) == pytest.approx(flow, rel=1e-12)
