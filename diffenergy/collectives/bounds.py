"""Lower bounds on the finish of a collective, in epochs and in s.

Three bounds, each a fact about every schedule:

- a block is nowhere before its earliest arrival, the shortest way in time;
- for every GPU w of a group of nodes, what w wants from outside has to pass the links
  into the group one after the other, each block no sooner than it can be at the link,
  and then has to get to w (groups: single GPUs, chassis, islands that faster links
  join);
- by max-flow, whatever the chunks, a volume wanted at a node passes every cut.

Reductions are bounded on the reversed machine, where they are all-gathers.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .demand import Demand
from .epochs import EpochModel
from .routes import Clock, distances, epoch_clock, hop_times, second_clock
from .topology import Topology

_ROUNDING: Final = 1e-9
_FLOW_UNITS: Final = 2**30
"""Integers that max-flow counts in, for the largest capacity."""
_MOST_CELLS: Final = 5e7
"""(link, block) pairs of a group beyond which a group is left out."""
_UNREACHED: Final = (
    "`demand` has a block that cannot reach one of its takers; add links or change "
    "the demand."
)


@dataclasses.dataclass(frozen=True)
class _Spread:
    """Blocks that spread on a machine: of a sum its reversal."""

    topology: Topology
    source: Int[np.ndarray, " block"]
    wanted: Bool[np.ndarray, "block node"]
    size: Float[np.ndarray, " block"]


@dataclasses.dataclass(frozen=True)
class _Pipes:
    """Links for data that may be cut up, in s and B or in epochs and chunks: `hop`
    from when a sender has a first part to when the receiver has it, of which `wait`
    does not fill the link; `rate` of what flows."""

    hop: Float[np.ndarray, " link"]
    wait: Float[np.ndarray, " link"]
    rate: Float[np.ndarray, " link"]


def epoch_bound(
    demand: Demand, topology: Topology, model: EpochModel, whole: bool = True
) -> int:
    """Least epochs of any schedule in the model of epochs: of whole chunks, or of flows
    that carry any part of a chunk (a send in epoch k is there in k + 1 + a)."""
    bound = 0.0
    for spread in _spreads(demand, topology):
        if whole:
            bound = max(bound, _chunk_bound(spread, epoch_clock(model)))
        else:
            delay = model.delay.astype(float)
            pipes = _Pipes(1 + delay, delay, model.capacity)
            bound = max(bound, _volume_bound(spread, spread.size / model.chunk, pipes))
    if np.isinf(bound):
        raise ValueError(_UNREACHED)
    return int(np.ceil(bound - _ROUNDING * max(bound, 1.0)))


def second_bound(demand: Demand, topology: Topology, whole: bool = True) -> float:
    """Least s of any schedule; of chunks that may be cut up if not `whole`."""
    bound = 0.0
    pipes = _Pipes(topology.latencies, topology.latencies, topology.rates)
    for spread in _spreads(demand, topology):
        bound = max(bound, _volume_bound(spread, spread.size, pipes))
        size = demand.size
        if whole and np.ptp(size) <= _ROUNDING * size.max():
            clock = second_clock(spread.topology, float(size[0]))
            bound = max(bound, _chunk_bound(spread, clock))
    if demand.collective == "all_reduce":
        bound = max(bound, _gossip_bound(demand, topology))
    if np.isinf(bound):
        raise ValueError(_UNREACHED)
    return bound


def cut_bound(demand: Demand, topology: Topology) -> float:
    """Least s by max-flow, for any chunking: everything that a GPU wants must reach it
    through the network at once, and everything with one taker must leave its GPU."""
    bound = 0.0
    for spread in _spreads(demand, topology):
        source, wanted, size = spread.source, spread.wanted, spread.size
        for node in np.flatnonzero(wanted.any(0)):
            mine = wanted[:, node]
            volume = np.bincount(source[mine], size[mine], len(topology.nodes))
            bound = max(bound, _flow_time(spread.topology, volume, int(node), False))
        single = wanted.sum(1) == 1
        for node in np.unique(source[single]):
            mine = single & (source == node)
            taker = wanted[mine].argmax(1)
            volume = np.bincount(taker, size[mine], len(topology.nodes))
            bound = max(bound, _flow_time(spread.topology, volume, int(node), True))
    return bound


def _spreads(demand: Demand, topology: Topology) -> list[_Spread]:
    """What spreads: the summands' ways reversed, the results, or both."""
    home = np.arange(len(demand.source)), demand.source
    halves = [(topology.reversed(), demand.parts)] if demand.reduces else []
    if not demand.reduces or demand.collective == "all_reduce":
        halves.append((topology, demand.wanted))
    spreads = []
    for machine, takers in halves:
        wanted = takers.copy()
        wanted[home] = False
        spreads.append(_Spread(machine, demand.source, wanted, demand.size))
    return spreads


def groups(topology: Topology) -> Bool[np.ndarray, "group node"]:
    """Sets of nodes whose links in are counted: GPUs, chassis, islands by rate."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(topology.nodes)
    sets = [np.eye(count, dtype=bool)[topology.gpus]]
    labels = [np.array([node.chassis for node in topology.nodes])]
    for rate in np.unique(topology.rates)[1:]:
        fast = topology.rates >= rate
        ends = topology.sources[fast], topology.targets[fast]
        graph = coo_array((np.ones(fast.sum()), ends), (count, count))
        labels.append(connected_components(graph, connection="strong")[1])
    for label in labels:
        sets.append(label == np.unique(label[label >= 0])[:, None])
    members = np.concatenate(sets)
    inside = members[:, topology.gpus].sum(1)
    members = members[(inside > 0) & (inside < len(topology.gpus))]
    return np.unique(members, axis=0)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """What must pass the links `into` a group: `blocks`, each wanted by all `takers`,
    or by one or more of them if not `all_`."""

    into: Int[np.ndarray, " link"]
    blocks: Int[np.ndarray, " needed"]
    takers: Int[np.ndarray, " taker"]
    all_: bool


def _entries(spread: _Spread) -> Iterator[_Entry]:
    """For each group: every set of blocks that GPUs of it want from outside, with the
    GPUs that want that set, and what they want together."""
    topology, wanted = spread.topology, spread.wanted
    for group in groups(topology):
        into = np.flatnonzero(~group[topology.sources] & group[topology.targets])
        members = np.flatnonzero(group)
        foreign = np.flatnonzero(~group[spread.source])
        if not len(into) or len(into) * len(foreign) > _MOST_CELLS:
            continue
        needed = wanted[np.ix_(foreign, members)]
        if len(members) == 1:
            sets, kind = needed.T, np.zeros(1, int)
        else:
            sets, kind = np.unique(needed.T, axis=0, return_inverse=True)
        for row, blocks in enumerate(sets):
            if blocks.any():
                yield _Entry(into, foreign[blocks], members[kind == row], True)
        if len(sets) > 1:
            some, takers = needed.any(1), members[needed.any(0)]
            yield _Entry(into, foreign[some], takers, False)


def _chunk_bound(spread: _Spread, clock: Clock) -> float:
    """Bound for whole chunks of one size, in the clock's unit: of links that pass their
    blocks as early as they can, the n fastest deliveries to the last taker."""
    topology, source = spread.topology, spread.source
    way = distances(topology, clock)
    hop = hop_times(topology, clock)
    bound = float(np.where(spread.wanted, way[source], 0.0).max(initial=0.0))
    if np.isinf(bound):
        return bound
    for entry in _entries(spread):
        into, count = entry.into, len(entry.blocks)
        start = way[np.ix_(source[entry.blocks], topology.sources[into])].T
        passed = _spaced(np.sort(start + hop[into][:, None], 1), clock, into)
        tail = way[np.ix_(topology.targets[into], entry.takers)]
        if not entry.all_:
            tail = tail.min(1, keepdims=True)
        for column in tail.T:
            there = (passed + column[:, None]).ravel()
            bound = max(bound, float(np.partition(there, count - 1)[count - 1]))
    return bound


def _spaced(
    ready: Float[np.ndarray, "link block"],
    clock: Clock,
    links: Int[np.ndarray, " link"],
) -> Float[np.ndarray, "link block"]:
    """When the n-th block can have passed: no sooner than the n-th is ready and `busy`
    after the one `lanes` before it: c_n = max(ready_n, c_{n - lanes} + busy)."""
    passed = np.empty_like(ready)
    for lanes in np.unique(clock.lanes[links]):
        rows = clock.lanes[links] == lanes
        turn = np.arange(ready.shape[1]) // lanes
        wait = turn * clock.busy[links[rows]][:, None]
        ahead = ready[rows] - wait
        for lane in range(min(int(lanes), ready.shape[1])):
            mine = slice(lane, None, int(lanes))
            ahead[:, mine] = np.maximum.accumulate(ahead[:, mine], axis=1)
        passed[rows] = ahead + wait
    return passed


def _volume_bound(
    spread: _Spread, volume: Float[np.ndarray, " block"], pipes: _Pipes
) -> float:
    """Bound for any cutting up: volume into each group at the rates of its links, each
    open from when a first part can be there until a last one must leave."""
    topology, source = spread.topology, spread.source
    zero = np.zeros_like(pipes.hop)
    way = distances(topology, Clock(zero, zero.astype(int), pipes.hop, pipes.hop, zero))
    bound = float(np.where(spread.wanted, way[source], 0.0).max(initial=0.0))
    if np.isinf(bound):
        return bound
    for entry in _entries(spread):
        into, senders = entry.into, np.unique(source[entry.blocks])
        first = way[np.ix_(senders, topology.sources[into])].min(0)
        tail = way[np.ix_(topology.targets[into], entry.takers)].min(1)
        if entry.all_ and len(entry.takers) == 1:
            tail = way[topology.targets[into], entry.takers[0]]
        closed = first + pipes.wait[into] + tail
        total = float(volume[entry.blocks].sum())
        bound = max(bound, _fill_time(total, pipes.rate[into], closed))
    return bound


def _fill_time(
    volume: float, rates: Float[np.ndarray, " link"], closed: Float[np.ndarray, " link"]
) -> float:
    """T at which sum of rate max(0, T - closed) reaches `volume`."""
    order = np.argsort(closed)
    rate = np.cumsum(rates[order])
    moved = np.cumsum((rates * np.where(np.isinf(closed), 0, closed))[order])
    live = np.isfinite(closed[order])
    if not live.any():
        return np.inf
    return float(((volume + moved[live]) / rate[live]).min())


def _gossip_bound(demand: Demand, topology: Topology) -> float:
    """Bound of an all-reduce without switches that reduce, s: n GPUs that all have and
    want a sum need 2 (n - 1) receptions of it (one-way gossip)."""
    if any(node.reduces for node in topology.nodes if node.kind != "gpu"):
        return 0.0
    into = topology.stores[topology.targets]
    parts = demand.parts.sum(1)
    same = (demand.parts == demand.wanted).all(1)
    receptions = np.where(same, 2.0 * (parts - 1), 0.0)
    return float((receptions * demand.size).sum() / topology.rates[into].sum())


def _flow_time(
    topology: Topology, volume: Float[np.ndarray, " node"], node: int, out: bool
) -> float:
    """Least s in which `volume` (B at each node) flows to `node`, or from it if `out`:
    T grows to what the cut found at T needs, until no cut is too small."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    ends = (topology.sources, topology.targets)
    if out:
        ends = ends[::-1]
    hub = len(topology.nodes)
    givers = np.flatnonzero(volume)
    if not len(givers):
        return 0.0
    rows = np.append(ends[0], np.full(len(givers), hub))
    columns = np.append(ends[1], givers)
    time, total = 0.0, float(volume.sum())
    into = topology.rates[ends[1] == node].sum()
    time = total / into if into else np.inf
    for _ in range(len(topology.nodes)):
        if np.isinf(time):
            return time
        capacity = np.append(topology.rates * time, volume[givers])
        unit = capacity.max() / _FLOW_UNITS * 2
        scaled = np.ceil(capacity / unit).astype(np.int32)
        graph = coo_array((scaled, (rows, columns)), (hub + 1, hub + 1)).tocsr()
        flow = maximum_flow(graph, hub, node).flow
        left = (graph - flow).tocsr()
        left.eliminate_zeros()
        reached = np.zeros(hub + 1, bool)
        reached[breadth_first_order(left, hub, return_predecessors=False)] = True
        cut = reached[ends[0]] & ~reached[ends[1]]
        crossing = volume[reached[:hub]].sum()
        rate = topology.rates[cut].sum()
        needed = crossing / rate if rate else (np.inf if crossing > 0 else 0.0)
        if needed <= time * (1 + 1e-6):
            return time
        time = needed
    return time
