"""From demand to the time of a launch: units, resident CTAs, waves, memory, launch.

A CTA has two numbers, `busy` (work of the units of its SM, which adds up over resident
CTAs) and `path`, its critical path alone; a kernel is full rounds of resident CTAs plus
a rest. The form (throughput and latency of an SM, rounds and a rest) was found by this
project on the public Kernel Tuner measurements of CLBlast's GEMM tiles (seven GPUs) and
on NeuSight's library GEMMs.
"""

from typing import Final

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .. import smooth
from ..corrections import Corrections
from ..hardware import GpuSpec, unit_rates
from ..records import Record
from ._demand import UNITS, Demand

FLOW_SHARPNESS: Final = 3
"""Sharpness between DRAM bandwidth and bytes in flight (Little's law)."""


class Timing(Record):
    """Time of one launch and where it goes, s."""

    time: Float[Array, "*batch"]  # whole launch, launch cost included
    launch: Float[Array, "*batch"]  # launch cost
    active_sms: Float[Array, "*batch"]  # SMs that hold CTAs, mean over the kernel


def cta_cycles(
    demand: Demand, gpu: GpuSpec, clock: Float[Array, "*batch"]
) -> tuple[Array, Array]:
    """(busy, path) of the mean CTA's main loop, SM cycles at `clock` (Hz).

    Work below is that of the launch/ctas; math and the rest share the issue slots:

        math   = tensor/(tensor_peak tensor_efficiency) + fma/(fma_peak fma_efficiency)
        issued = pnorm_12(math, issue/issue_slots_per_cycle)
        busy   = pnorm_sharpness(issued, sfu/(sfu_ops_per_cycle sfu_efficiency),
                                 smem/smem_bytes_per_cycle, l2/feed)
        path   = path_cycles + path_seconds f
    """
    d, share = demand, 1 / demand.ctas
    math = d.tensor / (d.tensor_peak * d.tensor_efficiency)
    math += d.fma / (d.fma_peak * d.fma_efficiency)
    slots = gpu.issue_slots_per_cycle * d.issue_efficiency
    instructions = (d.issue + d.math_issue) * share
    issued = smooth.pnorm((math * share, instructions / slots), d.sharpness_issue)
    busy = smooth.pnorm(
        (
            issued,
            d.sfu * share / (gpu.sfu_ops_per_cycle * d.sfu_efficiency),
            d.smem * share / (gpu.smem_bytes_per_cycle * d.smem_efficiency),
            d.l2 * share / d.feed,
        ),
        d.sharpness,
    )
    return busy, d.path_cycles + d.path_seconds * clock


def sm_cycles(
    demand: Demand, gpu: GpuSpec, busy: Array, path: Array
) -> tuple[Array, Array]:
    """(cycles until the last CTA ends, waves): full rounds, rest, tail.

    n CTAs on an SM take T(n); neighbours hide the own part. Per SM
    c = max(1, ceil(ctas/N)) CTAs, r = min(resident, c):

        T(n)  = pnorm_sharpness(n busy, path) + own/n
        full  = floor(c/r)       rest = c - full r         waves = full + min(rest, 1)
        equal = full T(r) + T(rest)                        rounds of equal CTAs
        even  = max(ctas/(N r) T(r), T(1))                 perfectly spread
        long  = pnorm_sharpness(longest busy, path) + own
        alike = (T(1)/long)^4                              few = ctas/(ctas + N)
        cycles = max(even + quantization alike (equal - even)
                     + tail (1 - alike) long few, long)

    `quantization` is the share of a part-filled wave that is paid: all of it for GEMM
    (static grids), a fitted share for attention and MoE (persistent CTAs), none for
    streams. `tail` (`prefill_tail`) is what a list schedule of unequal CTAs leaves at
    the end.
    """
    own = demand.own_cycles

    def rounds(n: Array) -> Array:
        return smooth.pnorm((n * busy, path), demand.sharpness) + own / n

    per_sm = smooth.at_least_one(smooth.ceil(demand.ctas / gpu.num_sms))
    resident = jnp.minimum(demand.resident, per_sm)
    full = smooth.floor(per_sm / resident)
    rest = per_sm - full * resident
    waves = full + jnp.minimum(rest, 1.0)
    alone = rounds(jnp.ones_like(busy))
    equal = full * rounds(resident) + jnp.where(
        rest > 0, jnp.minimum(rest, 1.0) * rounds(smooth.at_least_one(rest)), 0.0
    )
    even = demand.ctas / (gpu.num_sms * resident) * rounds(resident)
    even = jnp.maximum(even, alone)
    longest = smooth.pnorm((demand.longest * busy, path), demand.sharpness) + own
    alike = (alone / longest) ** 4
    few = demand.ctas / (demand.ctas + gpu.num_sms)
    cycles = (
        even
        + demand.quantization * alike * (equal - even)
        + demand.tail * (1 - alike) * longest * few
    )
    return jnp.maximum(cycles, longest), waves


def timing(
    demand: Demand, gpu: GpuSpec, c: Corrections, clock: Array, mem_clock: Array
) -> Timing:
    """Time of each launch at `clock` and `mem_clock` (Hz, shaped like the demand).

        l2_rate, dram_rate = peak rates at these clocks (`hardware.unit_rates`)
                             x l2_efficiency, dram_efficiency
        exposed   = 1/waves + (1 - 1/waves) store_exposed
                    (the last wave's stores stand alone)
        memory    = pnorm_3((dram + (1 - exposed) store_dram)/dram_rate,
                            the same/(flow f^flow_rise min(ctas, N) f))
        side      = pnorm_sharpness(cycles/f, l2/(l2_sharing l2_rate))
        main      = pnorm_sharpness_memory(side, memory)
        store     = pnorm_3(store_l2/l2_rate, store_dram/dram_rate)
        launch    = launches (launch_seconds + launch_cycles/f)
                    + fixed_cycles/f + fixed_seconds
        time      = main + exposed store + launch

    The second term of `memory` is Little's law: few CTAs cannot fill DRAM. `flow_rise`
    is 0 but for programs known by their activities.
    """
    d = demand
    busy, path = cta_cycles(d, gpu, clock)
    cycles, waves = sm_cycles(d, gpu, busy, path)
    peak = unit_rates(gpu, clock, mem_clock)
    l2_rate, dram_rate = c.l2_efficiency * peak.l2, c.dram_efficiency * peak.dram
    active = jnp.minimum(d.ctas, gpu.num_sms)
    # the last wave's stores stand alone; of earlier ones a share overlaps other tiles
    exposed = 1 / waves + (1 - 1 / waves) * d.store_exposed
    dram = d.dram + (1 - exposed) * d.store_dram
    flow = d.flow * clock**d.flow_rise  # B/cycle/SM
    memory = smooth.pnorm(
        (dram / dram_rate, dram / (flow * active * clock)), FLOW_SHARPNESS
    )
    # what one SM pulls and what L2 gives are one path: they bind like units of an SM
    side = smooth.pnorm((cycles / clock, d.l2 / d.l2_sharing / l2_rate), d.sharpness)
    main = smooth.pnorm((side, memory), d.sharpness_memory)
    store = smooth.pnorm(
        (d.store_l2 / l2_rate, d.store_dram / dram_rate), FLOW_SHARPNESS
    )
    launch = d.launches * (c.launch_seconds + c.launch_cycles / clock)
    launch = launch + d.fixed_cycles / clock + d.fixed_seconds
    return Timing(main + exposed * store + launch, launch, active)


def unit_seconds(
    demand: Demand, gpu: GpuSpec, c: Corrections, clock: Array, mem_clock: Array
) -> tuple[Float[Array, " unit *batch"], Float[Array, " unit *batch"]]:
    """Time of each unit for one launch if nothing else took any, s: work/rate at its
    peak rate, and at the rate that it reaches; in the order of `UNITS`.

    Of L2, `l2_sharing` loads are one read; the math takes issue slots, too.
    """
    d, ones = demand, jnp.ones_like(clock)
    peak = unit_rates(gpu, clock, mem_clock)
    rates = (
        d.tensor_peak * peak.cycles, d.fma_peak * peak.cycles, peak.sfu, peak.issue,
        peak.smem, peak.l2 * d.l2_sharing, peak.dram, peak.link * ones,
    )  # fmt: skip
    l2 = jnp.minimum(c.l2_efficiency, d.feed * peak.cycles / peak.l2)
    reached = (
        d.tensor_efficiency, d.fma_efficiency, d.sfu_efficiency, ones, ones, l2,
        c.dram_efficiency * ones, ones,
    )  # fmt: skip
    work = d.work.at[UNITS.index("issue")].add(d.math_issue)
    seconds = work / jnp.stack(rates)
    return seconds, seconds / jnp.stack(reached)
