"""Machines, demands and schedules for the tests of collectives, and plain checks.

Machines have links in GB/s and us; those called `unit_` in B/s and s, and schedules on
them are written down as rows (`schedule`).
"""

import csv
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives._bounds import epoch_bound, second_bound
from diffenergy.collectives._demand import COLLECTIVES, Collective
from diffenergy.collectives._demands import read_demand_file
from diffenergy.collectives._duals import flow_bound
from diffenergy.collectives._energy import (
    MemoryPrice,
    byte_prices,
    memory_price,
    schedule_price,
)
from diffenergy.collectives._epoch_schedule import SolverResult
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._lp import lp
from diffenergy.collectives._milp import least_finish, rounds
from diffenergy.collectives._order import finish_time
from diffenergy.collectives._plan import Plan
from diffenergy.collectives._published import read_published, run_published
from diffenergy.collectives._routes import EpochModel, epoch_length, epoch_model
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._simulate import order_of, retime, run_epochs
from diffenergy.collectives._time_reversal import spread_of
from diffenergy.collectives._topology import Energy, Kind, Link, Node
from diffenergy.collectives._verify import verify
from diffenergy.collectives._what_if import disable
from diffenergy.search import LinearModel

GB = 1e9
MB = 1e6
US = 1e-6
CHUNK = 25e3
"""B."""
QUICK = Effort(batches=1, restarts=4)
DGX1_LEAST = {
    (0.0, "slowest"): [2, 3, 4, 5, 6, 7],
    (0.7, "slowest"): [4, 5, 6, 6, 7, 8],
    (0.0, "fastest"): [3, 5, 8],
    (0.7, "fastest"): [7, 9, 10],
}
"""Least epochs of all-gathers of 1, 2, ... chunks of `CHUNK` on a DGX-1 by latency
(us) and kind of epoch, proven by another solver."""
_NONE = Energy(0.0, 0.0, 0.0, "none")
Edge = tuple[int, int, float, float]
Edge3 = tuple[int, int, float]


def seeds(count: int, quick: int) -> list[Any]:
    """Seeds of random cases as parameters, those from `quick` on slow."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=[slow] if n >= quick else []) for n in range(count)]


def published(shared: Path, collective: str) -> list[dict[str, str]]:
    """Rows of the published results of TE-CCL in fast and slow epochs."""
    with open(shared / "data/teccl/goldens_ndv2_2chassis.csv") as file:
        rows = list(csv.DictReader(file))
    kinds = ("Fast", "Slow")
    return [
        r for r in rows if r["collective"] == collective and r["epoch_type"] in kinds
    ]


def write_json(path: Path, table: dict[str, Any]) -> Path:
    path.write_text(json.dumps(table))
    return path


def epochs_of(topology: Topology, kind: str = "slowest", chunk: float = CHUNK):
    """Epochs of the fastest or slowest link, for chunks of `chunk` B."""
    return epoch_model(topology, chunk, epoch_length(topology, chunk, kind))


# --- machines: links in GB/s and us


def machine(
    name: str,
    nodes: list[Node],
    edges: list[Edge],
    gpus: int,
    free_exit: bool = False,
    units: tuple[float, float] = (GB, US),
) -> Topology:
    """Topology of nodes and (source, target, rate, latency) in `units`."""
    links = tuple(
        Link(a, b, rate * units[0], latency * units[1], "nvlink", _NONE)
        for a, b, rate, latency in edges
    )
    return Topology(name, tuple(nodes), links, gpus, free_exit=free_exit)


def gpu_nodes(count: int, per_chassis: int) -> list[Node]:
    return [Node(f"gpu{i}", "gpu", chassis=i // per_chassis) for i in range(count)]


def both(a: int, b: int, rate: float, latency: float) -> list[Edge]:
    return [(a, b, rate, latency), (b, a, rate, latency)]


def dgx1(latency: float = 0.7) -> Topology:
    return load_topology("dgx1", latency * US)


def ndv2_2(published: bool = False) -> Topology:
    return load_topology("ndv2-2-published" if published else "ndv2-2")


def ndv2_4() -> Topology:
    return dataclasses.replace(load_topology("ndv2-4"), free_exit=False)


def dgx2_2(free_exit: bool = False) -> Topology:
    return dataclasses.replace(load_topology("dgx2-2"), free_exit=free_exit)


def torus(*sides: int) -> Topology:
    return load_topology("torus-" + "x".join(map(str, sides)))


def ring(count: int, latency: float = 0.7, rate: float = 50.0, **how: Any) -> Topology:
    edges = [e for i in range(count) for e in both(i, (i + 1) % count, rate, latency)]
    return machine(f"ring-{count}", gpu_nodes(count, 1), edges, count, **how)


def star(
    count: int,
    copy: bool = True,
    reduces: bool = False,
    latency: float = 0.35,
    rate: float = 100.0,
    **how: Any,
) -> Topology:
    """GPUs on one switch."""
    nodes = [*gpu_nodes(count, count), Node("sw0", "switch", copy, reduces)]
    edges = [e for i in range(count) for e in both(i, count, rate, latency)]
    return machine(f"star-{count}", nodes, edges, count, **how)


def unit_ring(count: int, rate: float = 1.0, latency: float = 0.0) -> Topology:
    """In B/s and s."""
    return ring(count, latency, rate, units=(1.0, 1.0))


def unit_star(
    count: int, rate: float = 1.0, latency: float = 0.0, **switch: bool
) -> Topology:
    """In B/s and s."""
    return star(count, latency=latency, rate=rate, units=(1.0, 1.0), **switch)


def jittered(topology: Topology, seed: int = 3) -> Topology:
    """Rates and latencies without ties, so that finite differences are defined."""
    rng = np.random.default_rng(seed)
    links = tuple(
        dataclasses.replace(
            link,
            rate=link.rate * rng.uniform(0.9, 1.1),
            latency=link.latency * rng.uniform(0.9, 1.1),
        )
        for link in topology.links
    )
    return dataclasses.replace(topology, links=links)


def random_ring(seed: int, rates: list[float], latencies: list[float]) -> Topology:
    """Four GPUs, each link with a rate (GB/s) and a latency (us) of the lists."""
    chance = np.random.default_rng(seed)
    edges = [
        (a, b, float(chance.choice(rates)), float(chance.choice(latencies)))
        for a, b, _, _ in (e for n in range(4) for e in both(n, (n + 1) % 4, 1.0, 0.0))
    ]
    return machine("random-ring", gpu_nodes(4, 1), edges, 4)


def priced_machine(
    ends: Iterable[Edge3], gpus: int, switches: int = 0, copy: bool = True
) -> Topology:
    """Links (source, target, pJ/bit) of 100 GB/s without latency."""
    nodes = gpu_nodes(gpus, gpus)
    nodes += [Node(f"sw{n}", "switch", copy) for n in range(switches)]
    links = tuple(
        Link(a, b, 100 * GB, 0.0, "wire", Energy(e, e / 2, 2 * e, "by hand"))
        for a, b, e in ((a, b, pj * 1e-12) for a, b, pj in ends)
    )
    return Topology("by hand", tuple(nodes), links, gpus)


def played(
    topology: Topology, wanted: Demand, trips: Sequence[tuple[int, int]]
) -> Schedule:
    """Sends (link, slot) of a block of 1 MB, a slot as long as a send at 100 GB/s."""
    link, slot = (np.array(column) for column in zip(*trips, strict=True))
    took, zeros = MB / (100 * GB), np.zeros(len(link), int)
    sizes = np.full(len(link), MB)
    sends = Sends(zeros, link, slot * took, (slot + 1) * took, sizes, zeros)
    return Schedule(topology, wanted, sends)


# --- what a topology is, read off its links


def into(topology: Topology) -> np.ndarray:
    """B/s into every node."""
    return np.bincount(topology.targets, topology.rates, len(topology.nodes))


def out_of(topology: Topology) -> np.ndarray:
    return np.bincount(topology.sources, topology.rates, len(topology.nodes))


def link(topology: Topology, source: str, target: str) -> Link | None:
    """The link from one named node to another, if there is one."""
    ends = topology.index[source], topology.index[target]
    result = [x for x in topology.links if (x.source, x.target) == ends]
    return result[0] if result else None


def reached(topology: Topology, start: int) -> set[int]:
    """Nodes that some path from `start` leads to."""
    seen, front = {start}, [start]
    while front:
        node = front.pop()
        ahead = {x.target for x in topology.links if x.source == node} - seen
        seen |= ahead
        front += ahead
    return seen


# --- demands


def all_gather(topology: Topology, size: float, chunks: int = 1) -> Demand:
    return demand("all_gather", topology, size, chunks)


def all_to_all(topology: Topology, size: float) -> Demand:
    return demand("all_to_all", topology, size)


def gather_chunks(topology: Topology, chunk: float, chunks: int = 1) -> Demand:
    """All-gather of chunks of `chunk` B."""
    return all_gather(topology, chunk * topology.buffer_gpus * chunks, chunks)


def exchange_chunks(topology: Topology, chunk: float) -> Demand:
    """All-to-all of chunks of `chunk` B."""
    return all_to_all(topology, chunk * topology.buffer_gpus)


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


# --- unit machines: links in B/s and s, and schedules as rows


def unit_machine(
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
    joined = tuple(
        Link(index[a], index[b], rate, latency, "test", _NONE)
        for a, b, rate, latency in links
    )
    gpus = sum(node.kind == "gpu" for node in nodes)
    return Topology(
        "by-hand", tuple(nodes), joined, buffer_gpus or gpus, free_exit=free_exit
    )


def unit_both(a: str, b: str, rate: float, latency: float) -> list:
    return [(a, b, rate, latency), (b, a, rate, latency)]


def unit_demand(
    topology: Topology, collective: Collective, size: float = 1.0, chunks: int = 1
) -> Demand:
    """All GPUs take part; `size`: B of a block."""
    buffer = size * topology.buffer_gpus * chunks
    return demand(collective, topology, buffer, chunks)


def only(whole: Demand, block: int, takers: Any = None, parts: Any = None) -> Demand:
    """One block alone; nodes that want it and that add to it, if they are others."""
    columns = dataclasses.astuple(whole)[1:]
    result = Demand(whole.collective, *(column[[block]] for column in columns))
    for mask, nodes in ((result.wanted, takers), (result.parts, parts)):
        if nodes is not None:
            mask[:] = np.isin(np.arange(mask.shape[1]), nodes)
    return result


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


def timed(
    topology: Topology, demand: Demand, rows: Sequence[tuple[int, int, float, float]]
) -> Schedule:
    """Schedule of (block, link, start, end) in s; whole blocks."""
    block, link, start, end = map(np.array, zip(*rows, strict=True))
    phase = np.zeros(len(rows), int)
    sends = Sends(block, link, start, end, demand.size[block], phase)
    return Schedule(topology, demand, sends)


def chain() -> Schedule:
    """Two chunks of 1 MB over gpu0 -> gpu1 (10 GB/s, 3 us) -> gpu2 (20 GB/s, 5 us),
    with idle time everywhere; 258 us without: 200 us on the first link, 3 us, the last
    chunk's 50 us on the second, 5 us."""
    edges = [(0, 1, 10.0, 3.0), (1, 2, 20.0, 5.0)]
    topology = machine("chain", gpu_nodes(3, 3), edges, 1)
    rows = [(0, 0, 1.0, 1.5), (1, 0, 2.0, 2.5), (0, 1, 3.0, 3.5), (1, 1, 4.0, 4.5)]
    return timed(topology, blocks(topology, [(0, 2), (0, 2)]), rows)


def without(schedule_: Schedule, send: int) -> Schedule:
    """One send less."""
    return take(schedule_, np.delete(np.arange(len(schedule_.sends)), send))


def take(schedule_: Schedule, chosen: np.ndarray) -> Schedule:
    """Only the chosen sends."""
    return schedule_.with_sends(schedule_.sends.take(chosen))


def changed(schedule_: Schedule, send: int, **values: float) -> Schedule:
    """One send with other values."""
    columns = {
        f.name: getattr(schedule_.sends, f.name).copy()
        for f in dataclasses.fields(Sends)
    }
    for name, value in values.items():
        columns[name][send] = value
    return schedule_.with_sends(Sends(**columns))


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


# --- plain checks


def schedule_of(result: SolverResult) -> Schedule:
    """The schedule of a solver's result."""
    assert result.schedule is not None
    return result.schedule


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
            flow = size[to == node].sum() - size[frm == node].sum()
            wish = demand.size[block] * demand.wanted[block, node]
            assert abs(flow - wish) <= tiny
        assert arrive.max() <= horizon
