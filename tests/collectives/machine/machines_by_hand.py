"""Machines, demands and schedules small enough to be written down."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from diffenergy.collectives import Demand, Schedule, Topology
from diffenergy.collectives import _demands as demands
from diffenergy.collectives._demand import Collective
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._topology import Energy, Kind, Link, Node

_NONE = Energy(0.0, 0.0, 0.0, "none")


def machine(
    names: str,
    links: Iterable[tuple[str, str, float, float]],
    copy: bool = True,
    reduces: bool = False,
    free_exit: bool = False,
    switches: Sequence[str] = (),
    buffer_gpus: int | None = None,
) -> Topology:
    """Nodes by name (`sw` and `switches`: switches); links (from, to, B/s, s)."""
    nodes: list[Node] = []
    for name in names.split():
        kind: Kind = "switch" if name.startswith("sw") or name in switches else "gpu"
        nodes.append(Node(name, kind, copy, reduces))
    index = {node.name: n for n, node in enumerate(nodes)}
    made = tuple(
        Link(index[a], index[b], rate, latency, "test", _NONE)
        for a, b, rate, latency in links
    )
    gpus = sum(node.kind == "gpu" for node in nodes)
    return Topology(
        "by-hand", tuple(nodes), made, buffer_gpus or gpus, free_exit=free_exit
    )


def both(a: str, b: str, rate: float, latency: float) -> list:
    return [(a, b, rate, latency), (b, a, rate, latency)]


def ring(count: int, rate: float = 1.0, latency: float = 0.0) -> Topology:
    """`count` GPUs, links to both neighbours."""
    links = [
        link
        for n in range(count)
        for link in both(f"gpu{n}", f"gpu{(n + 1) % count}", rate, latency)
    ]
    return machine(" ".join(f"gpu{n}" for n in range(count)), links)


def star(
    count: int,
    rate: float = 1.0,
    latency: float = 0.0,
    copy: bool = True,
    reduces: bool = False,
) -> Topology:
    """`count` GPUs around one switch."""
    links = [
        link for n in range(count) for link in both(f"gpu{n}", "sw0", rate, latency)
    ]
    return machine(
        " ".join(f"gpu{n}" for n in range(count)) + " sw0", links, copy, reduces
    )


def demand(
    topology: Topology, collective: Collective, size: float = 1.0, chunks: int = 1
) -> Demand:
    """All GPUs take part; `size`: B of a block."""
    buffer = size * topology.buffer_gpus * chunks
    return demands.demand(collective, topology, buffer, chunks)


def only(demand: Demand, block: int, takers: Any = None, parts: Any = None) -> Demand:
    """One block alone; nodes that want it and that add to it, if they are others."""
    columns = dataclasses.astuple(demand)[1:]
    found = Demand(demand.collective, *(column[[block]] for column in columns))
    for mask, nodes in ((found.wanted, takers), (found.parts, parts)):
        if nodes is not None:
            mask[:] = np.isin(np.arange(mask.shape[1]), nodes)
    return found


Row = tuple[int, str, str, float, float]
"""Block, from, to, start and end; s."""


def schedule(
    topology: Topology,
    wanted: Demand,
    rows: Sequence[Row],
    size: Sequence[float] | None = None,
    phase: Sequence[int] | None = None,
) -> Schedule:
    """Sends as rows; `size`: B, whole blocks by default."""
    index, between = topology.index, topology.between
    block = np.array([row[0] for row in rows], int)
    sends = Sends(
        block,
        np.array([between[index[row[1]], index[row[2]]] for row in rows], int),
        np.array([row[3] for row in rows], float),
        np.array([row[4] for row in rows], float),
        wanted.size[block] if size is None else np.array(size, float),
        np.zeros(len(rows), int) if phase is None else np.array(phase, int),
    )
    return Schedule(topology, wanted, sends)


def without(given: Schedule, send: int) -> Schedule:
    """One send less."""
    return take(given, np.delete(np.arange(len(given.sends)), send))


def take(given: Schedule, chosen: np.ndarray) -> Schedule:
    """Only the chosen sends."""
    return given.with_sends(given.sends.take(chosen))


def changed(given: Schedule, send: int, **values: float) -> Schedule:
    """One send with other values."""
    columns = {
        f.name: getattr(given.sends, f.name).copy() for f in dataclasses.fields(Sends)
    }
    for name, value in values.items():
        columns[name][send] = value
    return given.with_sends(Sends(**columns))


def ring_rows(count: int, latency: float = 0.0) -> list[Row]:
    """All-gather around a ring: in step k each passes on what it got in step k - 1."""
    step = 1.0 + latency
    return [
        ((n - k) % count, f"gpu{n}", f"gpu{(n + 1) % count}", k * step, (k + 1) * step)
        for k in range(count - 1)
        for n in range(count)
    ]


def reducing_rows(count: int) -> list[Row]:
    """Reduce-scatter around a ring: block b starts at its right neighbour and ends at
    gpu b with all summands, one step later each hop."""
    return [
        (b, f"gpu{(b + 1 + k) % count}", f"gpu{(b + 2 + k) % count}", k, k + 1.0)
        for k in range(count - 1)
        for b in range(count)
    ]
