"""A phase beyond its kernels: the host that issues them, and what the board draws
whatever runs on it: idle power, leakage, and the temperature that leakage follows.

The host issues launches while the GPU runs earlier ones, so a phase takes the longer of
the two, rounded where they are close:

    t = (gpu^20 + host^20)^(1/20)
"""

from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .. import smooth
from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint, idle_power, unit_rates, voltage

HOST_SHARPNESS: Final = 20
"""Sharpness between host and GPU time of a phase."""
MAX_TEMPERATURE: Final = 95.0
"""C; boards throttle before."""
LEAKAGE_REFERENCE: Final = 40.0
"""C; the idle table holds the leakage of a cold board."""
_STEPS: Final = 6

Seconds = Float[np.ndarray, "..."] | float
"""Times of phases, or of one."""


class TimeEnergy(NamedTuple):
    """Time (s) and energy (J) of each run."""

    time: Array
    energy: Array


def phase_time(gpu: Float[Array, "*p"], host: Float[Array, "*p"]) -> Float[Array, "*p"]:
    """Time of phases (s) of which the GPU needs `gpu` and the host `host` s."""
    return smooth.pnorm((gpu, host), HOST_SHARPNESS)


# --- the same for solvers, on the host: value, slope, tangents and inverse


def stage_time(gpu: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """Time of stages (s): (gpu^20 + host^20)^(1/20), free of scale."""
    top = np.maximum(gpu, host)
    ratio = np.minimum(gpu, host) / np.where(top > 0, top, 1.0)
    return np.asarray(top * (1 + ratio**HOST_SHARPNESS) ** (1 / HOST_SHARPNESS))


def stage_slope(gpu: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """d stage time / d GPU time, 0-1."""
    time = stage_time(gpu, host)
    share = np.where(time > 0, gpu / np.where(time > 0, time, 1.0), 1.0)
    return np.asarray(share ** (HOST_SHARPNESS - 1))


def tangent_offset(slope: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """Largest c (s) with stage time >= slope x GPU time + c for every GPU time.

    The dual norm: host (1 - slope^q)^(1/q) with q = 20/19.
    """
    dual = HOST_SHARPNESS / (HOST_SHARPNESS - 1)
    return np.asarray(host * np.maximum(1 - slope**dual, 0.0) ** (1 / dual))


def gpu_time(time: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """GPU time (s) at which a stage takes `time`; negative if the host needs longer."""
    ratio = host / np.where(time > 0, time, 1.0)
    inside = time * np.maximum(1 - ratio**HOST_SHARPNESS, 0.0) ** (1 / HOST_SHARPNESS)
    return np.where(ratio < 1, inside, -1.0)


def gpu_time_of_slope(slope: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """GPU time (s) at which d stage time / d GPU time is `slope` (0-1)."""
    return np.asarray(
        host
        * (slope ** (-HOST_SHARPNESS / (HOST_SHARPNESS - 1)) - 1)
        ** (-1 / HOST_SHARPNESS)
    )


# --- what the board draws whatever runs


def leakage_growth(c: Corrections, temperature: Array) -> Array:
    """exp((T - 40)/efold): leakage at `temperature` (C) over that of the idle table."""
    hot = jnp.minimum(temperature, MAX_TEMPERATURE)
    return jnp.exp((hot - LEAKAGE_REFERENCE) / c.leakage_efold)


def static_power(
    gpu: GpuSpec, c: Corrections, clock: Array, load: Array, point: OperatingPoint
) -> tuple[Array, Array, Array]:
    """(idle without leakage, W, leakage, W, temperature, C) at `clock` under `load` W
    of work.

        table   = idle_scale (idle_constant + idle_clock V^2 f + idle_leakage V^4)
        cold    = `leakage` idle_leakage V^4            at 40 C, as the table is
        idle    = table - cold
        leakage = cold exp((T - 40 C)/leakage_efold)
        T       = given, or six fixed-point steps of ambient + thermal_resistance P

    Idle power follows the memory clock with the share `memory_idle` of its constant
    part. With one memory clock the two cannot be told apart.
    """
    slower = 1 - unit_rates(gpu, clock, point.mem_clock).memory
    memory = gpu.idle_constant * c.memory_idle * slower
    idle = c.idle_scale * (idle_power(gpu, clock, point.mem_locked) - memory)
    cold = c.leakage * gpu.idle_leakage * voltage(gpu, clock, point.mem_locked) ** 4
    idle = idle - cold
    temperature = chip_temperature(gpu, load + idle)
    for _ in range(_STEPS):
        power = load + idle + cold * leakage_growth(c, temperature)
        temperature = chip_temperature(gpu, power)
    fixed = ~jnp.isnan(point.temperature)
    fixed_temperature = jnp.where(fixed, point.temperature, LEAKAGE_REFERENCE)
    temperature = jnp.where(fixed, fixed_temperature, temperature)
    return idle, cold * leakage_growth(c, temperature), temperature


def waiting_power(
    gpu: GpuSpec, c: Corrections, clock: Array, point: OperatingPoint
) -> Array:
    """W of a board without work at `clock` (Hz): idle and leakage (see
    `static_power`)."""
    idle, leakage, _ = static_power(gpu, c, clock, jnp.zeros_like(clock), point)
    return idle + leakage


def chip_temperature(gpu: GpuSpec, power: Array) -> Array:
    """C of the chip of a board that draws `power` W."""
    return gpu.ambient_temperature + gpu.thermal_resistance * power
