"""Kernels known only by how busy each unit was (DCGM or profiler activities).

A program known only by how busy each unit was (DCGM or profiler counters) over a
reference run: work = share x rate x cycles. Busy fp64 pipes count as `activity_fp64`
busy fp32 pipes, a branch as `activity_branch` integer instructions. What DRAM does not
explain of the reference time follows the SM clock; below `memory_knee` x the highest
clock DRAM falls faster than it (V100: below 1 GHz):

    G(f, f_m) = pnorm_3(f_m0/f_m, (knee/f)^1.5)^-1  rate of DRAM / at its default clock
    m = share_dram (f_m/f_m0)/(activity_dram G), kept below 1 by m (1 + m^12)^(-1/12)
    p = activity_sharpness       c = (1 - m^p)^(1/p)
    t(f) = pnorm_p(c t_ref f_ref/f, m t_ref G_ref/G)

**One power reading** of the reference run (`avg_power_ref_w`) says what the counters do
not: P_ref minus idle, leakage and the units' energy is core work, x t_ref/(V_ref/V0)^2
joules at V0 of either sign, component `other` of the energy. It takes the power of V100
and RTX 8000 programs at other clocks from 8 to 3 % (`calibration/README.md`). Without a
reference time only the power means something. These rows move factors of their own GPU
alone: what a busy cycle costs, by a counter, is not what work known from shapes costs.
V(f) enters them through `voltage_knee`, `voltage_slope` and `voltage_curvature`,
factors on the GPU file's curve where that is no measured table.
"""

import dataclasses
from typing import Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .. import smooth
from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint, relative_voltage, unit_rates
from ..physics import (
    FLOW_SHARPNESS,
    Demand,
    chip_temperature,
    launch_energy,
    make_demand,
    static_power,
    timing,
)
from ..records import Record, as_float
from ..units import MHz, us
from ._launch import Context, Fields, Launches, with_candidates
from ._ops import Field, Op

_SHARES: Final = {
    "fma": ("fp32_active", "util_fp32_add", "util_fp32_mul", "util_fp32_fma"),
    "fp64": ("fp64_active", "util_fp64_add", "util_fp64_mul", "util_fp64_fma"),
    "issue": ("util_int",),
    "branch": ("util_branch",),
    "sfu": ("util_sfu",),
    "smem": ("util_shared",),
    "l2": ("util_l2",),
    "dram": ("dram_active", "util_dram"),
}
"""Unit -> columns whose shares of peak add up to its activity."""
_ALL: Final = tuple(name for names in _SHARES.values() for name in names)
OPS: Final = (
    Op(
        "activity",
        (
            Field("sm_active", "share", 1.0, 0.0),
            Field("sm_occupancy", "share", 1.0, 0.0),
            *(Field(name, "share", 0.0, 0.0) for name in _ALL),
            Field("time_ref_us", default=0.0, minimum=0.0, whole=False),
            Field("avg_power_ref_w", default=0.0, minimum=0.0, whole=False),
            Field("sm_clock_ref_mhz", default=0.0, minimum=0.0, whole=False),
            Field("mem_clock_ref_mhz", default=0.0, minimum=0.0, whole=False),
        ),
    ),
)
KNEE_SLOPE: Final = 1.5
"""Power of the SM clock with which DRAM falls below `memory_knee`.

On a V100 programs take 1.0 (wide loads) to 1.7 (4-byte loads of many streams) from 705
to 502 MHz at constant DRAM traffic, and so do texture reads that L2 serves: the path
from L2 to the SMs gets slower than their clock. 1.3 to 1.6 predict left-out clocks and
programs alike.
"""
NOMINAL_TIME: Final = 1.0
"""Length of a program without a reference time, s: only its power means something."""


class Activity(Record):
    """Activities (0-1) of one run at its reference clock."""

    sm_active: Float[Array, "*k"] = eqx.field(converter=as_float)
    fma: Float[Array, "*k"] = eqx.field(converter=as_float)
    fp64: Float[Array, "*k"] = eqx.field(converter=as_float)
    issue: Float[Array, "*k"] = eqx.field(converter=as_float)
    branch: Float[Array, "*k"] = eqx.field(converter=as_float)
    sfu: Float[Array, "*k"] = eqx.field(converter=as_float)
    smem: Float[Array, "*k"] = eqx.field(converter=as_float)
    l2: Float[Array, "*k"] = eqx.field(converter=as_float)
    dram: Float[Array, "*k"] = eqx.field(converter=as_float)
    time: Float[Array, "*k"] = eqx.field(converter=as_float)  # s at the reference clock
    power: Float[Array, "*k"] = eqx.field(converter=as_float)
    """W of the board at the reference clocks; 0: not read."""
    sm_clock: Float[Array, "*k"] = eqx.field(converter=as_float)  # Hz; 0: the highest
    mem_clock: Float[Array, "*k"] = eqx.field(converter=as_float)  # Hz; 0: the default


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row."""
    columns = {
        unit: np.sum([np.asarray(fields[name], float) for name in names], axis=0)
        for unit, names in _SHARES.items()
    }
    time = np.asarray(fields["time_ref_us"], float) * us
    columns |= {
        "sm_active": fields["sm_active"],
        "time": np.where(time > 0, time, NOMINAL_TIME),
        "power": fields["avg_power_ref_w"],
        "sm_clock": np.asarray(fields["sm_clock_ref_mhz"], float) * MHz,
        "mem_clock": np.asarray(fields["mem_clock_ref_mhz"], float) * MHz,
    }
    return [Launches(Activity, columns, np.zeros_like(time), host="none")]


def demand(shape: Activity, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work = activity x rate x reference time; what DRAM does not explain of the
    reference time follows the SM clock, and so does, with the voltage, what the units
    do not explain of a reference power."""
    s = with_candidates(shape)
    clock = jnp.where(s.sm_clock > 0, s.sm_clock, gpu.sm_clock_max)
    mem_clock = jnp.where(s.mem_clock > 0, s.mem_clock, gpu.mem_clock)
    peak = unit_rates(gpu, clock, mem_clock)
    p = c.activity_sharpness
    reached = c.dram_efficiency * gpu.dram_bandwidth  # B/s at the default memory clock
    follows = c.memory_knee * gpu.sm_clock_max  # SM clock that limits DRAM to `reached`
    share = 1 / smooth.pnorm(
        (1 / peak.memory, (follows / clock) ** KNEE_SLOPE), FLOW_SHARPNESS
    )  # of `reached`
    busy = s.dram * peak.memory / (c.activity_dram * share)
    bound = busy * (1 + busy**12) ** (-1 / 12)  # stays below 1
    core = (1 + 1e-9 - bound**p) ** (1 / p)
    math = s.fma + c.activity_fp64 * s.fp64
    issued = s.issue + c.activity_branch * s.branch
    ctas = jnp.maximum(gpu.num_sms * s.sm_active, 1.0)
    explained = make_demand(
        fma=math * gpu.fma_flop_per_cycle_fp32 * peak.cycles * s.time,
        issue=issued * peak.issue * s.time,
        sfu=s.sfu * peak.sfu * s.time,
        smem=s.smem * peak.smem * s.time,
        l2=s.l2 * peak.l2 * s.time,
        dram=bound * share * reached * s.time,
        flow=reached / (jnp.minimum(ctas, gpu.num_sms) * follows**KNEE_SLOPE),
        flow_rise=KNEE_SLOPE - 1,
        fma_peak=gpu.fma_flop_per_cycle_fp32,
        fma_efficiency=1e3,  # the reference time, not the rates, says how long it takes
        sfu_efficiency=1e3,
        issue_efficiency=1e3,
        smem_efficiency=1e3,
        l2_sharing=1e3,
        ctas=ctas,
        quantization=0.0,
        path_cycles=core * s.time * clock,
        launches=0.0,
        sharpness_memory=p,
    )
    other = _unexplained(s, explained, gpu, c, clock, mem_clock)
    return dataclasses.replace(explained, other_energy=other)


def _unexplained(
    shape: Activity, d: Demand, gpu: GpuSpec, c: Corrections, clock: Array, mem: Array
) -> Array:
    """Core energy (J at V0, of either sign) that the reference power shows beyond the
    units, 0 without one."""
    core = relative_voltage(gpu, clock, 0.0) ** 2 * c.core_energy  # as at `point`
    times = timing(d, gpu, c, clock, mem)
    load = sum(launch_energy(d, times, c, clock, core)) / times.time
    warm = chip_temperature(gpu, shape.power)
    point = OperatingPoint(clock, mem, shape.power, warm)
    idle, leakage, _ = static_power(gpu, c, clock, load, point)
    missing = (shape.power - load - idle - leakage) * times.time
    return jnp.where(shape.power > 0, missing / (core * c.dynamic_energy), 0.0)
