"""Look-ups by dtype code: bytes, what runs in place of a type, tensor rates,
efficiencies, energies."""

from typing import Final

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from ..corrections import Corrections
from ..dtypes import BYTES, DTYPES
from ..hardware import GpuSpec
from ..records import as_float
from ..units import KiB

FP32: Final = DTYPES.index("fp32")
TF32: Final = DTYPES.index("tf32")
BF16: Final = DTYPES.index("bf16")
MXFP8: Final = DTYPES.index("mxfp8")
EXPANSION: Final = 2.0
"""Lane instructions that expand one stored weight in registers: eight int4 become 16
bits in 4 logic operations, a shift and 4 packed subtractions or FMA (Marlin, arXiv
2408.11743; FasterTransformer), then 4 packed products with the scale: 13/8; an estimate
for all types, addresses of the scales included."""

_FED: Final = 4096.0
"""FLOP/cycle/SM x B of an element of the pipe whose `operand_half_tile` is stated: bf16
on an A100, 2048 FLOP of 2 B."""
FLOW_SMEM: Final = 228 * KiB
"""Shared memory of an SM (Hopper's) for which bytes in flight are stated."""
_ZEROS: Final = 2.7
"""Power of the share of zeros in what they save: ReLU passes of an A100 say 9 % of half
zeros, an H100 60 % of all zeros (`calibration/measurements`)."""
WAVEFRONT: Final = 128.0
"""Bytes of a full access of a warp to shared memory or L1: 32 banks of a word."""


def bytes_of(dtype: Int[Array, "*k"]) -> Float[Array, "*k"]:
    """Bytes per element of dtype codes."""
    return as_float(BYTES)[dtype]


def _by_type(
    dtype: Array,
    *,
    tf32: ArrayLike,
    bf16: ArrayLike = 1.0,
    fp16: ArrayLike = 1.0,
    fp8: Array,
    fp8_block: Array | None = None,
    int8: Array | None = None,
    fp4: Array | None = None,
    mxfp8: Array | None = None,
) -> Array:
    """Value by dtype code, in the order of `DTYPES`: fp32 as tf32, both kinds of fp4
    alike, narrow types that are not given as fp8."""
    narrow = (fp8_block, int8, fp4, fp4, mxfp8)
    values = (tf32, tf32, bf16, fp16, fp8, *(fp8 if x is None else x for x in narrow))
    return jnp.stack([as_float(value) for value in values])[dtype]


def arithmetic(gpu: GpuSpec, dtype: Int[Array, "*k"]) -> Int[Array, "*k"]:
    """Code of the type that products of a dtype run in: bf16 where the GPU has no
    matrix instructions for a type below 16 bits (weights are expanded in registers,
    activations stay bf16).

    Block-scaled instructions (mxfp8) came with those for fp4.
    """
    fp8, fp4 = gpu.tensor_flop_per_cycle_fp8, gpu.tensor_flop_per_cycle_fp4
    int8 = gpu.tensor_flop_per_cycle_int8
    rate = _by_type(dtype, tf32=1.0, fp8=fp8, int8=int8, fp4=fp4, mxfp8=fp4)
    return jnp.where(rate > 0, dtype, BF16)


def tensor_peak(gpu: GpuSpec, dtype: Int[Array, "*k"]) -> Float[Array, "*k"]:
    """Tensor FLOP/cycle/SM of a dtype that the GPU multiplies (see `arithmetic`); bf16
    as fp16, and fp32 on CUDA cores, where it has no rate for them."""
    fp16 = gpu.tensor_flop_per_cycle_fp16
    rate = _by_type(
        dtype,
        tf32=gpu.tensor_flop_per_cycle_tf32,
        bf16=or_default(gpu.tensor_flop_per_cycle_bf16, fp16),
        fp16=fp16,
        fp8=gpu.tensor_flop_per_cycle_fp8,
        int8=gpu.tensor_flop_per_cycle_int8,
        fp4=gpu.tensor_flop_per_cycle_fp4,
    )
    return or_default(rate, gpu.fma_flop_per_cycle_fp32)


def expands(
    stored: Float[Array, "*k"], compute: Int[Array, "*k"]
) -> Float[Array, "*k"]:
    """1 where weights of `stored` bytes an element are expanded to the type `compute`
    of the products, else 0. Block-scaled instructions take fp4 beside mxfp8 as it is;
    other scales make no narrower type.
    """
    narrower = (stored < 0.75 * bytes_of(compute)) & (compute != MXFP8)
    return jnp.where(narrower, 1.0, 0.0)


def on_tensor_cores(gpu: GpuSpec, dtype: Int[Array, "*k"]) -> Float[Array, "*k"]:
    """1 where the GPU has tensor cores that multiply a dtype (or a wider one that its
    values fit in), else 0: fp32 and tf32 need tf32, the others fp16 or bf16."""
    wide = (dtype == FP32) | (dtype == TF32)
    narrow = gpu.tensor_flop_per_cycle_fp16 + gpu.tensor_flop_per_cycle_bf16
    return jnp.where(
        jnp.where(wide, gpu.tensor_flop_per_cycle_tf32, narrow) > 0, 1.0, 0.0
    )


def or_default(number: Array, fallback: ArrayLike) -> Array:
    """`number`, or where it is 0 (not given, not there) the `fallback`."""
    return jnp.where(number > 0, number, fallback)


def dtype_efficiency(c: Corrections, dtype: Int[Array, "*k"]) -> Float[Array, "*k"]:
    """Tensor efficiency of a dtype relative to bf16."""
    tf32, block = c.tf32_efficiency, c.fp8_block_efficiency
    return _by_type(dtype, tf32=tf32, fp8=c.fp8_efficiency, fp8_block=block)


def fed_efficiency(
    gpu: GpuSpec,
    c: Corrections,
    compute: Int[Array, "*k"],
    tile_m: Array,
    tile_n: ArrayLike,
) -> Array:
    """Share of the tensor peak that a tile feeds: half of it in each side at h elements
    (operand feed of `gemm`)."""
    half = c.operand_half_tile * tensor_peak(gpu, compute) * bytes_of(compute) / _FED
    fed = tile_m / (tile_m + half) * tile_n / (tile_n + half)
    return c.tensor_efficiency * fed * dtype_efficiency(c, compute)


def training(c: Corrections, dtype: Int[Array, "*k"]) -> Float[Array, "*k"]:
    """Time of products of a dtype in training programs / here."""
    factor = _by_type(dtype, tf32=1.0, fp8=c.training_fp8, fp4=c.training_fp4)
    return c.training_gemm * factor


def tensor_energy(c: Corrections, dtype: Int[Array, "*k"]) -> Float[Array, "*k"]:
    """J per tensor FLOP at V0 (fp4: half of fp8, by operand width).

    Block-scaled sums are scaled and added in fp32 every 128 of K, 2 of 256 FLOP; block
    instructions (those of mxfp8) do without.
    """
    fp8 = c.energy_fp8
    factor = _by_type(
        dtype,
        tf32=c.energy_tf32,
        fp8=fp8,
        fp8_block=fp8 * c.energy_fp8_block,
        int8=fp8,
        fp4=0.5 * fp8,
        mxfp8=fp8,
    )
    return c.energy_tensor * factor


def fma_rate(gpu: GpuSpec, c: Corrections) -> tuple[Array, Array]:
    """CUDA-core fp32 peak (FLOP/cycle/SM) and the share of it that is reached."""
    dual = jnp.where(gpu.fp32_doubled > 0, c.fp32_dual, 1.0)
    return gpu.fma_flop_per_cycle_fp32, c.fma_efficiency * dual


def activity(c: Corrections, zero_share: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Switching relative to random operands: `zero_saving` of all zeros (the rest is
    clocks), a seventh of that at half zeros, whose neighbours are others."""
    return 1.0 - c.zero_saving * zero_share**_ZEROS


def padded_energy(useful: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Energy of a tensor FLOP where only a `useful` share of the tile is not padding:
    rows of zeros hardly switch (taken as 30 % of random operands; the study of decode
    attention finds 0.26 of 0.5 pJ per executed FLOP)."""
    return 0.3 + 0.7 * jnp.minimum(useful, 1.0)
