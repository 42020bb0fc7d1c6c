"""The main loop of a library's product: tiles, CTAs, steps over k, stages.

C[m, n] = A[m, k] B[k, n], `batch` times, for one candidate (tile_m, tile_n, split s):

    step    = 128 B/e (wgmma, tcgen05), 64 B/e (mma.sync), 256 B/e (systolic),
              8 (CUDA cores), or `tile_k`
    s       = min(s, ceil(k/step))
    tiles_x = ceil(x/tile_x)    steps = ceil(k/(s step))
    ctas    = batch tiles_m tiles_n s
    threads = 128; 256 where tile_m tile_n > 128^2 and on CUDA cores; or given
    acc = tile_m tile_n/threads    registers = min(acc + 4 sqrt(acc) + 24, 255)
    stages = 4 (tensor), 2 (CUDA cores), or given
    smem_per_cta = stages (tile_m + tile_n) step e
    resident = max(1, floor(min(registers_per_sm/(registers threads),
                                max_threads_per_sm/threads,
                                smem_per_sm/(smem_per_cta + 1 KiB), max_ctas_per_sm)))
    FLOP    = ctas steps 2 tile_m tile_n step                               (executed)
    loads   = ctas steps (min(tile_m, m) + min(tile_n, n)) min(step, k) e (asked of L2)
    smem    = FLOP/2 e (1/rows + 1/cols) + loads

*Resident CTAs* is the occupancy rule of CUDA; the register rule is fitted by this
project.

*Stages*: with S of them S - 1 loads are under way, so a step of the main loop waits for
1/(S - 1) of a latency, and fewer bytes are in flight. Only where a caller gives
`stages`:

    ahead = (S - 1) tile_k/step
    usual = min(4 (2 on CUDA cores), as many as fit, at least 2) - 1
    path  = steps (step_cycles step e/128
                   + l2_latency tile_k/step max(1/ahead - 1/usual, 0))
    flow  = flow min(resident ahead/(resident at the usual depth x usual), 1)

with `step` the default one. No measurement at hand carries the stages of a kernel, so
the rule is Little's law with the latency of the GPU file and nothing fitted: fewer
stages than the fits assume cost time, more gain none.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ... import smooth
from ...hardware import GpuSpec
from ...records import as_float
from .. import _rates
from .._residency import resident_ctas
from ._menu import candidates
from ._operands import Types
from ._shape import Gemm

_STEP_BYTES = (64.0, 128.0, 128.0, 256.0)
"""Bytes of k of a main-loop step by MMA kind: mma.sync; wgmma and tcgen05 (one line of
a bulk copy: its 128 B swizzle); 128 rows of 16-bit weights in a systolic array."""
_STEP_FMA = 8.0
"""Elements of k of a step on CUDA cores (CUTLASS: `simt_sgemm_.._8x4`)."""
_STAGES = (2.0, 4.0)
"""Stages of libraries' kernels: CUDA cores, tensor cores. Estimates: nobody recorded
them; constants are fitted on these."""
_LARGE_TILE = 128 * 128
"""Elements of a tile beyond which a CTA has 256 threads (CUTLASS's defaults)."""
_MOST_REGISTERS = 255.0
"""Registers of a thread (CUDA)."""


class MainLoop(NamedTuple):
    """Tiles and main loop of each candidate; axes (kernel, candidate)."""

    m: Array
    n: Array
    k: Array
    """Elements, padded channels of patches included."""
    patches: Array
    """Padded channels / channels of patches gathered by 16 B, else 0."""
    tile_m: Array
    tile_n: Array
    tiles_m: Array
    tiles_n: Array
    split: Array
    legal: Array
    step: Array
    """Elements of k of a step."""
    steps: Array
    ctas: Array
    resident: Array
    """CTAs that an SM holds."""
    waits: Array
    """Cycles that a step waits beyond what fits have seen."""
    in_flight: Array
    """Share of the usual bytes in flight."""

    @property
    def flop(self) -> Array:
        """FLOP that are executed."""
        return self.ctas * 2 * self.tile_m * self.tile_n * self.step * self.steps

    @property
    def fetched(self) -> Array:
        """Elements of k that CTAs fetch of a row of A or a column of B."""
        return self.ctas * self.steps * jnp.minimum(self.step, self.k)

    @property
    def rows(self) -> Array:
        """Rows of A of a tile."""
        return jnp.minimum(self.tile_m, self.m)

    @property
    def cols(self) -> Array:
        """Columns of B of a tile."""
        return jnp.minimum(self.tile_n, self.n)

    @property
    def useful(self) -> Array:
        """Share of the tiles' elements that is no padding."""
        return (
            self.m * self.n / (self.tiles_m * self.tile_m * self.tiles_n * self.tile_n)
        )


def main_loop(s: Gemm, gpu: GpuSpec, t: Types) -> MainLoop:
    """Tiles and main loop of each candidate."""
    tile_m, tile_n, split, legal = candidates(s, gpu, t.tensor)
    patches = jnp.where(gpu.copies_in_bulk, s.gathered, 0.0)
    k = s.k * _rates.or_default(patches, 1.0)
    of_kind = as_float(_STEP_BYTES)[jnp.round(gpu.mma_kind).astype(jnp.int32)]
    usual_step = jnp.where(t.tensor > 0, of_kind / t.e, _STEP_FMA)
    step = _rates.or_default(s.tile_k, usual_step)
    split = jnp.minimum(split, jnp.maximum(jnp.ceil(k / step), 1.0))
    tiles_m, tiles_n = smooth.ceil(s.m / tile_m), smooth.ceil(s.n / tile_n)
    steps = smooth.ceil(k / (split * step))
    resident, waits, in_flight = _occupancy(s, gpu, t, tile_m, tile_n, step, usual_step)
    return MainLoop(
        s.m, s.n, k, patches, tile_m, tile_n, tiles_m, tiles_n, split, legal,
        step, steps, s.batch * tiles_m * tiles_n * split, resident, waits, in_flight,
    )  # fmt: skip


def _occupancy(
    s: Gemm,
    gpu: GpuSpec,
    t: Types,
    tile_m: Array,
    tile_n: Array,
    step: Array,
    usual_step: Array,
) -> tuple[Array, Array, Array]:
    """(resident CTAs, cycles that a step waits, share of the usual bytes in flight).

    The latter two matter where stages are given: fits have seen libraries alone, whose
    depth nobody recorded (the usual stages, or as many as fit). More gain nothing.
    """
    usual_stages = jnp.where(t.tensor > 0, _STAGES[1], _STAGES[0])
    stages = _rates.or_default(s.stages, usual_stages)
    threads = jnp.where(tile_m * tile_n > _LARGE_TILE, 256.0, 128.0)
    threads = jnp.where(t.tensor > 0, threads, 256.0)
    threads = _rates.or_default(s.threads, threads)
    accumulators = tile_m * tile_n / threads
    registers = accumulators + 4 * jnp.sqrt(accumulators) + 24
    registers = jnp.minimum(registers, _MOST_REGISTERS)
    stage = tile_m * t.e_a + tile_n * t.e_b  # bytes of one element of depth

    def resident_at(depth: Array) -> Array:
        return resident_ctas(gpu, threads, registers, depth * stage)

    resident = resident_at(stages * step)
    fit = smooth.floor(gpu.smem_per_sm / (stage * usual_step))
    usual = jnp.maximum(jnp.minimum(usual_stages, fit), 2.0)
    ahead = (stages - 1) * step / usual_step  # usual steps under way
    ahead = jnp.maximum(ahead, 0.25)  # a search may try fewer than two stages
    exposed = gpu.l2_latency * jnp.maximum(1 / ahead - 1 / (usual - 1), 0.0)
    more = resident / resident_at(usual * usual_step)
    in_flight = jnp.minimum(more * ahead / (usual - 1), 1.0)
    has_stages = s.stages > 0
    waits = jnp.where(has_stages, exposed * step / usual_step, 0.0)
    return resident, waits, jnp.where(has_stages, in_flight, 1.0)
