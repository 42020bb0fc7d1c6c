"""Lower bounds on the finish of a collective, in epochs and in s.

Each is a fact about every schedule:

- a block is nowhere before its earliest arrival, the shortest way in time;
- for every GPU w of a group of nodes, what w wants from outside has to pass the links
  into the group one after the other, each block no sooner than it can be at the link,
  and then has to get to w (groups: single GPUs, chassis, islands that faster links
  join);
- blocks with one taker fill links with bytes times the way that they go (`prices`);
- by max-flow, whatever the chunks, a volume wanted at a node passes every cut.

Reductions are bounded on the reversed machine, where they are all-gathers. An
all-reduce does both, one after the other for each sum: every group with a taker needs
every sum that has summands elsewhere; k groups receive each sum 2 (k - 1) times where
nothing between them adds up; and the last sum to be complete has still to spread.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float

from ._cuts import Cuts, Pipes, cuts, fluid, receptions, sum_cuts, whole_blocks
from ._demand import Demand
from ._duals import price_bound, transfers
from ._routes import (
    Clock,
    EpochModel,
    distances,
    epoch_clock,
    hop_times,
    second_clock,
    shortest,
)
from ._time_reversal import spreads
from ._topology import Topology

_MOST_SIZES: Final = 32
_ROUNDING: Final = 1e-9
_FLOW_UNITS: Final = 2**30
"""Integers that max-flow counts in, for the largest capacity."""


def epoch_bound(
    demand: Demand, topology: Topology, model: EpochModel, whole: bool = True
) -> int:
    """Least epochs of any schedule in the model of epochs: of whole chunks, or of flows
    that carry any part of a chunk (a send in epoch k is there in k + 1 + a)."""
    delay = model.delay.astype(float)
    if whole:
        bound = _bound(demand, topology, None, epoch_clock(model))
    else:
        pipes = Pipes(1 + delay, delay, model.capacity, model.chunk)
        bound = _bound(demand, topology, pipes, None)
    # Rounding just above a whole number must not claim an epoch more.
    return int(np.ceil(bound - _ROUNDING * max(bound, 1.0)))


def second_bound(demand: Demand, topology: Topology, whole: bool = True) -> float:
    """Lower bound on the finish (s); if not `whole`, chunks may be cut up."""
    pipes = Pipes(topology.latencies, topology.latencies, topology.rates)
    size = demand.size
    alike = whole and np.ptp(size) <= _ROUNDING * size.max()
    clock = second_clock(topology, float(size[0])) if alike else None
    bound = _bound(demand, topology, pipes, clock)
    if whole and not alike:
        bound = max(bound, _arrival(demand, topology))
    for machine, spread in spreads(demand, topology):
        moved = transfers(spread)
        bound = max(bound, price_bound(moved, machine, whole))
        if len(spread.source) and (spread.wanted.sum(1) == 1).all():
            back = _time_reversed(spread)
            # Cuts count what comes into groups: what leaves a few sources (scatter)
            # comes in where time runs backwards.
            if len(np.unique(spread.source)) < len(np.unique(back.source)):
                turned = machine.reversed()
                inward = cuts(turned, back)
                alone = _cut_bounds(turned, inward, pipes, clock, back)[0]
                bound = max(bound, alone)
    return bound


def _arrival(demand: Demand, topology: Topology) -> float:
    """s before which some block of its own size cannot be with a taker; blocks of the
    largest `_MOST_SIZES` sizes count."""
    bound = 0.0
    for machine, spread in spreads(demand, topology):
        for size in np.unique(spread.size)[-_MOST_SIZES:]:
            mine = spread.size == size
            way = distances(machine, second_clock(machine, float(size)))
            far = np.where(spread.wanted[mine], way[spread.source[mine]], 0.0)
            bound = max(bound, float(far.max(initial=0.0)))
    return bound


def cut_bound(demand: Demand, topology: Topology) -> float:
    """Least s by max-flow, for any chunking: everything that a GPU wants must reach it
    through the network at once, and everything with one taker must leave its GPU."""
    bound = 0.0
    for machine, spread in spreads(demand, topology):
        source, wanted, size = spread.source, spread.wanted, spread.size
        for node in np.flatnonzero(wanted.any(0)):
            mine = wanted[:, node]
            volume = np.bincount(source[mine], size[mine], len(topology.nodes))
            bound = max(bound, _flow_time(machine, volume, int(node), False))
        single = wanted.sum(1) == 1
        for node in np.unique(source[single]):
            mine = single & (source == node)
            taker = wanted[mine].argmax(1)
            volume = np.bincount(taker, size[mine], len(topology.nodes))
            bound = max(bound, _flow_time(machine, volume, int(node), True))
    return bound


def _time_reversed(spread: Demand) -> Demand:
    """The demand in reversed time, for blocks with one taker."""
    wanted = np.zeros_like(spread.wanted)
    wanted[np.arange(len(wanted)), spread.source] = True
    taker = spread.wanted.argmax(1)
    return dataclasses.replace(spread, source=taker, wanted=wanted)


def _bound(
    demand: Demand, topology: Topology, pipes: Pipes | None, clock: Clock | None
) -> float:
    """Bound by cuts: of what may be cut up (`pipes`) and of whole blocks (`clock`).

    Raises:
        ValueError: a block cannot reach one of its takers.
    """
    bound = 0.0
    halves: list[tuple[float, float]] = []
    for machine, spread in spreads(demand, topology):
        groups = cuts(machine, spread)
        alone, last = _cut_bounds(machine, groups, pipes, clock, spread)
        bound = max(bound, alone)
        halves.append((alone, last))
    if np.isinf(bound):
        raise ValueError(
            "`demand` has a block that cannot reach one of its takers; add links or "
            "change the demand."
        )
    if demand.collective == "all_reduce":
        # The last sum spreads when all are in; the first is in before any spreads.
        (come, first), (go, last) = halves
        bound = max(bound, come + last, first + go)
        groups = sum_cuts(topology, demand)
        bound = max(bound, _cut_bounds(topology, groups, pipes, clock)[0])
        bound = max(bound, _reception_bound(demand, topology, pipes, clock))
    return bound


def _cut_bounds(
    topology: Topology,
    groups: list[Cuts],
    pipes: Pipes | None,
    clock: Clock | None,
    spread: Demand | None = None,
) -> tuple[float, float]:
    """Bound by cuts, and the least time in which a block reaches all its takers."""
    bound, single = 0.0, 0.0
    if pipes is not None:
        way = shortest(topology, pipes.hop)
        bound, single = _farthest(spread, way)
        for cut in groups:
            time = fluid(cut, topology, way, pipes)
            bound = max(bound, time)
    if clock is not None:
        way, hop = distances(topology, clock), hop_times(topology, clock)
        far, near = _farthest(spread, way)
        bound, single = max(bound, far), max(single, near)
        for cut in groups:
            bound = whole_blocks(cut, topology, clock, way, hop, bound)
    return bound, single


def _farthest(
    spread: Demand | None, way: Float[np.ndarray, "node node"]
) -> tuple[float, float]:
    """Longest and shortest time of a block to its farthest taker."""
    if spread is None or not len(spread.source):
        return 0.0, 0.0
    far = np.where(spread.wanted, way[spread.source], 0.0).max(1)
    return float(far.max()), float(far.min())


def _reception_bound(
    demand: Demand, topology: Topology, pipes: Pipes | None, clock: Clock | None
) -> float:
    """Bound of an all-reduce by how often groups receive sums."""
    bound = 0.0
    for into, times in receptions(topology, demand):
        if pipes is not None:
            volume = float((times * demand.size).sum()) / pipes.unit
            wait, rate = pipes.wait[into], pipes.rate[into]
            order = np.argsort(wait)
            moved = np.cumsum((rate * wait)[order])
            bound = max(bound, float(((volume + moved) / np.cumsum(rate[order])).min()))
        if clock is not None:
            bound = max(bound, _nth_arrival(int(times.sum()), clock, into))
    return bound


def _nth_arrival(count: int, clock: Clock, into: np.ndarray) -> float:
    """When the last of `count` sends of whole blocks over any of the links is there."""
    if not count:
        return 0.0
    lanes, busy = clock.lanes[into], clock.busy[into]
    # Together they need no more turns than at the mean rate, and one for what is left.
    turns = int(np.ceil(count / (lanes / busy).sum() / busy.min())) + 1
    times = clock.arrive[into] + np.arange(turns)[:, None] * busy
    times = np.repeat(times.ravel(), np.tile(lanes, turns))
    return float(np.partition(times, count - 1)[count - 1])


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
    into = topology.rates[ends[1] == node].sum()
    time = float(volume.sum()) / into if into else np.inf
    for _ in range(len(topology.nodes)):
        if np.isinf(time):
            return time
        capacity = np.append(topology.rates * time, volume[givers])
        # SciPy's max-flow counts in 32 bit. Capacities are rounded up; the time then
        # follows from the true rates of the cut.
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
