"""Machines and demands by hand for the tests of the solvers."""

import dataclasses
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from diffenergy.collectives._demand.demand import Demand
from diffenergy.collectives._exact.epoch_schedule import Found
from diffenergy.collectives._machine.routes import EpochModel
from diffenergy.collectives._machine.topology import Energy, Link, Node, Topology
from diffenergy.collectives._schedule.schedule import Schedule
from diffenergy.search import LinearModel

LANES = {
    (0, 1): 2,
    (0, 2): 1,
    (0, 3): 1,
    (0, 4): 2,
    (1, 2): 1,
    (1, 3): 2,
    (1, 5): 1,
    (2, 3): 2,
    (2, 6): 2,
    (3, 7): 1,
    (4, 5): 2,
    (4, 6): 1,
    (4, 7): 1,
    (5, 6): 1,
    (5, 7): 2,
    (6, 7): 2,
}
_NONE = Energy(0.0, 0.0, 0.0, "none")
US = 1e-6
GBPS = 1e9


def link(a: int, b: int, rate: float, latency: float) -> Link:
    return Link(a, b, rate, latency, "nvlink2", _NONE)


def both(a: int, b: int, rate: float, latency: float) -> list[Link]:
    return [link(a, b, rate, latency), link(b, a, rate, latency)]


def _gpus(count: int) -> list[Node]:
    return [Node(f"gpu{n}", "gpu") for n in range(count)]


def _boards(count: int, latency: float) -> list[Link]:
    return [
        one
        for box in range(count)
        for (a, b), lanes in LANES.items()
        for one in both(8 * box + a, 8 * box + b, lanes * 25 * GBPS, latency)
    ]


def dgx1(latency: float = 0.7 * US) -> Topology:
    return Topology("dgx1", tuple(_gpus(8)), tuple(_boards(1, latency)), 8)


def ndv2_2() -> Topology:
    across = [link(0, 9, 12.5 * GBPS, 1.3 * US), link(8, 1, 12.5 * GBPS, 1.3 * US)]
    links = tuple(_boards(2, 0.7 * US) + across)
    return Topology("ndv2-2", tuple(_gpus(16)), links, 16)


def ndv2_2_published() -> Topology:
    machine = ndv2_2()
    nodes = (Node("gpu0", "switch"), *machine.nodes[1:])
    return dataclasses.replace(
        machine, name="ndv2-2-published", nodes=nodes, free_exit=True
    )


def ndv2_4(free_exit: bool = False) -> Topology:
    links = _boards(4, 0.7 * US)
    for box in range(4):
        links.append(link(8 * box, 32, 12.5 * GBPS, 1.3 * US))
        links.append(link(32, 8 * box + 1, 12.5 * GBPS, 1.3 * US))
    nodes = (*_gpus(32), Node("sw0", "switch"))
    return Topology("ndv2-4", nodes, tuple(links), 32, free_exit=free_exit)


def dgx2_2(free_exit: bool = False) -> Topology:
    links: list[Link] = []
    for box in range(2):
        for n in range(16):
            links += both(16 * box + n, 32 + box, 125 * GBPS, 0.35 * US)
        for n in range(1, 16, 2):
            far = 16 * (1 - box) + n - 1
            links.append(link(16 * box + n, far, 12.5 * GBPS, 2.6 * US))
    nodes = (*_gpus(32), Node("sw0", "switch"), Node("sw1", "switch"))
    return Topology("dgx2-2", nodes, tuple(links), 32, free_exit=free_exit)


def ring(count: int, latency: float = 0.0, rate: float = 50 * GBPS) -> Topology:
    links = [
        one for n in range(count) for one in both(n, (n + 1) % count, rate, latency)
    ]
    return Topology(f"ring-{count}", tuple(_gpus(count)), tuple(links), count)


def torus(rows: int, columns: int) -> Topology:
    """Grid with wrap; both sizes above 2."""
    links = []
    for r in range(rows):
        for c in range(columns):
            here = r * columns + c
            right = r * columns + (c + 1) % columns
            down = (r + 1) % rows * columns + c
            links += both(here, right, 50 * GBPS, 0.5 * US)
            links += both(here, down, 50 * GBPS, 0.5 * US)
    nodes = tuple(_gpus(rows * columns))
    return Topology(f"torus-{rows}x{columns}", nodes, tuple(links), rows * columns)


def star(count: int, copy: bool, free_exit: bool = False) -> Topology:
    """GPUs around one switch, 100 GB/s, no latency."""
    links = [one for n in range(count) for one in both(n, count, 100 * GBPS, 0.0)]
    nodes = (*_gpus(count), Node("sw0", "switch", copy=copy))
    return Topology("star", nodes, tuple(links), count, free_exit=free_exit)


def all_gather(topology: Topology, chunk: float, chunks: int = 1) -> Demand:
    gpus = topology.gpus
    source = np.repeat(gpus, chunks)
    blocks, nodes = len(source), len(topology.nodes)
    wanted = np.zeros((blocks, nodes), bool)
    wanted[:, gpus] = True
    wanted[np.arange(blocks), source] = False
    return Demand(
        "all_gather",
        source,
        np.tile(np.arange(chunks), len(gpus)),
        np.full(blocks, chunk),
        wanted,
        np.zeros((blocks, nodes), bool),
    )


def all_to_all(topology: Topology, chunk: float) -> Demand:
    pairs = [(a, b) for a in topology.gpus for b in topology.gpus if a != b]
    source = np.array([a for a, _ in pairs])
    target = np.array([b for _, b in pairs])
    wanted = np.zeros((len(pairs), len(topology.nodes)), bool)
    wanted[np.arange(len(pairs)), target] = True
    return Demand(
        "all_to_all",
        source,
        target,
        np.full(len(pairs), chunk),
        wanted,
        np.zeros_like(wanted),
    )


def made(found: Found) -> Schedule:
    """The schedule that was found."""
    assert found.schedule is not None
    return found.schedule


def scipy_least(model: LinearModel) -> float | None:
    """Least cost of a model by SciPy's HiGHS, None if it has no solution."""
    limits: Any = (model.row_low, model.row_high)  # SciPy's stubs ask for numbers
    ends: Any = (model.low, model.high)
    answer = milp(
        model.cost,
        integrality=int(model.whole),
        bounds=Bounds(*ends),
        constraints=LinearConstraint(model.matrix, *limits),
    )
    return float(answer.fun) if answer.status == 0 else None


def replay_epochs(schedule: Schedule, model: EpochModel, horizon: int | None) -> None:
    """Assert the rules of the epochs, send by send, for whole blocks."""
    assert horizon is not None
    topology, demand, sends = schedule.topology, schedule.demand, schedule.sends
    epoch = np.floor(sends.start / model.tau + 1e-6).astype(int)
    columns = epoch.tolist(), sends.block.tolist(), sends.link.tolist()
    trips = list(zip(*columns, strict=True))
    assert len(set(trips)) == len(trips)
    there: dict[tuple[int, int], list[int]] = {}  # block, node: epochs of arrival
    for block, source in enumerate(demand.source.tolist()):
        there[block, source] = [0]
    used = np.zeros((len(topology.links), horizon + 1), int)
    # Sends that take no epoch (a free exit) come before those they serve.
    for k, block, one in sorted(trips, key=lambda t: (t[0], model.hop[t[2]] > 0)):
        source, target = topology.links[one].source, topology.links[one].target
        came = there.get((block, source), [])
        if topology.nodes[source].stores:
            assert min(came, default=horizon) <= k, "not there yet"
        else:
            assert k in came, "a switch does not store"
            if not topology.nodes[source].copy:
                came.remove(k)  # one way out for each way in
        there.setdefault((block, target), []).append(k + int(model.hop[one]))
        used[one, k] += 1
    for one in range(len(topology.links)):
        for end in range(horizon + 1):
            begin = max(0, end - int(model.window[one]) + 1)
            assert used[one, begin : end + 1].sum() <= model.most[one], "too much"
    for block, node in np.argwhere(demand.wanted).tolist():
        assert min(there.get((block, node), [horizon + 1])) <= horizon, "not met"


def replay_parts(schedule: Schedule, model: EpochModel, horizon: int | None) -> None:
    """Assert the rules of the epochs for parts of blocks, in bytes."""
    assert horizon is not None
    topology, demand, sends = schedule.topology, schedule.demand, schedule.sends
    epoch = np.floor(sends.start / model.tau + 1e-6).astype(int)
    hop = 1 + model.delay
    load = np.zeros((len(topology.links), horizon))
    np.add.at(load, (sends.link, epoch), sends.bytes / model.chunk)
    assert (load <= model.capacity[:, None] * (1 + 1e-6)).all()
    tiny = 1e-5 * demand.size.max()
    for block, source in enumerate(demand.source.tolist()):
        mine = sends.block == block
        link, k, size = sends.link[mine], epoch[mine], sends.bytes[mine]
        arrive, frm = k + hop[link], topology.sources[link]
        to = topology.targets[link]
        for node, place in enumerate(topology.nodes):
            if node == source:
                continue
            for at in range(horizon + 1):
                came = size[(to == node) & (arrive <= at)].sum()
                went = size[(frm == node) & (k <= at)].sum()
                assert went <= came + tiny, "sent on before it came"
                if not place.stores:
                    assert abs(went - came) <= tiny, "a switch does not store"
            kept = size[to == node].sum() - size[frm == node].sum()
            wish = demand.size[block] * demand.wanted[block, node]
            assert abs(kept - wish) <= tiny
        assert arrive.max() <= horizon
