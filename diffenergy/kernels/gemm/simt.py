"""`SimtGemm`: library matrix products on CUDA cores whose tile and threads are given.

No op of its own: `gemm` lowers to it. The form is fitted by this project on NeuSight's
library products, of which it keeps one sharpness for SM, path and L2; published cycles
and bytes are met to 0.1 %.

`slices` s_l groups of warps share a tile, each with its part of k (cuBLAS:
`sliced1x4`). Per CTA, with K_c = k/split, nk = 8 ceil(K_c/8),
acc = tile_m tile_n s_l/threads and s = sqrt(acc) its fragments:

    registers    = 8 ceil((acc + 4 s + 24)/8), at most 255
    smem_per_cta = 16 (tile_m + tile_n) s_l e
    warp instructions beside the FMA = warps/s_l (s/2) nk + warps simt_loop nk/8
                                       + (tile_m + tile_n) nk/16
    wavefronts   = nk (s/s_l warps + (tile_m + tile_n)/32), of 128 B,
                   simt_smem cycles each at full rate
    path = simt_path nk/(8 s_l) (smem_latency + 8 acc max(256/FLOP per cycle, 1))
           + simt_start l2_latency

FMA take issue slots too: busy time of the slots is
(FMA + others)/(issue_slots_per_cycle simt_issue), near-maximum with the FMA pipe.
Pascal's schedulers issue 1.3 instructions a cycle (prior factor of `simt_issue`). A
wave of w = min(N resident, ctas) CTAs, gx = ceil(n/tile_n) of them side by side,
touches the share u of the rows that it asks for:

    u     = min(1, (tile_n min(w, gx) + tile_m max(1, w/gx))/(w (tile_m + tile_n)))
    asked = ctas (tile_m + tile_n) K_c e (from L2)      once = batch (m + n) k e
    x     = simt_drift K_c w u (tile_m + tile_n) e/L2   lost = x^2/(1 + x^2)
    dram  = once + pressure (max(asked u - once, 0)     pressure = once/(once + L2)
            + lost (asked - max(asked u, once)) (2 where both lie along k))
    store = batch m n (e_out + 8 (split - 1))

CTAs of a wave *drift* apart along k until L2 loses the window that they share.
"""

from typing import Final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from ...records import as_float, as_index
from .. import _rates
from .._launch import Product, with_candidates
from .._residency import resident_ctas


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


_STEP: Final = 8.0
"""Elements of k of a main-loop step, where it is not given."""
_THREADS: Final = 256.0
_STAGES: Final = 2.0
"""Threads and stages of a CTA, where they are not given."""
_WARP: Final = 32
_PARTIAL: Final = 8.0
"""Bytes of an element of each further part of k: fp32, written and read."""


class _Loop(NamedTuple):
    """Tile and main loop of a CTA."""

    step: Array
    threads: Array
    split: Array
    depth: Array
    """Elements of k of a CTA, whole steps."""
    accumulators: Array
    """Of a thread."""
    across: Array
    """Tiles along n."""
    ctas: Array
    resident: Array

    @property
    def side(self) -> Array:
        """Elements of a thread's fragment of A, of B."""
        return jnp.sqrt(self.accumulators)


def demand(shape: SimtGemm, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work, geometry and path; one candidate, shape (kernels, 1)."""
    s = with_candidates(shape)
    loop = _loop(s, gpu)
    flop = loop.ctas * 2 * s.tile_m * s.tile_n * loop.depth
    beside, wavefronts = _of_cta(s, loop, c)
    loads, dram = _loaded(s, loop, gpu, c)
    results = s.batch * s.m * s.n
    store = results * _rates.bytes_of(s.out_dtype)
    store = store + _PARTIAL * (loop.split - 1) * results
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    return make_demand(
        fma=flop,
        math_issue=flop / 2,
        issue=loop.ctas * _WARP * beside,
        issue_efficiency=c.simt_issue,
        smem=loop.ctas * wavefronts * _rates.WAVEFRONT,
        smem_efficiency=1 / c.simt_smem,
        l2=loads,
        dram=dram,
        store_l2=store,
        store_dram=store,
        fma_peak=fma_peak,
        fma_efficiency=fma_efficiency,
        ctas=loop.ctas,
        resident=loop.resident,
        path_cycles=_path(s, loop, fma_peak, gpu, c),
        fixed_cycles=jnp.where(loop.split > 1, c.split_cycles, 0.0),
        launches=jnp.where(loop.split > 1, 2.0, 1.0),
        sharpness=c.simt_sharpness,
        sharpness_memory=c.simt_sharpness_memory,
        activity=_rates.activity(c, s.zero_share),
    )


def _loop(s: SimtGemm, gpu: GpuSpec) -> _Loop:
    """Registers of a thread hold its accumulators and two fragments of its sides."""
    step = _rates.or_default(s.tile_k, _STEP)
    threads = _rates.or_default(s.threads, _THREADS)
    split = jnp.minimum(_rates.or_default(s.split_k, 1.0), smooth.ceil(s.k / step))
    accumulators = s.tile_m * s.tile_n * s.slices / threads
    registers = 8 * smooth.ceil((accumulators + 4 * jnp.sqrt(accumulators) + 24) / 8)
    depth = _rates.or_default(s.stages, _STAGES) * step
    smem = depth * (s.tile_m + s.tile_n) * s.slices * _rates.bytes_of(s.dtype)
    across = smooth.ceil(s.n / s.tile_n)
    return _Loop(
        step=step,
        threads=threads,
        split=split,
        depth=step * smooth.ceil(s.k / (split * step)),
        accumulators=accumulators,
        across=across,
        ctas=s.batch * smooth.ceil(s.m / s.tile_m) * across * split,
        resident=resident_ctas(gpu, threads, jnp.minimum(registers, 255.0), smem),
    )


def _of_cta(s: SimtGemm, loop: _Loop, c: Corrections) -> tuple[Array, Array]:
    """(warp instructions beside the FMA, wavefronts) of a CTA: fragments, loop, copies
    to shared memory."""
    warps, sides = loop.threads / _WARP, s.tile_m + s.tile_n
    fragments = warps / s.slices * loop.side / 2 * loop.depth
    turns = warps * c.simt_loop * loop.depth / loop.step
    copies = sides * loop.depth / 16
    wavefronts = loop.depth * (loop.side / s.slices * warps + sides / 32)
    return fragments + turns + copies, wavefronts


def _path(
    s: SimtGemm, loop: _Loop, fma_peak: Array, gpu: GpuSpec, c: Corrections
) -> Array:
    """Cycles of a CTA alone."""
    turns = smooth.at_least_one(256 / fma_peak)  # cycles of a warp's FMA, four abreast
    of_step = gpu.smem_latency + loop.step * loop.accumulators * turns
    main = loop.depth / (loop.step * s.slices) * of_step
    return c.simt_path * main + c.simt_start * gpu.l2_latency


def _loaded(
    s: SimtGemm, loop: _Loop, gpu: GpuSpec, c: Corrections
) -> tuple[Array, Array]:
    """(bytes asked of L2, bytes from DRAM) of the operands."""
    e, sides, k = _rates.bytes_of(s.dtype), s.tile_m + s.tile_n, s.k / loop.split
    # rows of A and B that a wave touches / those that its CTAs ask for
    wave = jnp.minimum(gpu.num_sms * loop.resident, loop.ctas)
    touched = s.tile_n * jnp.minimum(wave, loop.across)
    touched += s.tile_m * smooth.at_least_one(wave / loop.across)
    unique = jnp.minimum(touched / (wave * sides), 1.0)
    loads = loop.ctas * sides * k * e
    once = s.batch * (s.m + s.n) * s.k * e
    pressure = once / (once + gpu.l2_capacity)
    # CTAs drift apart along k until L2 loses the window that they have in common
    window = c.simt_drift * k * wave * unique * sides * e
    lost = smooth.miss(window, gpu.l2_capacity, 2.0)
    again = jnp.maximum(loads * unique - once, 0.0)
    lost_bytes = jnp.maximum(loads - jnp.maximum(loads * unique, once), 0.0) * lost
    return loads, once + pressure * (again + lost_bytes * (1 + s.linear))
