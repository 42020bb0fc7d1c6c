"""`SimtGemm`: library matrix products on CUDA cores whose tile and threads are given.

No op of its own: `gemm` lowers to it.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...hardware._spec import GpuSpec
from ...physics._demand import Demand, make_demand
from ...records import as_float, as_index
from .._shared import rates as _rates
from .._shared.launch import Product, with_candidates
from .._shared.occupancy import resident_ctas


class SimtGemm(Product):
    """Library products on CUDA cores with their tiles (`tile_k` 0: 8)."""

    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    out_dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    linear: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 where both operands lie along k (`nn.Linear`), else 0."""
    stages: Float[Array, "*k"] = eqx.field(converter=as_float)  # 0: 2
    split_k: Float[Array, "*k"] = eqx.field(converter=as_float)  # 0: 1
    slices: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Groups of warps that share a tile, each with its part of every CTA's k."""
    threads: Float[Array, "*k"] = eqx.field(converter=as_float)  # 0: 256


_STEP = 8.0
"""Elements of k of a main-loop step."""
_WAVEFRONT = 128.0
"""Bytes of one full shared-memory access of a warp."""


def demand(shape: SimtGemm, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work, geometry and path; one candidate, shape (kernels, 1).

    Throughput and critical path of a register-tiled main loop whose loads run ahead
    (`docs/physics.md`, CUDA-core tiles).
    """
    s = with_candidates(shape)
    batch, m, n, k, slices = s.batch, s.m, s.n, s.k, s.slices
    tile_m, tile_n = s.tile_m, s.tile_n
    step, threads = _rates.given_or(s.tile_k, _STEP), _rates.given_or(s.threads, 256.0)
    split = jnp.minimum(_rates.given_or(s.split_k, 1.0), smooth.ceil(k / step))
    e, e_out = _rates.bytes_of(s.dtype), _rates.bytes_of(s.out_dtype)

    # registers of a thread: its block of accumulators and two fragments of its sides
    accumulators = tile_m * tile_n * slices / threads
    side = jnp.sqrt(accumulators)
    registers = 8 * smooth.ceil((accumulators + 4 * side + 24) / 8)
    smem = _rates.given_or(s.stages, 2.0) * step * (tile_m + tile_n) * slices * e
    resident = resident_ctas(gpu, threads, jnp.minimum(registers, 255.0), smem)

    across = smooth.ceil(n / tile_n)
    ctas = batch * smooth.ceil(m / tile_m) * across * split
    depth = step * smooth.ceil(k / (split * step))  # of one CTA
    warps = threads / 32
    flop = 2 * tile_m * tile_n * depth
    # instructions of a warp beside the FMA: fragments, loop; copies to shared memory
    beside = warps / slices * side / 2 * depth + warps * c.simt_loop * depth / step
    beside += (tile_m + tile_n) * depth / 16
    wavefronts = depth * (side / slices * warps + (tile_m + tile_n) / 32)

    # rows of A and B that a wave touches / those that its CTAs ask for
    wave = jnp.minimum(gpu.num_sms * resident, ctas)
    sides = tile_m + tile_n
    touched = tile_n * jnp.minimum(wave, across)
    touched += tile_m * smooth.at_least_one(wave / across)
    unique = jnp.minimum(touched / (wave * sides), 1.0)
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    turns = smooth.at_least_one(256 / fma_peak)  # cycles of a warp's FMA, four abreast
    path = depth / (step * slices) * (gpu.smem_latency + step * accumulators * turns)
    path = c.simt_path * path + c.simt_start * gpu.l2_latency

    asked = ctas * sides * (k / split) * e
    once = batch * (m + n) * k * e
    pressure = once / (once + gpu.l2_capacity)
    # CTAs drift apart along k until L2 loses the window that they have in common
    window = c.simt_drift * (k / split) * wave * unique * sides * e
    lost = smooth.miss(window, gpu.l2_capacity, 2.0)
    again = jnp.maximum(asked * unique - once, 0.0)
    lost_bytes = jnp.maximum(asked - jnp.maximum(asked * unique, once), 0.0) * lost
    dram = once + pressure * (again + lost_bytes * (1 + s.linear))
    out = batch * m * n * e_out
    partial = 8 * (split - 1) * batch * m * n  # fp32, write + read
    return make_demand(
        jnp.shape(ctas),
        fma=ctas * flop,
        math_issue=ctas * flop / 2,
        issue=ctas * 32 * beside,
        issue_efficiency=c.simt_issue,
        smem=ctas * wavefronts * _WAVEFRONT,
        smem_efficiency=1 / c.simt_smem,
        l2=asked,
        dram=dram,
        store_l2=out + partial,
        store_dram=out + partial,
        fma_peak=fma_peak,
        fma_efficiency=fma_efficiency,
        ctas=ctas,
        resident=resident,
        path_cycles=path,
        fixed_cycles=jnp.where(split > 1, c.split_cycles, 0.0),
        launches=jnp.where(split > 1, 2.0, 1.0),
        sharpness=c.simt_sharpness,
        sharpness_memory=c.simt_sharpness_memory,
        activity=_rates.activity(c, s.zero_share),
    )
