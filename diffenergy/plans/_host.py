"""Hosts: how many GPUs share their links, by the shipped topologies."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, Final

from ..files import read_toml
from ..hardware import GpuCard
from ._plan import Plan

_TOPOLOGIES: Final = Path(__file__).parents[1] / "data" / "topologies"
_EXAMPLE: Final = "dgx-h100"
_USUAL: Final = {
    "a100-sxm-40gb": "dgx-a100",
    "a100-sxm-80gb": "dgx-a100",
    "h100-sxm": "dgx-h100",
    "h200-sxm": "dgx-h100",
    "b200-sxm": "dgx-b200",
    "b300": "dgx-b200",
    "gb200": "gb200-nvl72",
    "gb300": "gb200-nvl72",
}
"""Machine that a GPU is sold in; DGX H200 and B300 have the links of H100 and B200."""
_PLAIN: Final = 8
"""GPUs of any other host, on its own links or PCIe (usual servers: 8 boards)."""


@dataclasses.dataclass(frozen=True)
class Host:
    """`size` GPUs, each with a link of `rate` B/s a direction to all of the others
    (None: that of the GPU's file) and one of `network` B/s to other hosts (None: not
    known); `hosts`: how many there are (None: enough)."""

    name: str
    size: int
    rate: float | None = None
    network: float | None = None
    hosts: int | None = None

    def check(self, plan: Plan):
        """Raises `ValueError` if a plan needs more GPUs than there are, or exchanges
        something between hosts whose network is not known."""
        if self.hosts is not None and plan.gpus > self.size * self.hosts:
            raise ValueError(
                f"`plan` has {plan.gpus} GPUs, but `topology` {self.name} has "
                f"{self.size * self.hosts}; give a larger one, or fewer GPUs."
            )
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
        if self.hosts is not None and plan.gpus > self.size * self.hosts:
            raise ValueError(
                f"`plan` has {plan.gpus} GPUs, but `topology` {self.name} has "
                f"{self.size * self.hosts}; give a larger one, or fewer GPUs."
            )
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

    def far(self, plan: Plan) -> int:
        """Stages that begin in another host than that before."""
        each = self.size // max(plan.tp, plan.ep)
        return math.ceil(plan.pp / each) - 1 if each else plan.pp - 1


def host_of(card: GpuCard, topology: str | None = None) -> Host:
    """The host of a GPU: the usual one, or that of a `topology` (bundled name, NAME-N
    for N of them, or a .toml file).

    Raises `ValueError` for one that is unknown, or whose GPUs are not all alike.
    """
    if topology is None:
        name = _USUAL.get(card.served_as)
        if name is None:
            return Host(f"a host of {_PLAIN}", _PLAIN)
        return dataclasses.replace(_read(name), hosts=None)
    return _read(topology)


def _read(topology: str) -> Host:
    found = re.fullmatch(r"(.+?)-(\d+)", topology)
    names = _names()
    if topology in names:
        return _host(topology, topology, 1)
    if found and found[1] in names and 1 <= int(found[2]) <= 10_000:
        return _host(topology, found[1], int(found[2]))
    if topology.endswith(".toml"):
        return _of_table(topology, read_toml(Path(topology), "topology", _EXAMPLE), 1)
    raise ValueError(
        f"`topology` is '{topology}'; a plan knows {', '.join(_switched())}, each also "
        "as NAME-N for N of them, and .toml files."
    )


def _names() -> list[str]:
    return sorted(x.stem for x in _TOPOLOGIES.glob("*.toml"))


def _switched() -> list[str]:
    tables = {x: _table(x) for x in _names()}
    return [x for x, table in tables.items() if _link(table) is not None]


def _table(name: str) -> dict[str, Any]:
    return read_toml(_TOPOLOGIES / f"{name}.toml", "topology", _EXAMPLE)


def _host(topology: str, name: str, hosts: int) -> Host:
    return _of_table(topology, _table(name), hosts)


def _of_table(topology: str, table: dict[str, Any], hosts: int) -> Host:
    link = _link(table)
    if link is None:
        raise ValueError(
            f"`topology` is '{topology}', whose GPUs are not all behind one switch; a "
            f"plan knows {', '.join(_switched())}."
        )
    rails = table.get("rails", {})
    rates = [float(part["rate"]) for part in rails.values()]
    slowest = min(rates) if rates else None
    return Host(topology, int(table["gpus"]), float(link["rate"]), slowest, hosts)


def _link(table: dict[str, Any]) -> dict[str, Any] | None:
    """The link that every GPU has to the one switch; None in any other machine."""
    nodes, links = table.get("nodes", []), table.get("links", [])
    gpus = table.get("gpus")
    if not isinstance(gpus, int) or len(nodes) != 1 or len(links) != 1:
        return None
    alone = nodes[0].get("names") == "sw0" and table.get("chassis", 1) == 1
    return links[0] if alone and links[0].get("pairs") == f"0..{gpus - 1}-sw0" else None
