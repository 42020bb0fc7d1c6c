"""Matrix products and convolutions: counts by hand, tiles, CUDA cores."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from diffenergy.compiling import compiler_options
from diffenergy.corrections import Corrections
from diffenergy.hardware import load_gpu
from diffenergy.kernels import gemm
from diffenergy.kernels._residency import resident_ctas
from diffenergy.kernels.gemm import _operands
from diffenergy.physics import Demand

lowered = jax.jit(gemm.demand, compiler_options=compiler_options(once=True))


def constants(**values: Any) -> Corrections:
    """Corrections with these values, the rest at their priors."""
    return Corrections(**values)


H200, A100 = load_gpu("h200-sxm"), load_gpu("a100-pcie-40gb")
C = constants(wave_traffic=1.0)


def shape_of(workload: Any, kind: type = gemm.Gemm) -> Any:
    """The only shape record of a workload."""
    (shape,) = workload.shapes
    assert isinstance(shape, kind)
    return shape


def test_one_row_of_tiles_reads_its_weights_once(sample, phases):
    # more tiles than SMs hold at once, but each column of weights is in one of them
    row = sample("gemm", m=64, n=131072, k=8192, tile_m=64, tile_n=64)
    dram = lowered(shape_of(phases([row])), H200, C).dram[0, 0]
    assert dram == pytest.approx(2 * (64 + 131072) * 8192, rel=2e-3)


def test_a_given_tile_leaves_one_candidate(sample, phases):
    def demand(**options: int) -> Demand:
        row = sample("gemm", m=4096, n=4096, k=4096, **options)
        return lowered(shape_of(phases([row])), A100, C)

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
    shape = shape_of(phases([sample("gemm", m=7, n=n, k=k)]))
    assert _operands.misalignment(shape, shape.dtype)[0] == pytest.approx(odd)
    whole = shape_of(phases([sample("gemm", m=7, n=n, k=k, dtype="tf32")]))
    assert _operands.misalignment(whole, whole.dtype)[0] == 0
