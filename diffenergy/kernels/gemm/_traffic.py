"""Bytes of a library's product between DRAM, L2 and the SMs.

**DRAM traffic** counts reuse distances, not sizes. With A, B, O the bytes of operands
and output, near = A + B + O and C = `l2_share` x `l2_capacity`, p = `l2_sharpness`:

    dram  = A miss(max(near, dA)) + B miss(max(near, dB)) + again miss(A + B)
    store = O (+ 8 s batch m n where s > 1: fp32 partial sums, written and read) to L2,
            O miss(near) to DRAM
    dX    = bytes that the whole pass touches, if X is a weight, else 0
            (loop of one kernel: bytes of the launch x sets of weights cycled through)

*Wave traffic*: a wave of min(N resident/s, tiles) CTAs covers an h x w block of the
padded output, as square as the output allows; it reads h rows of A and w columns of B
once:

    traffic = batch waves (h k e m/(tiles_m tile_m) + w k e n/(tiles_n tile_n))
    again   = wave_traffic (traffic - A - B)

`again` is never below 0, and 0 where a wave is as high as the output: a product of few
rows reads its weights once.

The equations of feed, traffic and reuse distance are fitted by this project on the
public AIConfigurator GEMM tables (five GPUs, bf16 and fp8).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec
from .. import _rates
from .._residency import missed, wave_traffic
from ._main_loop import MainLoop
from ._operands import Types
from ._shape import Gemm


class Traffic(NamedTuple):
    """B of a launch."""

    dram: Array
    store_l2: Array
    store_dram: Array


def traffic(s: Gemm, loop: MainLoop, t: Types, gpu: GpuSpec, c: Corrections) -> Traffic:
    """Bytes that reach DRAM, and those of the result."""
    a_plain = s.batch * s.m * loop.k * t.e_a
    a = _rates.or_default(s.a_bytes, a_plain)
    b, out = s.batch * s.n * loop.k * t.e_b, s.batch * s.m * s.n * t.e_out
    near = a + b + out

    concurrent = smooth.at_least_one(gpu.num_sms * loop.resident / loop.split)
    waves = s.batch * wave_traffic(
        loop.tiles_m, loop.tiles_n, loop.tile_m, loop.tile_n, concurrent,
        loop.k * t.e_a * s.m / (loop.tiles_m * loop.tile_m),
        loop.k * t.e_b * s.n / (loop.tiles_n * loop.tile_n),
    )  # fmt: skip
    dram = (
        a * missed(jnp.maximum(near, s.a_distance), gpu, c)
        + b * missed(jnp.maximum(near, s.b_distance), gpu, c)
        + c.wave_traffic * (waves - a_plain - b) * missed(a + b, gpu, c)
    )
    # fp32, written and read
    partial = jnp.where(loop.split > 1, 8 * loop.split * s.batch * s.m * s.n, 0.0)
    return Traffic(dram, out + partial, out * missed(near, gpu, c))
