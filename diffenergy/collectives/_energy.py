"""Energy of a schedule: links passed, memory at each hop that stores, waiting GPUs.

    E = sum over sends  8 bytes e_link
      + sum over sends  bytes m ([begins at a GPU] + [ends at a GPU])
      + GPUs x (idle + leakage power) x finish

with e_link in J/bit of the link's medium, and m in J/B of the GPU's DRAM and the L2
path to it, from the GPU model. A hop from GPU to GPU, straight or through switches,
costs twice the memory energy: read where it begins, written where it ends. A block that
a switch copies is read once and written by every taker. Relays store nothing.

Not in it: the adding of sums (the receiver's own summand is not read again), the copy
kernels' SMs, and what switches and NICs draw when nothing passes. Links carry the
bracket of their sources; memory and idle are best guesses without one.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..hardware import GpuSpec, OperatingPoint, relative_voltage
from ..physics import static_power, with_corrections
from ._schedule import Schedule
from ._topology import Topology

# --- What a GPU draws while a collective runs, and the best SM clock to wait at.
#
# Idle and leakage power are those of `physics.static_power`, the price of a byte of
# memory traffic that of `physics.power.launch_energy`, both with the corrections of
# the GPU.

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
        """DRAM and L2 together (J/B)."""
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
    hertz = jnp.asarray(clocks)
    power, _ = _standing(gpu, hertz, jnp.full_like(hertz, load))
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


# --- Energy of a schedule

_BITS: Final = 8.0  # of a byte


@dataclasses.dataclass(frozen=True)
class Joules:
    """Best guess of an energy and the bracket of its sources (J)."""

    typical: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class CollectiveEnergy:
    """Energy of a schedule, J, by what takes it.

    `links`: by medium. `dram`, `l2`: memory traffic; `idle`: `gpus` times `idle_power`
    (W, at SM `clock`, Hz) over `finish` (s). These are None where the GPU is not known.
    """

    links: Mapping[str, Joules]
    finish: float
    gpus: int
    dram: float | None = None
    l2: float | None = None
    idle: float | None = None
    idle_power: float | None = None
    clock: float | None = None

    @property
    def moved(self) -> Joules:
        """Energy of the links alone (J)."""
        rows = [dataclasses.astuple(part) for part in self.links.values()]
        return Joules(*np.array(rows, float).reshape(-1, 3).sum(axis=0).tolist())

    @property
    def active(self) -> float:
        """Energy of links and memory, as far as known, without waiting GPUs (J)."""
        return self.moved.typical + (self.dram or 0.0) + (self.l2 or 0.0)

    @property
    def total(self) -> Joules | None:
        """Energy of links, memory and idle GPUs (J); None without a known GPU."""
        if self.dram is None or self.l2 is None or self.idle is None:
            return None
        rest, moved = self.dram + self.l2 + self.idle, self.moved
        return Joules(moved.typical + rest, moved.low + rest, moved.high + rest)


def schedule_energy(
    schedule: Schedule,
    gpu: GpuSpec | None,
    finish: float | None = None,
) -> CollectiveEnergy:
    """Energy of `schedule` with all GPUs waiting at the highest SM clock that is
    applied; `finish` (s; None: the last end) of what is verified.

    >>> from diffenergy.collectives._demands import demand
    >>> from diffenergy.collectives._greedy import greedy
    >>> from diffenergy.collectives._topology_files import load_topology
    >>> machine = load_topology("dgx1")
    >>> result = greedy(machine, demand("all_gather", machine, "8MB"))
    >>> round(schedule_energy(result, None).moved.typical, 5)  # 56 MB x 7.5 pJ/bit
    0.00336
    """
    topology, sends = schedule.topology, schedule.sends
    passed = np.bincount(sends.link, sends.bytes, len(topology.links))
    links = _by_medium(topology, passed)
    end = schedule.last_end if finish is None else finish
    gpus = waiting_gpus(topology)
    if gpu is None:
        return CollectiveEnergy(links, end, gpus)
    price, clock = memory_price(gpu), float(gpu.sm_clock_applied_max)
    stored = float(passed @ _memory_ends(topology))
    load = stored * price.byte / (end * gpus) if end > 0 else 0.0
    waiting = float(idle_power(gpu, np.array([clock]), load)[0])
    dram, l2, idle = stored * price.dram, stored * price.l2, gpus * waiting * end
    return CollectiveEnergy(links, end, gpus, dram, l2, idle, waiting, clock)


def schedule_wait_clock(
    schedule: Schedule,
    gpu: GpuSpec,
    latency: float = 0.0,
    finish: float | None = None,
) -> WaitClock:
    """The best SM clock for the GPUs of a schedule to wait at (`best_wait_clock`), high
    enough for copy kernels to fill the links of any GPU. `latency`: s that a change of
    clocks takes."""
    energy = schedule_energy(schedule, gpu, finish=finish)
    topology, time = schedule.topology, energy.finish * energy.gpus
    stored = (energy.dram or 0.0) + (energy.l2 or 0.0)
    out = np.bincount(topology.sources, topology.rates, len(topology.nodes))
    into = np.bincount(topology.targets, topology.rates, len(topology.nodes))
    return best_wait_clock(
        gpu,
        energy.finish,
        energy.gpus,
        rate=float(np.maximum(out, into)[topology.gpus].max()),
        load=stored / time if time > 0 else 0.0,
        latency=latency,
    )


def waiting_gpus(topology: Topology) -> int:
    """GPUs that draw power: also those that only relay (`gpu0` of a published
    machine)."""
    return sum(
        node.kind == "gpu" or node.name.startswith("gpu") for node in topology.nodes
    )


def _memory_ends(topology: Topology) -> Float[np.ndarray, " link"]:
    """How often a byte on each link is read or written in a GPU: once for each end that
    stores."""
    stores = topology.stores.astype(float)
    return stores[topology.sources] + stores[topology.targets]


def byte_prices(
    topology: Topology, memory: MemoryPrice | None
) -> Float[np.ndarray, " link"]:
    """J of a byte over each link, with the memory at its ends (None: links alone)."""
    bit = np.array([link.energy.typical for link in topology.links], float)
    price = 0.0 if memory is None else memory.byte
    return _BITS * bit + price * _memory_ends(topology)


def schedule_price(schedule: Schedule, prices: Float[np.ndarray, " link"]) -> float:
    """Energy of all sends at `prices` (J/B of each link), in J."""
    sends = schedule.sends
    return float(np.sum(sends.bytes * prices[sends.link]))


def energy_rows(energy: CollectiveEnergy) -> dict[str, Any]:
    """Energy as JSON; null is what is not known."""
    total = energy.total
    covers = "links, memory and idle"
    if total is None:
        covers = "links alone: the GPU is not known; name one with --gpu"
    return {
        "total_j": None if total is None else dataclasses.asdict(total),
        "covers": covers,
        "links_j": {
            medium: dataclasses.asdict(part) for medium, part in energy.links.items()
        },
        "dram_j": energy.dram,
        "l2_j": energy.l2,
        "idle_j": energy.idle,
        "idle_power_w": energy.idle_power,
        "sm_clock_hz": energy.clock,
        "gpus": energy.gpus,
        "finish_s": energy.finish,
    }


def _by_medium(
    topology: Topology, passed: Float[np.ndarray, " link"]
) -> dict[str, Joules]:
    """J of what each link passed (B), added up by medium; media that nothing passed are
    left out."""
    media = np.array([link.medium for link in topology.links])
    brackets = [
        (link.energy.typical, link.energy.low, link.energy.high)
        for link in topology.links
    ]
    energy = _BITS * passed[:, None] * np.array(brackets, float).reshape(-1, 3)
    return {
        str(medium): Joules(*energy[media == medium].sum(axis=0).tolist())
        for medium in np.unique(media[passed > 0])
    }
