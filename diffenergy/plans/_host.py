"""Hosts: how many GPUs share their links, by the shipped topologies."""

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from .. import collectives
from ..files import read_toml
from ..hardware import GpuCard, read_gpu
from ._plan import Plan

# --- Collectives on machines whose GPUs are not all behind one switch (rings, grids,
# DGX-1): as long as the schedules that `collectives` finds for them, all groups at
# once.

Teams = tuple[tuple[int, ...], ...]
"""GPUs of each group that runs a collective by itself, all at the same time."""

_CHUNKS: Final = 4
"""Parts that a GPU's share is sent in: with one, double links of a DGX-1 idle."""
_SMALL, _LARGE = 2.0**10, 2.0**24
"""B of such a part, between which time is a line."""
_GATHERS: Final = {"reduce_scatter": 1, "all_reduce": 2, "custom_all_reduce": 2}
"""All-gathers that take as long: a reduce-scatter is one run backwards."""


def gpus_of(machine: str) -> int:
    """GPUs of a machine: a name or file that `diffenergy collective` takes.

    Raises `ValueError` if there is none.
    """
    return len(collectives.load_topology(machine).gpus)


@functools.lru_cache(maxsize=256)
def line(machine: str, kind: str, teams: Teams) -> tuple[float, float]:
    """s, and s of a byte, that a collective takes: the line through two sizes of the
    greedy schedule, links at their published rates. "send_recv": every team is a
    (source, target), and the buffer what passes between them. Links are taken to be as
    fast in both directions.

    Raises `ValueError` for GPUs that cannot reach each other.
    """
    if kind in _GATHERS:
        latency, each = line(machine, "all_gather", teams)
        return _GATHERS[kind] * latency, _GATHERS[kind] * each
    parts = _CHUNKS * (1 if kind == "send_recv" else len(teams[0]))
    sizes = [parts * part for part in (_SMALL, _LARGE)]
    short, long = (_seconds(machine, kind, teams, size) for size in sizes)
    each = (long - short) / (sizes[1] - sizes[0])
    return max(short - each * sizes[0], 0.0), each


def _seconds(machine: str, kind: str, teams: Teams, size: float) -> float:
    options: dict[str, Any] = dict(
        chunks=_CHUNKS, search=collectives.Search(method="greedy")
    )
    if kind == "send_recv":
        number = gpus_of(machine)
        matrix = np.zeros((number, number))
        matrix[tuple(np.transpose(teams))] = size
        result = collectives.plan(machine, "all_to_all", matrix=matrix, **options)
    else:
        members = [list(team) for team in teams]
        result = collectives.plan(machine, kind, size, groups=members, **options)
    return float(result.finish)  # pyright: ignore[reportAttributeAccessIssue] one size


def teams(gpus: int, ranks: int, stride: int) -> Teams:
    """Groups of `ranks` GPUs, one every `stride`, among the first `gpus`.

    >>> teams(8, 2, 2)
    ((0, 2), (1, 3), (4, 6), (5, 7))
    """
    across = ranks * stride
    return tuple(
        tuple(range(first, first + across, stride))
        for start in range(0, gpus, across)
        for first in range(start, start + stride)
    )


def pairs(gpus: int, stride: int) -> Teams:
    """GPUs and those that have the next stage."""
    return tuple((i, i + stride) for i in range(gpus - stride))


# --- Hosts

_TOPOLOGIES: Final = Path(__file__).parents[1] / "data" / "topologies"
_EXAMPLE: Final = "dgx-h100"
_MOST: Final = 10_000
"""Of a machine."""


@dataclasses.dataclass(frozen=True)
class Host:
    """`size` GPUs, each with a link of `rate` B/s a direction to all of the others
    (None: that of the GPU's file) and one of `network` B/s to other hosts (None: not
    known); `hosts`: how many there are (None: enough). `machine`: that of `collectives`
    whose links they have, where it is not one switch."""

    name: str
    size: int
    rate: float | None = None
    network: float | None = None
    hosts: int | None = None
    machine: str = ""

    def check(self, plan: Plan):
        """Raises `ValueError` if a plan needs more GPUs than there are, or exchanges
        something between hosts whose network is not known."""
        self._check_number(plan)
        together = max(plan.tp, plan.ep)
        if self.network or (together <= self.size and not self.far(plan)):
            return
        tp = min(plan.tp, self.size)
        largest = Plan(tp, max(self.size // tp, 1))
        raise ValueError(
            f"`plan` is {plan.text}, but what its GPUs exchange has to stay in one "
            f"host of {self.name}, {self.size} GPUs, whose network is not known; the "
            f"largest such plan is {largest.text} (and any dp)."
        )

    def check_training(self, plan: Plan):
        """Raises `ValueError` for a plan of training that does not fit the machine; its
        collectives may pass between hosts."""
        self._check_number(plan)
        if plan.tp > self.size:
            raise ValueError(
                f"`tp` is {plan.tp}, but {self.name} has {self.size} GPUs that "
                "share their links; give at most as many."
            )
        if plan.gpus > self.size and not self.network:
            raise ValueError(
                f"`plan` has {plan.gpus} GPUs, but the network between hosts of "
                f"{self.name}, {self.size} GPUs each, is not known; give a `topology` "
                "that has one, or at most as many GPUs."
            )

    def _check_number(self, plan: Plan):
        if self.hosts is not None and plan.gpus > self.size * self.hosts:
            raise ValueError(
                f"`plan` has {plan.gpus} GPUs, but `topology` {self.name} has "
                f"{self.size * self.hosts}; give a larger one, or fewer GPUs."
            )

    def far(self, plan: Plan) -> int:
        """Stages that begin in another host than that before."""
        each = self.size // max(plan.tp, plan.ep)
        return math.ceil(plan.pp / each) - 1 if each else plan.pp - 1


def host_of(card: GpuCard, topology: str | None = None) -> Host:
    """The host of a GPU: the `machine` of its file, else that of its generation, or
    that of a `topology` (bundled name, NAME-N for N of them, what `diffenergy
    collective` takes, or a .toml file).

    Raises `ValueError` for one that is unknown.
    """
    if topology is None:
        kin = read_gpu(card.corrections) if card.corrections else card
        if name := card.machine or kin.machine:
            return dataclasses.replace(_read(name), hosts=None)
        family = card.generation
        return Host(f"a host of {family.gpus}", family.gpus, network=family.network)
    return _read(topology)


def _read(topology: str) -> Host:
    def read(name: str) -> dict[str, Any]:
        return read_toml(_TOPOLOGIES / f"{name}.toml", "topology", _EXAMPLE)

    names = [x.stem for x in _TOPOLOGIES.glob("*.toml")]
    several = re.fullmatch(r"(.+?)-(\d+)", topology)
    if topology in names:
        table, hosts = read(topology), 1
    elif several and several[1] in names:
        table, hosts = read(several[1]), int(several[2])
    elif topology.endswith(".toml"):
        table, hosts = read_toml(Path(topology), "topology", _EXAMPLE), 1
    else:
        table, hosts = {}, 1
    link = _link(table)
    if link is None:
        return Host(topology, gpus_of(topology), hosts=1, machine=topology)
    if not 1 <= hosts <= _MOST:
        raise ValueError(
            f"`topology` is '{topology}'; allowed are 1 to {_MOST:,} of a machine."
        )
    rates = [float(rail["rate"]) for rail in table.get("rails", {}).values()]
    slowest = min(rates, default=None)
    return Host(topology, int(table["gpus"]), float(link["rate"]), slowest, hosts)


def _link(table: dict[str, Any]) -> dict[str, Any] | None:
    """The link that every GPU has to the one switch; None in any other machine."""
    nodes, links = table.get("nodes", []), table.get("links", [])
    gpus = table.get("gpus")
    if not isinstance(gpus, int) or len(nodes) != 1 or len(links) != 1:
        return None
    alone = nodes[0].get("names") == "sw0" and table.get("chassis", 1) == 1
    return links[0] if alone and links[0].get("pairs") == f"0..{gpus - 1}-sw0" else None
