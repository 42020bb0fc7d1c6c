"""Hosts: how many GPUs share their links, by the shipped topologies."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, Final

from ...files import read_toml
from ...hardware import GpuCard, read_gpu
from .._plan import Plan
from .scheduled import gpus_of

_TOPOLOGIES: Final = Path(__file__).parents[2] / "data" / "topologies"
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
        """The same of a plan of training, whose collectives may pass between hosts."""
        self._check_number(plan)
        if plan.tp > self.size:
            raise ValueError(
                f"`plan` has tp={plan.tp}, but {self.name} has {self.size} GPUs that "
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
    found = re.fullmatch(r"(.+?)-(\d+)", topology)
    if topology in names:
        table, hosts = read(topology), 1
    elif found and found[1] in names:
        table, hosts = read(found[1]), int(found[2])
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
