"""Matrix products and convolutions: counts by hand, tiles, CUDA cores."""

import jax.numpy as jnp
import pytest

from diffenergy.kernels import gemm
from diffenergy.kernels._residency import resident_ctas
from diffenergy.kernels.gemm import _operands
from diffenergy.physics import Demand

from .by_hand.demands import A100, H200, demand_of, shape_of


def test_one_row_of_tiles_reads_its_weights_once(sample, phases):
    # more tiles than SMs hold at once, but each column of weights is in one of them
    row = sample("gemm", m=64, n=131072, k=8192, tile_m=64, tile_n=64)
    shape = shape_of(phases, gemm.Gemm, row)
    dram = demand_of(gemm, shape, H200, wave_traffic=1.0).dram[0, 0]
    assert dram == pytest.approx(2 * (64 + 131072) * 8192, rel=2e-3)


def test_a_given_tile_leaves_one_candidate(sample, phases):
    def demand(**options: int) -> Demand:
        row = sample("gemm", m=4096, n=4096, k=4096, **options)
        return demand_of(gemm, shape_of(phases, gemm.Gemm, row), A100)

    assert demand(tile_m=64, tile_n=32).ctas[0].tolist() == [64 * 128]
    assert demand().ctas.shape[1] > 8
    halves = demand(split_k=2)  # each followed by a reduction
    assert jnp.all((halves.launches == 2) | (halves.illegal > 0))


def test_resident_ctas():
    # 65,536 registers, 2,048 threads, 167,936 B, 32 CTAs
    def resident(threads: float, registers: float, smem: float) -> float:
        numbers = (jnp.asarray(x) for x in (threads, registers, smem))
        return float(resident_ctas(A100, *numbers))

    assert resident(256, 128, 1024) == 2  # registers
    assert resident(1024, 32, 1024) == 2  # threads and registers
    assert resident(128, 32, 40_000) == 4  # shared memory: 4 x 41,024
    assert resident(32, 32, 0) == 32  # the limit itself
    assert resident(256, 255, 300_000) == 1  # never none


@pytest.mark.parametrize(
    ("n", "k", "odd"), [(64, 64, 0), (64, 4, 1 / 3), (2, 64, 2 / 3), (63, 64, 1)]
)
def test_misalignment(sample, phases, n: int, k: int, odd: float):
    for dtype, expected in (("bf16", odd), ("tf32", 0)):
        row = sample("gemm", m=7, n=n, k=k, dtype=dtype)
        shape = shape_of(phases, gemm.Gemm, row)
        got = _operands.misalignment(shape, shape.dtype)[0]
        assert got == pytest.approx(expected)
