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

import numpy as np
from jaxtyping import Float

from ...hardware import GpuSpec
from .._machine.topology import Topology
from .._schedule.schedule import Schedule
from .idle import MemoryPrice, WaitClock, best_wait_clock, idle_power, memory_price

_BITS: Final = 8.0  # of a byte


@dataclasses.dataclass(frozen=True)
class Joules:
    """A best guess and the bracket of its sources, J."""

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
        """Links alone."""
        rows = [dataclasses.astuple(part) for part in self.links.values()]
        return Joules(*np.array(rows, float).reshape(-1, 3).sum(axis=0).tolist())

    @property
    def active(self) -> float:
        """Links and memory, as far as they are known: what no waiting GPU draws."""
        return self.moved.typical + (self.dram or 0.0) + (self.l2 or 0.0)

    @property
    def total(self) -> Joules | None:
        """Links, memory and idle; None where the GPU is not known."""
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

    >>> from diffenergy.collectives._demand.demands import demand
    >>> from diffenergy.collectives._listing.greedy import greedy
    >>> from diffenergy.collectives._machine.topology_files import load_topology
    >>> machine = load_topology("dgx1")
    >>> found = greedy(machine, demand("all_gather", machine, "8MB"))
    >>> round(schedule_energy(found, None).moved.typical, 5)  # 56 MB x 7.5 pJ/bit
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
    """J of all sends at `prices` (J/B of each link)."""
    sends = schedule.sends
    return float(np.sum(sends.bytes * prices[sends.link]))


def energy_rows(energy: CollectiveEnergy) -> dict[str, Any]:
    """The record for JSON; null is what is not known."""
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
