"""Machines and demands by hand, and a plain check of schedules."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives._topology import Energy, Link, Node

GB = 1e9
MB = 1e6
us = 1e-6
_NONE = Energy(0.0, 0.0, 0.0, "none")
Edge = tuple[int, int, float, float]


def machine(
    name: str, nodes: list[Node], edges: list[Edge], gpus: int, free_exit: bool = False
) -> Topology:
    """Topology of nodes and (source, target, rate in GB/s, latency in us)."""
    links = tuple(
        Link(a, b, rate * GB, latency * us, "nvlink", _NONE)
        for a, b, rate, latency in edges
    )
    return Topology(name, tuple(nodes), links, gpus, free_exit=free_exit)


def gpu_nodes(count: int, per_chassis: int) -> list[Node]:
    return [Node(f"gpu{i}", "gpu", chassis=i // per_chassis) for i in range(count)]


def both(a: int, b: int, rate: float, latency: float) -> list[Edge]:
    return [(a, b, rate, latency), (b, a, rate, latency)]


def dgx1(latency: float = 0.7) -> Topology:
    return load_topology("dgx1", latency * us)


def ndv2_2(published: bool = False) -> Topology:
    return load_topology("ndv2-2-published" if published else "ndv2-2")


def ndv2_4() -> Topology:
    return dataclasses.replace(load_topology("ndv2-4"), free_exit=False)


def dgx2_2(free_exit: bool = False) -> Topology:
    return dataclasses.replace(load_topology("dgx2-2"), free_exit=free_exit)


def torus(*sides: int) -> Topology:
    return load_topology("torus-" + "x".join(map(str, sides)))


def ring(count: int, latency: float = 0.7) -> Topology:
    edges = []
    for i in range(count):
        edges += both(i, (i + 1) % count, 50.0, latency)
    return machine(f"ring-{count}", gpu_nodes(count, 1), edges, count)


def star(count: int, copy: bool = True, reduces: bool = False) -> Topology:
    """GPUs on one switch, 100 GB/s each way."""
    nodes = [*gpu_nodes(count, count), Node("sw0", "switch", copy, reduces)]
    edges = []
    for i in range(count):
        edges += both(i, count, 100.0, 0.35)
    return machine(f"star-{count}", nodes, edges, count)


def all_gather(topology: Topology, size: float, chunks: int = 1) -> Demand:
    return demand("all_gather", topology, size, chunks)


def all_to_all(topology: Topology, size: float) -> Demand:
    return demand("all_to_all", topology, size)


def blocks(
    topology: Topology, ends: Sequence[tuple[int, int | list[int]]], size: Any = MB
) -> Demand:
    """Blocks from a source to one or several takers; `size`: B, of all or of each."""
    source = np.array([source for source, _ in ends])
    wanted = np.zeros((len(ends), len(topology.nodes)), bool)
    for row, (_, takers) in enumerate(ends):
        wanted[row, takers] = True
    sizes, number = np.full(len(ends), size, float), np.arange(len(ends))
    return Demand("custom", source, number, sizes, wanted, np.zeros_like(wanted))


def one_to_all(topology: Topology, size: float, chunks: int = 2) -> Demand:
    """Broadcast from the first GPU."""
    columns = dataclasses.astuple(all_gather(topology, size, chunks))[1:]
    return Demand("broadcast", *(column[:chunks] for column in columns))


def sums(topology: Topology, size: float, everywhere: bool) -> Demand:
    """All-reduce if every GPU wants every sum, else reduce-scatter."""
    return demand("all_reduce" if everywhere else "reduce_scatter", topology, size)


def check(schedule: Schedule) -> float:
    """Replay of a schedule of whole blocks by plain rules, one send after the other;
    its finish, s. Sums travel as sets of the GPUs whose summand they hold."""
    topology, demand, sends = schedule.topology, schedule.demand, schedule.sends
    near = 1e-9 * sends.end.max()
    rate, latency = topology.rates[sends.link], topology.latencies[sends.link]
    busy = sends.bytes / rate
    assert (sends.start >= -near).all()
    assert (sends.end >= sends.start + busy + latency - near).all()
    for link in np.unique(sends.link):
        rows = np.flatnonzero(sends.link == link)
        rows = rows[np.argsort(sends.start[rows])]
        assert (sends.start[rows[1:]] >= (sends.start + busy)[rows[:-1]] - near).all()
    held: dict[tuple[int, int], list[tuple[float, frozenset[int]]]] = {}
    for block, home in enumerate(demand.source.tolist()):
        begin = np.flatnonzero(demand.parts[block]) if demand.reduces else [home]
        for node in begin:
            held[block, int(node)] = [(0.0, frozenset([int(node)]))]
    fed: dict[tuple[int, ...], list[tuple[float, float, frozenset[int]]]] = {}
    for row in np.lexsort((sends.end, sends.start)).tolist():
        link, phase = topology.links[sends.link[row]], int(sends.phase[row])
        block = int(sends.block[row])
        start, end = float(sends.start[row]), float(sends.end[row])
        if topology.stores[link.source]:
            came = held.get((block, link.source), [])
            here = [what for at, what in came if at <= start + near]
        else:
            came = fed.get((block, link.source, phase), [])
            soon, late = start + near, start - near
            here = [what for at, gone, what in came if at <= soon and gone >= late]
        assert here, f"send {row} carries what its sender does not hold"
        carried = max(here, key=len)
        adds = link.source in topology.gpus or topology.nodes[link.source].reduces
        if demand.reduces and not adds and phase == 0:
            waiting = fed[block, link.source, phase]
            waiting.remove(next(entry for entry in waiting if entry[2] == here[0]))
            carried = here[0]
        elif demand.reduces and any(not what <= carried for what in here):
            assert sum(map(len, here)) == len(frozenset().union(*here))
            carried = frozenset[int]().union(*here)
        place = block, link.target
        if topology.stores[link.target]:
            held.setdefault(place, []).append((end, carried))
        else:
            fed.setdefault((*place, phase), []).append(
                (start + link.latency, end, carried)
            )
    finish = 0.0
    for block, node in np.argwhere(demand.wanted).tolist():
        got = held.get((block, node), [])
        whole = frozenset(np.flatnonzero(demand.parts[block]).tolist())
        if demand.reduces:
            assert frozenset().union(*(what for _, what in got)) == whole
        assert got, f"block {block} never comes to node {node}"
        finish = max(finish, min(at for at, _ in got))
    return float(max(finish, sends.end.max()))
