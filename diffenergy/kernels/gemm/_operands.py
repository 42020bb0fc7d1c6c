"""Types of the operands, and how their elements reach a matrix instruction.

*Fragments*: an operand element that comes from shared memory serves a whole matrix
instruction, so its reads per multiply-add are 1/rows + 1/cols of that instruction's
block:

| MMA kind | rows | cols |
|---|---|---|
| mma.sync (one warp) | min(tile_m/2, 64) | min(tile_n/2, 64) |
| wgmma (one warp group) | min(tile_m, 64) | tile_n |
| tcgen05 (a pair of CTAs shares) | 2 min(tile_m, 128) | min(tile_n, 256) |
| systolic (weights stay in the array) | tile_m | min(tile_n, 128) |
| CUDA cores (one warp) | 32 | 32 |

**Stored weights.** `weight_dtype` and `weight_group` say how the weight is stored where
it is not in `dtype`: with e_w its bytes an element, scales included
(`dtypes.stored_bytes`: int4 0.5 + 2/group, group 128 if none is given), the e of loads,
fragments, resident CTAs and DRAM is that of each operand. Where the matrix pipes do not
take the stored type (it is narrower than that of the products; not fp4 beside mxfp8),
every CTA expands what it loads in registers: 2 lane instructions an element, counted
from the sequence of Marlin and FasterTransformer for int4 (13 for 8 weights), an
estimate for the others, nothing fitted.

**Parts of 16 B.** With wgmma and tcgen05, operands come by bulk copies of 16 B.
Products in 16 bit whose n or k is no multiple of 8 elements leave those kernels for one
of 128 x 128: each access to a part of 16 B (2, 4 or 8 B) of operands takes the issue
slots of 32 instructions, of the result 12.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ...hardware import GpuSpec
from .. import _rates
from ._shape import Gemm


class Types(NamedTuple):
    """In what a product runs, and bytes of an element of A, of B and of the result."""

    tensor: Array
    """1 on tensor cores, 0 on CUDA cores."""
    compute: Array
    """Code of the type that the products run in."""
    e: Array
    """Bytes of an element of it."""
    e_a: Array
    e_b: Array
    e_out: Array


def types(s: Gemm, gpu: GpuSpec) -> Types:
    """A type that the GPU's tensor cores lack runs on CUDA cores; systolic arrays
    multiply fp32 in passes of 16 bits, whatever library or layout asks for."""
    compute = _rates.arithmetic(gpu, s.dtype)
    e = _rates.bytes_of(compute)
    return Types(
        tensor=jnp.where(gpu.is_systolic, 1.0, s.tensor_core)
        * _rates.on_tensor_cores(gpu, s.dtype),
        compute=compute,
        e=e,
        e_a=_rates.or_default(s.a_stored, e),
        e_b=_rates.or_default(s.b_stored, e),
        e_out=_rates.bytes_of(s.out_dtype),
    )


_FMA_FRAGMENTS: Final = 1 / 32
"""`fragments` of a warp on CUDA cores, of each operand: a block of 32 x 32."""


def fragments(kind: Array, tile_m: Array, tile_n: Array) -> tuple[Array, Array]:
    """Shared-memory reads of A and of B per multiply-add, in elements: 1/columns and
    1/rows of the block that one matrix instruction (mma.sync: one warp) reuses its
    operands over."""
    rows = jnp.stack(
        jnp.broadcast_arrays(
            jnp.minimum(tile_m / 2, 64.0),
            jnp.minimum(tile_m, 64.0),
            jnp.minimum(tile_m, 128.0) * 2,  # a pair of CTAs shares its operands
            tile_m,
        )
    )
    cols = jnp.stack(
        jnp.broadcast_arrays(
            jnp.minimum(tile_n / 2, 64.0),
            tile_n,
            jnp.minimum(tile_n, 256.0),
            jnp.minimum(tile_n, 128.0),
        )
    )
    index = jnp.round(kind).astype(jnp.int32)
    return 1 / cols[index], 1 / rows[index]


def fragment_reads(
    gpu: GpuSpec, tensor: Array, tile_m: Array, tile_n: Array
) -> tuple[Array, Array]:
    """`fragments` of A and of B on the pipe that a product runs on."""
    a, b = fragments(gpu.mma_kind, tile_m, tile_n)
    return (
        jnp.where(tensor > 0, a, _FMA_FRAGMENTS),
        jnp.where(tensor > 0, b, _FMA_FRAGMENTS),
    )


_SCALAR_READ: Final = 32.0
_SCALAR_WRITE: Final = 12.0
"""Lane instructions' time of an access to less than 16 B of an operand, of the result
(heads of 3,137 tokens and a vocabulary of 30,522 on an H100: traces of TimeSformer and
BERT of AMD-AGI/TraceLens); see `stream.SCALAR_ACCESS`."""


def scalar_issue(
    s: Gemm, gpu: GpuSpec, t: Types, elements: Array, results: Array
) -> Array:
    """Lane instructions' time of accesses to parts of 16 B, to so many `elements` of
    operands and `results`; with wgmma and tcgen05."""
    pieces = _SCALAR_READ * elements + _SCALAR_WRITE * results
    return jnp.where(gpu.copies_in_bulk, pieces * scalar_accesses(s, gpu), 0.0)


def scalar_accesses(shape: Gemm, gpu: GpuSpec) -> Array:
    """Accesses of less than 16 B by the elements of operands and result: 1 where n or k
    is odd, 1/4 at multiples of 4, none of whole 16 B."""
    worst = misalignment(shape, _rates.arithmetic(gpu, shape.dtype))
    plain = shape.a_bytes == 0  # convolutions pad their channels
    return jnp.where(plain & (worst > 0.1), 0.5 ** (3 * (1 - worst)), 0.0)


def misalignment(shape: Gemm, compute: Array) -> Array:
    """0 where n and k are multiples of 8 elements, 1 where one is odd (16-bit tensor
    kernels only): log2(8/gcd(d, 8))/3 of the worse of the two."""

    def of(x: Array) -> Array:
        gcd = sum(jnp.where(jnp.mod(x, d) == 0, d / 2, 0.0) for d in (2.0, 4.0, 8.0))
        return 1 - jnp.log2(1 + gcd) / 3  # 1 + (1, 1+2, 1+2+4) = 2, 4, 8

    k = _rates.or_default(shape.k_beside, shape.k)
    worst = jnp.maximum(
        of(jax.lax.stop_gradient(shape.n)), of(jax.lax.stop_gradient(k))
    )
    narrow = (_rates.bytes_of(compute) == 2) & (shape.tensor_core > 0)
    return jnp.where(narrow, worst, 0.0)
