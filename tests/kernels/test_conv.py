"""Convolutions and their gradients: shapes, FLOP and bytes by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.hardware import load_gpu
from diffenergy.kernels import gemm
from diffenergy.kernels.gemm import Gemm, _operands
from diffenergy.kernels.stream import Stream

from .by_hand.demands import demand_of, shape_of

INPUT, WEIGHT = "conv2d_input_grad", "conv2d_weight_grad"
SIZES = dict(
    images=4, in_channels=64, out_channels=128, input_hw=56, kernel_size=3, padding=1
)
X, Y, W = 4 * 64 * 56**2, 4 * 128 * 56**2, 64 * 128 * 9


def test_products_by_hand(sample, phases):
    """y: a pixel by channel of y over nine taps of x; dx: a pixel by channel of x over
    nine taps of dy; dw: a tap of a channel of x by channel of y over the pixels."""
    pixels = 4 * 56**2
    for op, sizes, read in (
        ("conv2d", (pixels, 128, 64 * 9), X),  # the image, not its nine copies
        (INPUT, (pixels, 64, 128 * 9), Y),
        (WEIGHT, (64 * 9, 128, pixels), X),
    ):
        shape = shape_of(phases, Gemm, sample(op, **SIZES))
        assert [float(getattr(shape, x)[0]) for x in "mnk"] == list(sizes)
        assert float(shape.a_bytes[0]) == 2 * read
    # a stride beyond the kernel leaves pixels out
    sizes = dict(images=2, in_channels=64, input_hw=56, kernel_size=1, stride=2)
    assert (
        shape_of(phases, Gemm, sample("conv2d", **sizes)).a_bytes[0]
        == 2 * 64 * 28**2 * 2
    )


@pytest.mark.parametrize(
    "sizes",
    [
        dict(images=1, in_channels=4, out_channels=6, input_hw=9, kernel_size=3,
             stride=2, padding=1),
        dict(images=2, in_channels=6, out_channels=4, input_hw=8, kernel_size=3,
             padding=1, groups=2),
    ],
)  # fmt: skip
def test_all_three_have_the_flop_of_the_forward_product(sample, phases, sizes):
    """2 P K C T, with the pixels of what JAX makes of the same sizes."""
    groups, kernel = sizes.get("groups", 1), sizes["kernel_size"]
    inputs, hw = sizes["in_channels"], sizes["input_hw"]
    lowered = jax.eval_shape(
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, 2 * (sizes.get("stride", 1),), 2 * [2 * (sizes.get("padding", 0),)],
            feature_group_count=groups,
        ),
        jax.ShapeDtypeStruct((sizes["images"], inputs, hw, hw), jnp.float32),
        jax.ShapeDtypeStruct(
            (sizes["out_channels"], inputs // groups, kernel, kernel), jnp.float32
        ),
    )  # fmt: skip
    flop = 2 * np.prod(lowered.shape) * inputs // groups * kernel**2
    for op in ("conv2d", INPUT, WEIGHT):
        s = shape_of(phases, Gemm, sample(op, **sizes))
        result = 2 * s.batch[0] * s.m[0] * s.n[0] * s.k[0]
        assert float(result) == pytest.approx(flop, rel=1e-6), op


def test_what_they_move(sample, phases):
    """Operands and results once: more than L2 holds here."""
    sizes = SIZES | {"images": 256}
    gpu = load_gpu("a100-sxm-80gb")
    tiles = dict(tile_m=128, tile_n=128, split_k=1)
    for op, read, written in ((INPUT, Y, X), (WEIGHT, X, W)):
        shape = shape_of(phases, Gemm, sample(op, **sizes, **tiles))
        got = demand_of(gemm, shape, gpu)
        stored = 64 * written if op == INPUT else written
        assert float(got.store_l2[0, 0]) == 2 * stored
        assert float(got.dram[0, 0]) >= 64 * 2 * read * 0.99, op


def test_the_pixels_of_a_weight_gradient_are_divided(sample, phases):
    """Five tiles of 128 x 128: 51 parts make 256 CTAs, but of 12,544 pixels 49 have 256
    each; a fully used GPU needs none. A split that is given stays."""
    for sizes, split in (
        (SIZES, 49),
        (SIZES | {"images": 64}, 51),
        (SIZES | {"in_channels": 2048, "out_channels": 2048}, 1),
        (SIZES | {"split_k": 3}, 3),
    ):
        assert (
            float(shape_of(phases, Gemm, sample(WEIGHT, **sizes)).split_k[0]) == split
        )
    assert float(shape_of(phases, Gemm, sample(INPUT, **SIZES)).split_k[0]) == 0


def test_depthwise_ones_stream(sample, phases):
    """As much arithmetic as forward; the gradient of the weights reads x and dy."""
    sizes = dict(
        images=4, in_channels=96, out_channels=96, groups=96, input_hw=56,
        kernel_size=3, stride=2, padding=1,
    )  # fmt: skip
    x, y = 4 * 96 * 56**2, 4 * 96 * 28**2
    for op, read, written in (
        ("conv2d", x, y),
        (INPUT, y, x),
        (WEIGHT, x + y, 96 * 9),
    ):
        shape = shape_of(phases, Stream, sample(op, **sizes))
        assert (float(shape.read[0]), float(shape.write[0])) == (2 * read, 2 * written)
        assert float(shape.fma[0]) == 2 * 9 * y


def test_a_depthwise_layer_may_widen(sample, phases):
    sizes = dict(images=4, in_channels=96, out_channels=192, groups=96, padding=1)
    shape = shape_of(phases, Stream, sample("conv2d", **sizes))
    pixels = 4 * 96 * 56**2
    result = [float(x[0]) for x in (shape.fma, shape.read, shape.write)]
    assert result == [2 * 9 * pixels * 2, 2 * pixels, 4 * pixels]


def test_a_mean_depth_is_not_aligned_by_chance(sample, phases):
    """Of a 1 x 1 kernel at stride 3 a pixel reaches 1/9 of an output on average: 18
    channels are k = 2, and loaded like 6, not like 2 of a plain product."""
    sizes = SIZES | dict(input_hw=60, kernel_size=1, stride=3, padding=0)
    rows = [sample(INPUT, **sizes | {"out_channels": n}) for n in (6, 18)]
    lowered = [shape_of(phases, Gemm, row) for row in rows]
    assert [float(x.k[0]) for x in lowered] == [pytest.approx(6 / 9), 2.0]
    ways = [float(_operands.misalignment(x, x.dtype)[0]) for x in lowered]
    assert ways == [pytest.approx(1 - 1 / 3)] * 2
