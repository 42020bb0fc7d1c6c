"""`build`: a topology from the tables of its file, every entry checked."""

import difflib
import functools
import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from ..schema import Count, Finite, Flag, Table, Text, fitted
from ._topology import Energy, Link, Node, Topology

# --- Energy of a bit on a link by what the link is made of
# (`data/topologies/media.toml`).
#
# A medium is the sum of its parts: both ends of a link, a port of a switch, a NIC.

FILE: Final = Path(__file__).parents[1] / "data" / "topologies" / "media.toml"


@functools.cache
def media() -> Mapping[str, Energy]:
    """Energy of a bit on every bundled medium (J/bit), by name.

    >>> media()["nvlink3"].low, media()["nvlink3"].high
    (5e-12, 1e-11)
    """
    table = tomllib.loads(FILE.read_text())
    return {
        name: _sum([table["part"][part] for part in row["parts"]])
        for name, row in table["media"].items()
    }


def _sum(parts: list[dict[str, Any]]) -> Energy:
    low = sum(part["low"] for part in parts)
    high = sum(part["high"] for part in parts)
    sources = dict.fromkeys(
        f"{part['source']} [{part['quality']}, {part['year']}]" for part in parts
    )
    return Energy((low + high) / 2, low, high, "; ".join(sources))


# --- Tables of a topology file, and the names of nodes in them.

NAMES: Final = re.compile(r"(gpu|sw|nic)?(\d+)(?:\.\.(?:(gpu|sw|nic))?(\d+))?")
"""A node, or a range of them: gpu0, 0, sw1..8; plain numbers are GPUs."""
MOST_NODES: Final = 200_000
_Rate = Annotated[Finite, Meta(description="give a finite number (B/s above zero)")]
_Seconds = Annotated[Finite, Meta(description="give a finite number (s)")]
_Energy = Annotated[Finite, Meta(description="give a finite number (J/bit)")]
_Place = Annotated[int, Meta(ge=-1, description="give its number, from 0")]


class Nodes(Table, frozen=True):
    """Switches or NICs of a chassis."""

    names: Text
    copy: Flag = False
    reduces: Flag = False

    @property
    def expanded(self) -> list[str]:
        """Name of each node."""
        return expand_names(self.names, "names")


class OuterNodes(Nodes, frozen=True):
    """Switches or NICs of the whole machine; `chassis` -1: in none."""

    chassis: _Place = -1


class Links(Table, frozen=True):
    """Links that are alike; `latency` may be open."""

    pairs: Text | None = None
    one_way: Text | None = None
    rate: _Rate | None = None
    latency: _Seconds | None = None
    latency_source: Text | None = None
    medium: Text | None = None
    source: Text | None = None


class Medium(Table, frozen=True):
    """Energy of a bit, J."""

    low: _Energy
    typical: _Energy
    high: _Energy
    source: Text


class Machine(Table, frozen=True):
    """Keys of a topology file; `nodes` and `links` are repeated in every chassis."""

    gpus: Count
    name: Text | None = None
    like: Text | None = None
    gpu: Text | None = None
    chassis: Count = 1
    relays: Text | None = None
    buffer_gpus: Count | None = None
    free_exit: Flag = False
    latency: _Seconds | None = None
    latency_source: Text | None = None
    nodes: list[Nodes] = []
    outer_nodes: list[OuterNodes] = []
    links: list[Links] = []
    outer_links: list[Links] = []
    media: dict[str, Medium] = {}


def expand_names(text: str, key: str) -> list[str]:
    """ "sw0..2 5" -> sw0, sw1, sw2, gpu5."""
    names = []
    for word in text.split():
        match = NAMES.fullmatch(word)
        prefix = (match[1] or "gpu") if match else ""
        if not match or match[3] not in (None, prefix):
            raise ValueError(
                f"`{key}` has {word!r}; allowed are names such as gpu0, sw0, nic0..7."
            )
        first = int(match[2])
        last = int(match[4] or first)
        if not first <= last < MOST_NODES:
            raise ValueError(
                f"`{key}` has {word!r}; a range rises, below {MOST_NODES}."
            )
        names += [f"{prefix}{number}" for number in range(first, last + 1)]
    return names


def split_name(name: str) -> tuple[str, int]:
    """ "sw3" -> sw, 3."""
    prefix = name.rstrip("0123456789")
    return prefix, int(name[len(prefix) :])


# --- `build`

_DEFAULT_LATENCY: Final = 0.7e-6
"""s of a link whose latency is open: an NVLink 2 of the NDv2 model of TE-CCL."""
_LEAST_RATE: Final = 1e6  # B/s; below it is in GB/s or Gb/s
_MOST_RATE: Final = 1e16  # B/s; more is a slip of the keyboard
_MOST_LATENCY: Final = 0.1  # s; above it is in us or ns
_MOST_ENERGY: Final = 1e-6  # J/bit; above it is in pJ/bit


class _Chassis(NamedTuple):
    """Boxes that are alike: how many, and how many nodes of each kind are in one."""

    number: int
    size: Mapping[str, int]

    def name(self, name: str, chassis: int) -> str:
        """Name in the whole machine of a node that is counted within a chassis."""
        prefix, n = split_name(name)
        return f"{prefix}{n + chassis * self.size.get(prefix, 0)}"

    def entries(self, machine: Machine, key: str) -> Iterator[tuple[Any, str, int]]:
        """Entries `key` of each chassis, then those outside, with their key and the
        number of the chassis that their names are counted in."""
        for row in getattr(machine, key):
            yield from ((row, key, chassis) for chassis in range(self.number))
        outer = f"outer_{key}"
        yield from ((row, outer, 0) for row in getattr(machine, outer))


def build(table: Mapping[str, Any], name: str, latency: float | None) -> Topology:
    """Topology of a description; `latency` (s) is for links that leave theirs open.

    Raises `ValueError` naming the key that is unknown, missing or wrong.
    """
    machine: Machine = fitted(table, Machine)
    if latency is not None:
        _check_latency(latency)
    box = _chassis(machine)
    nodes = _nodes(machine, box)
    links = _links(
        machine, box, {node.name: n for n, node in enumerate(nodes)}, latency
    )
    if sum(node.kind == "gpu" for node in nodes) < 2:
        raise ValueError("`gpus` leaves fewer than two GPUs; describe at least two.")
    gpus = box.number * box.size["gpu"]
    buffer_gpus = machine.buffer_gpus or gpus
    if buffer_gpus < gpus:
        raise ValueError(
            f"`buffer_gpus` is {buffer_gpus}; allowed are whole numbers from {gpus}, "
            f"the GPUs here, on."
        )
    gpu = gpu_name(machine.gpu)
    return Topology(name, nodes, links, buffer_gpus, gpu, machine.free_exit)


def gpu_name(name_or_path: str | None) -> str | None:
    """Bundled name, or file, of a GPU; raises `ValueError` for an unknown one."""
    from ..hardware import gpu_names, read_gpu

    if name_or_path is None or name_or_path in gpu_names():
        return name_or_path
    name = read_gpu(name_or_path).name  # of another spelling; of a file its path
    return name if name in gpu_names() else name_or_path


def _chassis(machine: Machine) -> _Chassis:
    chassis, gpus = machine.chassis, machine.gpus
    if chassis * gpus > MOST_NODES:
        raise ValueError(
            f"`gpus` is {gpus} in {chassis} chassis; allowed are {MOST_NODES} in all."
        )
    names = [split_name(name) for row in machine.nodes for name in row.expanded]
    size = Counter(prefix for prefix, _ in names)
    for prefix, n in names:
        if n >= size[prefix] and prefix != "gpu":
            raise ValueError(
                f"`nodes` has {prefix}{n}, but {size[prefix]} of them; number them "
                f"from {prefix}0."
            )
    return _Chassis(chassis, size | {"gpu": gpus})


# --- nodes


def _nodes(machine: Machine, box: _Chassis) -> tuple[Node, ...]:
    gpus = range(box.number * box.size["gpu"])
    relays = set(expand_names(machine.relays or "", "relays"))
    if unknown := sorted(relays - {f"gpu{n}" for n in gpus}):
        raise ValueError(f"`relays` names {unknown[0]}, which is not a GPU here.")
    nodes = []
    for n in gpus:
        kind = "switch" if f"gpu{n}" in relays else "gpu"
        nodes.append(Node(f"gpu{n}", kind, chassis=n // box.size["gpu"]))
    for row, where, chassis in box.entries(machine, "nodes"):
        if any(name.startswith("gpu") for name in row.expanded):
            raise ValueError(
                f"`names` is {row.names!r}; allowed are switches and NICs (sw0, "
                f"nic0): GPUs are counted by `gpus`."
            )
        home = chassis if where == "nodes" else row.chassis
        for name in row.expanded:
            kind = "switch" if name.startswith("sw") else "nic"
            whole = box.name(name, chassis)
            nodes.append(Node(whole, kind, row.copy, row.reduces, home))
    nodes.sort(key=_place)
    for before, after in itertools.pairwise(nodes):
        if before.name == after.name:
            raise ValueError(f"`nodes` has {after.name} twice; give each its number.")
    return tuple(nodes)


def _place(node: Node) -> tuple[int, int]:
    """GPUs first, then switches, then NICs, by their numbers."""
    prefix, n = split_name(node.name)
    return ("gpu", "sw", "nic").index(prefix), n


# --- links


def _links(
    machine: Machine, box: _Chassis, index: Mapping[str, int], latency: float | None
) -> tuple[Link, ...]:
    energies = {**media(), **_media_of_file(machine)}
    links: dict[tuple[int, int], Link] = {}
    latency_used = False
    for row, where, chassis in box.entries(machine, "links"):
        ends = _ends(row, where)
        rate, medium = _rate(row, where), _medium(row, energies)
        seconds, origin, open_ = _latency(row, machine, latency)
        latency_used |= open_
        for pair in ends:
            names = [box.name(end, chassis) for end in pair]
            for name in names:
                if name not in index:
                    raise ValueError(
                        f"`{where}` names {name}, which is not a node of this "
                        f"topology; add it under `[[nodes]]` or raise `gpus`."
                    )
            at, shown = (index[names[0]], index[names[1]]), "->".join(names)
            if at[0] == at[1]:
                raise ValueError(f"`links` has {shown}; a link joins two nodes.")
            if at in links:
                raise ValueError(
                    f"`links` has {shown} twice; write one link with the rates added "
                    f"up."
                )
            links[at] = Link(*at, rate, seconds, medium, energies[medium], origin)
    if not links:
        raise ValueError("`links` is missing; add a table `[[links]]`.")
    if latency is not None and not latency_used:
        raise ValueError(
            f"`latency` is {latency:g}, but this topology states the latency of every "
            f"link; leave it out."
        )
    return tuple(links.values())


def _ends(row: Links, where: str) -> list[tuple[str, str]]:
    """Links of an entry by the names at their ends."""
    ends = []
    for key, sign in (("pairs", "-"), ("one_way", "->")):
        for word in (getattr(row, key) or "").split():
            sides = word.split(sign)
            if len(sides) != 2 or not all(map(NAMES.fullmatch, sides)):
                raise ValueError(
                    f"`{key}` has {word!r}; allowed are two nodes, such as "
                    f"gpu0{sign}gpu1, 0{sign}1 or 0..7{sign}sw0."
                )
            near, far = (expand_names(side, key) for side in sides)
            if len(near) * len(far) > MOST_NODES:
                raise ValueError(
                    f"`{key}` has {word!r}, which makes {len(near) * len(far)} links; "
                    f"allowed are {MOST_NODES}."
                )
            for a, b in itertools.product(near, far):
                ends += [(a, b)] if sign == "->" else [(a, b), (b, a)]
    if not ends:
        raise ValueError(f"`{where}` has an entry with neither `pairs` nor `one_way`.")
    return ends


def _rate(row: Links, where: str) -> float:
    rate, which = row.rate, row.pairs or row.one_way
    if rate is None:
        raise ValueError(
            f"`rate` is missing for the {where} {str(which).strip()[:40]!r}; give the "
            f"B/s of one direction."
        )
    if not rate > 0:
        raise ValueError(f"`rate` is {rate:g}; allowed is any number of B/s above 0.")
    if rate > _MOST_RATE:
        raise ValueError(
            f"`rate` is {rate:g} B/s, which no link has; allowed are {_MOST_RATE:g}."
        )
    if rate < _LEAST_RATE:
        raise ValueError(
            f"`rate` is {rate:g}, which looks like GB/s; topology files are in B/s, "
            f"convert it."
        )
    return rate


def _latency(
    row: Links, machine: Machine, default: float | None
) -> tuple[float, str, bool]:
    """Latency (s), where rate and latency are from, and whether it was open."""
    source = row.source or "rate: the file"
    for holder in (row, machine):
        if holder.latency is not None:
            _check_latency(holder.latency)
            origin = holder.latency_source or "the same"
            return holder.latency, f"{source}; latency: {origin}", False
    if default is not None:
        return float(default), f"{source}; latency: given by the caller", True
    origin = "default, an NVLink of the NDv2 model of TE-CCL"
    return _DEFAULT_LATENCY, f"{source}; latency: {origin}", True


def _check_latency(latency: float) -> None:
    if not (math.isfinite(latency) and latency >= 0):
        raise ValueError(
            f"`latency` is {latency:g}; allowed is any number of s from 0 on."
        )
    if latency > _MOST_LATENCY:
        raise ValueError(
            f"`latency` is {latency:g}, which looks like us or ns; give it in s."
        )


# --- media


def _medium(row: Links, energies: Mapping[str, Energy]) -> str:
    name = row.medium
    if name is not None and name in energies:
        return name
    unknown = "is missing" if name is None else f"is {name!r}, which is not known"
    near = difflib.get_close_matches(name or "", list(energies), n=3) or list(energies)
    raise ValueError(
        f"`medium` {unknown}; nearest: {', '.join(near)}; or add a table "
        f"`[media.{name or 'NAME'}]` with low, typical, high (J/bit) and source."
    )


def _media_of_file(machine: Machine) -> dict[str, Energy]:
    energies = {}
    for name, row in machine.media.items():
        low, typical, high = row.low, row.typical, row.high
        if not 0 <= low <= typical <= high <= _MOST_ENERGY:
            raise ValueError(
                f"`media.{name}` has {low:g}, {typical:g}, {high:g}; allowed are low, "
                f"typical, high in J/bit, rising, from 0 to {_MOST_ENERGY:g}."
            )
        energies[name] = Energy(typical, low, high, row.source)
    return energies
