"""Machines and demands by hand, and a plain check of schedules."""

import itertools

import numpy as np

from diffenergy.collectives._demand.demand import Demand
from diffenergy.collectives._machine.topology import Energy, Link, Node, Topology
from diffenergy.collectives._schedule.schedule import Schedule

GB = 1e9
us = 1e-6
_NONE = Energy(0.0, 0.0, 0.0, "none")
_LANES = (
    "0-1:2 0-2:1 0-3:1 0-4:2 1-2:1 1-3:2 1-5:1 2-3:2 2-6:2 3-7:1 4-5:2 4-6:1 4-7:1 "
    "5-6:1 5-7:2 6-7:2"
)
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


def board(first: int, latency: float) -> list[Edge]:
    """Eight V100: lanes of 25 GB/s."""
    edges = []
    for item in _LANES.split():
        pair, lanes = item.split(":")
        a, b = (first + int(end) for end in pair.split("-"))
        edges += both(a, b, 25.0 * int(lanes), latency)
    return edges


def dgx1(latency: float = 0.7) -> Topology:
    return machine("dgx1", gpu_nodes(8, 8), board(0, latency), 8)


def ndv2_2(published: bool = False) -> Topology:
    nodes = gpu_nodes(16, 8)
    if published:
        nodes[0] = Node("gpu0", "switch", chassis=0)
    edges = [*board(0, 0.7), *board(8, 0.7), (0, 9, 12.5, 1.3), (8, 1, 12.5, 1.3)]
    name = "ndv2-2-published" if published else "ndv2-2"
    return machine(name, nodes, edges, 16, published)


def ndv2_4() -> Topology:
    nodes = [*gpu_nodes(32, 8), Node("sw0", "switch")]
    edges = []
    for c in range(4):
        edges += board(8 * c, 0.7)
        edges += [(8 * c, 32, 12.5, 1.3), (32, 8 * c + 1, 12.5, 1.3)]
    return machine("ndv2-4", nodes, edges, 32)


def dgx2_2() -> Topology:
    nodes = gpu_nodes(32, 16)
    nodes += [Node(f"sw{c}", "switch", chassis=c) for c in range(2)]
    edges = []
    for c, i in itertools.product(range(2), range(16)):
        edges += both(16 * c + i, 32 + c, 125.0, 0.35)
        if i % 2:
            edges.append((16 * c + i, 16 * (1 - c) + i - 1, 12.5, 2.6))
    return machine("dgx2-2", nodes, edges, 32)


def torus(*sides: int) -> Topology:
    places = list(itertools.product(*map(range, sides)))
    number = {place: n for n, place in enumerate(places)}
    pairs = set()
    for place, axis in itertools.product(places, range(len(sides))):
        step = [*place]
        step[axis] = (step[axis] + 1) % sides[axis]
        pairs |= {(number[place], number[tuple(step)])}
    pairs |= {(b, a) for a, b in pairs}
    edges = [(a, b, 50.0, 0.5) for a, b in sorted(pairs) if a != b]
    name = "torus-" + "x".join(map(str, sides))
    return machine(name, gpu_nodes(len(places), 1), edges, len(places))


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
    """Every GPU wants every other GPU's chunks; `size`: output buffer, B."""
    gpus, nodes = topology.gpus, len(topology.nodes)
    source = np.repeat(gpus, chunks)
    wanted = np.zeros((len(source), nodes), bool)
    wanted[:, gpus] = True
    wanted[np.arange(len(source)), source] = False
    piece = np.full(len(source), size / topology.buffer_gpus / chunks)
    number = np.tile(np.arange(chunks), len(gpus))
    return Demand("all_gather", source, number, piece, wanted, np.zeros_like(wanted))


def all_to_all(topology: Topology, size: float) -> Demand:
    """Every GPU has a chunk for every other GPU."""
    pairs = np.array(list(itertools.permutations(topology.gpus.tolist(), 2)))
    wanted = np.zeros((len(pairs), len(topology.nodes)), bool)
    wanted[np.arange(len(pairs)), pairs[:, 1]] = True
    piece = np.full(len(pairs), size / topology.buffer_gpus)
    none = np.zeros_like(wanted)
    return Demand("all_to_all", pairs[:, 0], pairs[:, 1], piece, wanted, none)


def one_to_all(topology: Topology, size: float, chunks: int = 2) -> Demand:
    """Broadcast from the first GPU."""
    demand = all_gather(topology, size, chunks)
    rows = slice(0, chunks)
    return Demand(
        "broadcast",
        demand.source[rows],
        demand.chunk[rows],
        demand.size[rows],
        demand.wanted[rows],
        demand.parts[rows],
    )


def sums(topology: Topology, size: float, everywhere: bool) -> Demand:
    """All-reduce if every GPU wants every sum, else reduce-scatter."""
    plain = all_gather(topology, size)
    held = plain.wanted.copy()
    held[np.arange(len(held)), plain.source] = True
    home = held & ~plain.wanted
    name = "all_reduce" if everywhere else "reduce_scatter"
    wanted = held if everywhere else home
    return Demand(name, plain.source, plain.chunk, plain.size, wanted, held)


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
