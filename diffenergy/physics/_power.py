"""Energy of a launch by unit, idle power, leakage, temperature.

Core energies are stated at the floor voltage V0 and scale with (V/V0)^2; DRAM and links
have their own rails. Equations: `docs/physics.md`, Power.
"""

import dataclasses
from typing import Final

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..corrections import Corrections
from ..hardware._spec import GpuSpec, OperatingPoint, idle_power, voltage
from ._demand import Demand
from ._timeline import Timing

COMPONENTS: Final = (
    "tensor", "fma", "sfu", "issue", "smem", "l2", "dram", "link", "clock_tree",
    "launch", "other", "idle", "leakage",
)  # fmt: skip
"""What the energy of a run is split into; all but the last two belong to launches."""
LAUNCH_COMPONENTS: Final = COMPONENTS[:-2]
STATIC: Final = slice(-2, None)
"""Idle and leakage among the `COMPONENTS`."""
MAX_TEMPERATURE: Final = 95.0
"""C; boards throttle before."""
LEAKAGE_REFERENCE: Final = 40.0
"""C; the idle table holds the leakage of a cold board."""
_STEPS: Final = 6


def with_corrections(gpu: GpuSpec, c: Corrections) -> GpuSpec:
    """`gpu` with the V(f) curve that the constants make of the one in its file."""
    return dataclasses.replace(
        gpu,
        vf_knee_clock=gpu.vf_knee_clock * c.voltage_knee,
        vf_slope=gpu.vf_slope * c.voltage_slope,
        vf_curvature=gpu.vf_curvature * c.voltage_curvature,
    )


def launch_energy(
    demand: Demand,
    timing: Timing,
    c: Corrections,
    clock: Float[Array, "*batch"],
    core: Float[Array, "*batch"],
) -> tuple[Array, ...]:
    """Energy of one launch beyond idle, J, in the order of `LAUNCH_COMPONENTS`.

    `core`: factor of core energies, (V/V0)^2 times the design's `core_energy`.
    """
    d = demand
    core = core * c.dynamic_energy
    live = core * d.activity
    return (
        live * d.math_activity * d.tensor_energy * d.tensor,
        live * d.math_activity * c.energy_fma * d.fma,
        live * c.energy_sfu * d.sfu,
        live * c.energy_issue * d.issue,
        live * c.energy_smem * d.smem,
        live * c.energy_l2 * (d.l2 + d.store_l2),
        c.dynamic_energy * d.activity * c.energy_dram * (d.dram + d.store_dram),
        d.activity * c.energy_link * d.link,
        core * c.sm_clock_energy * timing.active_sms * clock * timing.time,
        core * (d.launches * c.energy_launch + d.ctas * c.energy_tile),
        core * d.other_energy,
    )


def leakage_growth(c: Corrections, temperature: Array) -> Array:
    """exp((T - 40)/efold): leakage at `temperature` (C) over that of the idle table."""
    hot = jnp.minimum(temperature, MAX_TEMPERATURE)
    return jnp.exp((hot - LEAKAGE_REFERENCE) / c.leakage_efold)


def static_power(
    gpu: GpuSpec, c: Corrections, clock: Array, load: Array, point: OperatingPoint
) -> tuple[Array, Array, Array]:
    """(idle without leakage, W, leakage, W, temperature, C) at `clock` under `load` W
    of work.

    Of the board's constant idle power the share `memory_idle` follows the memory clock.
    Leakage = L b V^4 exp((T - 40)/efold) with the leakage b V^4 of the idle table,
    which is that of a cold board, and L = `leakage`. Where `point.temperature` is not
    given, T is the fixed point of T = ambient + R P (six steps).
    """
    slower = 1 - point.mem_clock / gpu.mem_clock
    memory = gpu.idle_constant * c.memory_idle * slower
    idle = c.idle_scale * (idle_power(gpu, clock, point.mem_locked) - memory)
    cold = c.leakage * gpu.idle_leakage * voltage(gpu, clock, point.mem_locked) ** 4
    idle = idle - cold
    temperature = gpu.ambient_temperature + gpu.thermal_resistance * (load + idle)
    for _ in range(_STEPS):
        power = load + idle + cold * leakage_growth(c, temperature)
        temperature = gpu.ambient_temperature + gpu.thermal_resistance * power
    known = ~jnp.isnan(point.temperature)
    given = jnp.where(known, point.temperature, LEAKAGE_REFERENCE)
    temperature = jnp.where(known, given, temperature)
    return idle, cold * leakage_growth(c, temperature), temperature
