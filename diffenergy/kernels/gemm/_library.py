"""Demand of a library's product: rates, path, energy of each candidate.

**Operand feed**: small tiles do not keep the matrix pipe busy,

    efficiency = tensor_efficiency x dtype
                 x tile_m/(tile_m + h) x tile_n/(tile_n + h) / slow
    h    = operand_half_tile x peak e/4096        slow = 1 + misalignment a
    a    = log2(8/gcd(d, 8))/3 of the worse d of n and k
                                       (16-bit tensor kernels; 1 where odd)
    feed = sm_feed/slow                flow = in_flight x smem_per_sm/228 KiB
    path = steps step_cycles step e/128
                                       (CUDA cores: steps fma_step_cycles step/8)

`peak e` is in proportion to the operand bytes that the matrix pipe eats in a cycle
(4096 on an A100 in bf16), so that bf16, fp8 and tf32 share one number. Its prior is
narrow, since fits let it run away together with `tensor_efficiency`, and wgmma has a
factor of its own. `feed` is what one SM pulls from L2, `flow` what it can keep in
flight from DRAM, both in B/cycle/SM: Little's law (bytes in flight = rate x latency),
with shared memory as the buffer.

Fixed costs: `own_cycles` per CTA, `gemm_cycles` per launch (x `gemm_eager` in eager
passes), and for split K a second launch and `split_cycles`. The energy of a padded FLOP
is 30 % of a useful one: J/FLOP x (0.3 + 0.7 m n/(padded m n)); the 30 % is rounded from
fitted decode attention (0.26 of 0.5 pJ).

**8-bit operands**: activations of products with weights are quantised by a launch of
their own (reads 2 B, writes 1 B, 8 lane instructions an element, one CTA a token) on
GPUs that multiply the type. 8-bit library kernels never split K, unless the caller says
so.

**MMA kinds are a chain** mma.sync -> wgmma -> tcgen05: a kind has the factors of those
before it and its own on top, so that Blackwell begins where Hopper ends (Constants).
Systolic arrays (TPU, Trainium, Gaudi) stand apart: their factors act on those of
mma.sync, and an "SM" is a core that owns its vector memory. A tile costs `own_cycles`,
a grid step of the core; of a given `tile_k` each of its k/tile_k steps does.
Kinds differ in `operand_half_tile`, `sm_feed`, `in_flight`, `own_cycles`,
`step_cycles`, `gemm_cycles`, `store_exposed`, `stream_feed` and `tensor_efficiency`.
"""

from typing import Final

import jax.numpy as jnp
from jax import Array

from ...corrections import Corrections
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from .. import _rates
from .._launch import with_candidates
from ._main_loop import MainLoop, main_loop
from ._operands import Types, fragment_reads, misalignment, scalar_issue, types
from ._shape import Gemm
from ._traffic import traffic

_GATHERED: Final = 5.5
"""B/cycle/SM of operands in the first layer of a vision transformer: cudnn pads its
channels to 8, gathers them by 16 B, and converts image and weights before, all of which
this rate stands for (121 us of 4 images, 1,198 us of 128 on an H100, traces
of TimeSformer of AMD-AGI/TraceLens)."""


def demand(shape: Gemm, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work, geometry and path of each candidate; shape (kernels, candidates)."""
    s = with_candidates(shape)
    t = types(s, gpu)
    loop = main_loop(s, gpu, t)
    moved = traffic(s, loop, t, gpu, c)
    loads = loop.fetched * (loop.rows * t.e_a + loop.cols * t.e_b)
    reads_a, reads_b = fragment_reads(gpu, t.tensor, loop.tile_m, loop.tile_n)
    on_tensor, splits = t.tensor > 0, loop.split > 1
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    fma_efficiency = fma_efficiency * jnp.where(s.linear > 0, c.fma_linear, 1.0)
    slow = 1 + c.misalignment * misalignment(s, t.compute)
    eager = 1 + s.eager * (c.gemm_eager - 1)
    return make_demand(
        tensor=jnp.where(on_tensor, loop.flop, 0.0),
        fma=jnp.where(on_tensor, 0.0, loop.flop),
        issue=_issue(s, loop, t, gpu),
        smem=loop.flop / 2 * (t.e_a * reads_a + t.e_b * reads_b) + loads,
        l2=loads,
        **moved._asdict(),
        tensor_peak=_rates.tensor_peak(gpu, t.compute),
        tensor_efficiency=_rates.fed_efficiency(
            gpu, c, t.compute, loop.tile_m, loop.tile_n
        )
        / slow,
        fma_peak=fma_peak,
        fma_efficiency=fma_efficiency / slow,
        feed=jnp.where(loop.patches > 0, _GATHERED, c.sm_feed / slow),
        flow=c.in_flight * gpu.smem_per_sm / _rates.FLOW_SMEM * loop.in_flight,
        l2_sharing=c.tile_load_scale,
        ctas=loop.ctas,
        resident=loop.resident,
        own_cycles=c.own_cycles
        * jnp.where(gpu.is_systolic & (s.tile_k > 0), loop.steps, 1.0),
        path_cycles=loop.steps * (_step_cycles(loop, t, c) + loop.waits),
        fixed_cycles=c.gemm_cycles * eager + jnp.where(splits, c.split_cycles, 0.0),
        launches=jnp.where(splits, 2.0, 1.0),
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness,
        store_exposed=c.store_exposed,
        training=_rates.training(c, t.compute),
        tensor_energy=_rates.tensor_energy(c, t.compute)
        * _rates.padded_energy(loop.useful),
        activity=_rates.activity(c, s.zero_share),
        choice=-c.choice_split * jnp.log(loop.split),
        illegal=_illegal(s, loop, t),
        tau=jnp.where(on_tensor, c.choice_tau, c.choice_tau_fma),
    )


def _issue(s: Gemm, loop: MainLoop, t: Types, gpu: GpuSpec) -> Array:
    """Lane instructions beside the math: weights that are expanded, parts of 16 B."""
    expanded = loop.fetched * (
        loop.rows * _rates.expands(t.e_a, t.compute)
        + loop.cols * _rates.expands(t.e_b, t.compute)
    )
    elements = loop.fetched * (loop.rows + loop.cols)
    scalar = scalar_issue(s, gpu, t, elements, s.batch * s.m * s.n)
    return _rates.EXPANSION * expanded + scalar


def _step_cycles(loop: MainLoop, t: Types, c: Corrections) -> Array:
    """Cycles of a step of a CTA alone."""
    return jnp.where(
        t.tensor > 0,
        c.step_cycles * loop.step * t.e / 128,
        c.fma_step_cycles * loop.step / 8,
    )


def _illegal(s: Gemm, loop: MainLoop, t: Types) -> Array:
    """1 where no library has the candidate: 8-bit kernels never split K by
    themselves."""
    whole = (loop.split == 1) | (t.e >= 2) | (s.split_k > 0)
    return 1 - loop.legal * jnp.where(whole, 1.0, 0.0)
