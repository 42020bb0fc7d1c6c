"""What a GPU draws while a collective runs, and the best SM clock to wait at.

Idle and leakage power are those of `physics.static_power`, the price of a byte of
memory traffic that of `physics.power.launch_energy`, both with the corrections of
the GPU.
"""

import dataclasses
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...hardware import GpuSpec, OperatingPoint, relative_voltage
from ...physics import static_power, with_corrections

_COPY_SMS: Final = 24.0
"""SMs that copy kernels hold: an estimate, as in `kernels.collective`."""
_BOTH_WAYS: Final = 2.0
"""Bytes through L2 per byte sent at full rate: a GPU receives as much at once."""


@dataclasses.dataclass(frozen=True)
class MemoryPrice:
    """J to read or write a byte in a GPU's memory: `dram` with its interface (own
    rail), `l2` for L2, network and SM path, which follows the core voltage."""

    dram: float
    l2: float

    @property
    def byte(self) -> float:
        """Both, J/B."""
        return self.dram + self.l2


@dataclasses.dataclass(frozen=True)
class WaitClock:
    """The SM clock at which the GPUs of a collective draw least.

    `clock`: Hz; `power`: W of one GPU at it. `floor`: Hz below which L2, or the SMs
    that copy, could not keep up with the GPU's links. `saved_power`: W of all GPUs
    against the highest clock; `saved_energy`: J over what is left of the finish when
    the change of clocks has acted (0 if nothing is).
    """

    clock: float
    power: float
    floor: float
    saved_power: float
    saved_energy: float


def supported_clocks(gpu: GpuSpec) -> Float[np.ndarray, " clock"]:
    """SM clocks that can be locked and are applied, Hz, rising."""
    low, top = float(gpu.sm_clock_min), float(gpu.sm_clock_max)
    step = float(gpu.sm_clock_step)
    clocks = top - step * np.arange(int((top - low) / step + 1e-6) + 1)
    applied = float(gpu.sm_clock_applied_max)
    return np.sort(clocks[clocks <= applied * (1 + 1e-9)])


def memory_price(gpu: GpuSpec, sm_clock: float | None = None) -> MemoryPrice:
    """J per byte of a GPU's memory at `sm_clock` (Hz; None: the highest), random
    data."""
    c = gpu.corrections
    clock = float(gpu.sm_clock_applied_max) if sm_clock is None else sm_clock
    volts = float(_standing(gpu, jnp.array([clock]), jnp.zeros(1))[1][0])
    dram = float(c.dynamic_energy) * float(c.energy_dram)
    core = float(c.dynamic_energy) * float(c.core_energy) * volts**2
    return MemoryPrice(dram, core * float(c.energy_l2))


def idle_power(
    gpu: GpuSpec, clocks: Float[np.ndarray, " clock"], load: float = 0.0
) -> Float[np.ndarray, " clock"]:
    """W of one GPU without work at SM `clocks` (Hz): idle and leakage, memory clock at
    its highest. `load`: W that work adds and that warms the board."""
    asked = jnp.asarray(clocks)
    power, _ = _standing(gpu, asked, jnp.full_like(asked, load))
    return np.asarray(power, float)


@jax.jit
def _standing(
    gpu: GpuSpec, clocks: Float[Array, " clock"], load: Float[Array, " clock"]
) -> tuple[Float[Array, " clock"], Float[Array, " clock"]]:
    """W of one GPU that stands still under `load` W, and its core voltage / V0."""
    c, alike = gpu.corrections, jnp.ones_like(clocks)
    fitted = with_corrections(gpu, c)
    point = OperatingPoint(clocks, alike * gpu.mem_clock, alike * gpu.tdp)
    idle, leakage, _ = static_power(fitted, c, clocks, load, point)
    return idle + leakage, relative_voltage(fitted, clocks, point.mem_locked)


def feeding_clock(gpu: GpuSpec, rate: float) -> float:
    """Lowest SM clock, Hz, at which a GPU can fill links of `rate` B/s a direction:
    what goes and what comes passes L2, and `_COPY_SMS` SMs load what goes as fast as
    they load tiles."""
    c = gpu.corrections
    l2 = float(gpu.l2_bytes_per_cycle) * float(c.l2_efficiency)
    sms = min(_COPY_SMS, float(gpu.num_sms)) * float(c.sm_feed)
    return rate * max(_BOTH_WAYS / l2, 1 / sms)


def best_wait_clock(
    gpu: GpuSpec,
    finish: float,
    gpus: int,
    *,
    rate: float = 0.0,
    load: float = 0.0,
    latency: float = 0.0,
) -> WaitClock:
    """The supported SM clock with least idle power over a collective of `finish` s.

    Assumed: the collective takes as long at every clock from the floor on. That is what
    the cost model of collectives says (its times change with no clock), and what holds
    where copy engines move the data; copy kernels need `feeding_clock` for links of
    `rate` B/s (0: copy engines), which is the floor here.

    Args:
        gpus: how many wait.
        load: W that the collective's memory traffic adds to a GPU.
        latency: s from the request of a clock until it acts
            (`hardware.switching.switch_latency`).
    """
    clocks = supported_clocks(gpu)
    floor = feeding_clock(gpu, rate)
    usable = clocks[clocks >= min(floor, float(clocks[-1]))]
    power = idle_power(gpu, usable, load)
    best = int(np.argmin(power))
    saved = gpus * float(power[-1] - power[best])
    left = max(finish - latency, 0.0)
    clock, least = float(usable[best]), float(power[best])
    return WaitClock(clock, least, floor, saved, saved * left)
