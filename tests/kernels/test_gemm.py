"""Matrix products and convolutions: counts by hand, tiles, CUDA cores."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import load_gpu
from diffenergy.kernels import gemm, stream
from diffenergy.kernels._residency import resident_ctas, wave_traffic
from diffenergy.kernels.gemm import _operands
from diffenergy.physics._demand import Demand

lowered = jax.jit(gemm.demand, compiler_options=estimator.compiler_options(once=True))


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


# m, n, k, tile, split -> CTAs, steps, bytes asked of L2 (H200, bf16: steps of 64)
PUBLISHED = [
    (4096, 4096, 4096, (256, 128), 1, 512, 64, 1.61061e9),
    (16, 8192, 8192, (16, 64), 4, 512, 32, 0.16777e9),
]


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "split", "ctas", "steps", "loads"), PUBLISHED
)
def test_published_counts(sample, phases, m, n, k, tile, split, ctas, steps, loads):
    row = sample("gemm", m=m, n=n, k=k, tile_m=tile[0], tile_n=tile[1], split_k=split)
    c = constants(step_cycles=120.0)
    demand = lowered(shape_of(phases([row])), H200, c)
    assert demand.ctas[0, 0] == ctas
    assert demand.path_cycles[0, 0] == 120 * steps
    assert demand.tensor[0, 0] == 2.0 * m * n * k  # every tile is full
    assert demand.l2[0, 0] == pytest.approx(loads, rel=2e-5)
    assert demand.launches[0, 0] == (1 if split == 1 else 2)
    partial = 8 * split * m * n if split > 1 else 0
    assert demand.store_l2[0, 0] == 2 * m * n + partial


def test_published_wave_traffic():
    # 114.6022 and 116.6063 MB at 0.8671 of the ideal order
    def traffic(m: float, n: float, k: float, tile_m: float, tile_n: float) -> float:
        numbers = (m / tile_m, n / tile_n, tile_m, tile_n, 132.0, 2 * k, 2 * k)
        return float(wave_traffic(*(jnp.asarray(x) for x in numbers)))

    square = traffic(4096, 4096, 4096, 256, 128)
    thin = traffic(16, 8192, 8192, 16, 64)
    assert thin == 2 * (16 + 8192) * 8192  # one wave: every datum once
    assert square / thin == pytest.approx(114.6022 / 116.6063, rel=1e-5)


def test_one_wave_reads_everything_once():
    got = wave_traffic(
        *(jnp.asarray(x) for x in (8.0, 8.0, 128.0, 128.0, 64.0, 5.0, 7.0))
    )
    assert got == 1024 * 12


def test_one_row_of_tiles_reads_its_weights_once(sample, phases):
    # more tiles than SMs hold at once, but each column of weights is in one of them
    row = sample("gemm", m=64, n=131072, k=8192, tile_m=64, tile_n=64)
    dram = lowered(shape_of(phases([row])), H200, C).dram[0, 0]
    assert dram == pytest.approx(2 * (64 + 131072) * 8192, rel=2e-3)


def test_edge_tiles_are_padded(sample, phases):
    row = sample("gemm", m=130, n=100, k=70, tile_m=128, tile_n=128)
    demand = lowered(shape_of(phases([row])), A100, C)
    assert demand.ctas[0, 0] == 2
    assert demand.tensor[0, 0] == 2 * 2 * 128 * 128 * 96  # steps of 32: 70 -> 96


def test_batches_multiply(sample, phases):
    sizes = dict(m=256, n=256, k=64, tile_m=128, tile_n=128)
    one, many = (
        lowered(shape_of(phases([sample("gemm", batch=b, **sizes)])), A100, C)
        for b in (1, 12)
    )
    for name in ("ctas", "tensor", "l2", "smem", "store_l2"):
        assert getattr(many, name)[0, 0] == 12 * getattr(one, name)[0, 0]


def test_cuda_cores_take_the_work_of_fp32(sample, phases):
    row = sample("gemm", m=1024, n=1024, k=1024, dtype="fp32")
    demand = lowered(shape_of(phases([row])), A100, C)
    assert not demand.tensor.any() and jnp.all(demand.fma >= 2 * 1024**3)
    assert jnp.all(demand.fma_peak == 128)


def test_a_given_tile_leaves_one_candidate(sample, phases):
    def demand(**given: int) -> Demand:
        row = sample("gemm", m=4096, n=4096, k=4096, **given)
        return lowered(shape_of(phases([row])), A100, C)

    assert demand(tile_m=64, tile_n=32).ctas.tolist() == [[64 * 128]]
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


# convolutions -------------------------------------------------------------------


def test_convolution_is_an_implicit_product(sample, phases):
    row = sample(
        "conv2d", images=8, in_channels=64, out_channels=128, input_hw=56,
        kernel_size=3, padding=1, tile_m=128, tile_n=128,
    )  # fmt: skip
    shape = shape_of(phases([row]))
    assert [float(x[0]) for x in (shape.batch, shape.m, shape.n, shape.k)] == [
        1, 8 * 56 * 56, 128, 64 * 9
    ]  # fmt: skip
    assert shape.a_bytes[0] == 8 * 64 * 56 * 56 * 2  # the image, not its nine copies
    demand = lowered(shape, A100, C)
    assert demand.tensor[0, 0] == 2 * (8 * 56 * 56) * 128 * 576


@pytest.mark.parametrize(
    ("hw", "kernel", "stride", "padding", "out"),
    [(224, 7, 2, 3, 112), (56, 1, 1, 0, 56), (56, 3, 2, 1, 28), (14, 14, 14, 0, 1)],
)
def test_output_size(sample, phases, hw, kernel, stride, padding, out):
    row = sample(
        "conv2d", images=2, input_hw=hw, kernel_size=kernel, stride=stride,
        padding=padding,
    )  # fmt: skip
    assert shape_of(phases([row])).m[0] == 2 * out**2


def test_a_long_stride_leaves_pixels_out(sample, phases):
    sizes = dict(images=2, in_channels=64, input_hw=56, kernel_size=1)
    short, long = (
        shape_of(phases([sample("conv2d", stride=stride, **sizes)]))
        for stride in (1, 2)
    )
    assert short.a_bytes[0] == 2 * 64 * 56 * 56 * 2 == 4 * long.a_bytes[0]


def test_groups_share_the_work(sample, phases):
    # 4 groups: a quarter of the dense work
    sizes = dict(images=8, in_channels=512, out_channels=512, input_hw=16, padding=1)
    tile = dict(tile_m=128, tile_n=128)
    dense, grouped = (
        lowered(
            shape_of(phases([sample("conv2d", groups=g, **sizes, **tile)])), A100, C
        )
        for g in (1, 4)
    )
    assert dense.tensor[0, 0] == 2 * 2048 * 512 * 512 * 9
    assert grouped.tensor[0, 0] == dense.tensor[0, 0] / 4


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_layers_are_not_dense(sample, phases, multiplier: int):
    row = sample(
        "conv2d", images=4, in_channels=96, out_channels=96 * multiplier, groups=96,
        input_hw=56, kernel_size=3, padding=1,
    )  # fmt: skip
    shape = shape_of(phases([row]), stream.Stream)
    pixels = 4 * 96 * 56 * 56
    assert shape.fma[0] == 2 * 9 * pixels * multiplier
    assert shape.read[0] == 2 * pixels and shape.write[0] == 2 * pixels * multiplier
