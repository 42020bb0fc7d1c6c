"""Machines in SI units and demands by chunk for the tests of the solvers, whose answers
are checked by the rules of the epochs and by SciPy."""

import dataclasses
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from diffenergy.collectives import Demand, Schedule, Topology
from diffenergy.collectives._epoch_schedule import Found
from diffenergy.collectives._routes import EpochModel
from diffenergy.collectives._topology import Energy, Link
from diffenergy.search import LinearModel

from . import c3_machines as plain

US = 1e-6
GBPS = 1e9
_NONE = Energy(0.0, 0.0, 0.0, "none")


def link(a: int, b: int, rate: float, latency: float) -> Link:
    return Link(a, b, rate, latency, "nvlink2", _NONE)


def both(a: int, b: int, rate: float, latency: float) -> list[Link]:
    return [link(a, b, rate, latency), link(b, a, rate, latency)]


def dgx1(latency: float = 0.7 * US) -> Topology:
    return plain.dgx1(latency / US)


def ndv2_2_published() -> Topology:
    return plain.ndv2_2(published=True)


def ring(count: int, latency: float = 0.0, rate: float = 50 * GBPS) -> Topology:
    links = [
        one for n in range(count) for one in both(n, (n + 1) % count, rate, latency)
    ]
    return dataclasses.replace(plain.ring(count), links=tuple(links))


def star(count: int, copy: bool, free_exit: bool = False) -> Topology:
    """GPUs around one switch, 100 GB/s, no latency."""
    links = [one for n in range(count) for one in both(n, count, 100 * GBPS, 0.0)]
    found = plain.star(count, copy)
    return dataclasses.replace(found, links=tuple(links), free_exit=free_exit)


def all_gather(topology: Topology, chunk: float, chunks: int = 1) -> Demand:
    return plain.all_gather(topology, chunk * topology.buffer_gpus * chunks, chunks)


def all_to_all(topology: Topology, chunk: float) -> Demand:
    return plain.all_to_all(topology, chunk * topology.buffer_gpus)


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
