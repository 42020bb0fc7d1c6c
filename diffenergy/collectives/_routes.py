"""`Clock` and `Routes`: how long links take, and the paths from GPU to GPU.

`EpochModel`: time cut into epochs, as published for TE-CCL (SIGCOMM 2024). With tau the
epoch, b the chunk, and a link of rate r and latency alpha:

- capacity r tau / b chunks an epoch; over any 1 + beta epochs in a row, with
  beta = max(0, ceil(b / (r tau)) - 1), at most floor((1 + beta) r tau / b);
- delay a = ceil(alpha / tau) epochs where alpha > tau / 10, else 0;
- what is sent in epoch k can be sent on from epoch k + 1 + beta + a; out of a switch
  whose exit is free from epoch k + a.
"""

import collections
import dataclasses
import functools
import heapq
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ._topology import Topology

_ROUNDING: Final = 1e-9
"""Quotients this near a whole number are that number."""
_SHORTEST: Final = 200.0
"""Least latency / shortest epoch."""
_NEGLIGIBLE: Final = 0.1
"""Latencies below this share of an epoch count as none."""


@dataclasses.dataclass(frozen=True)
class EpochModel:
    """Links in epochs of `tau` s, for chunks of `chunk` B; axes (link,)."""

    tau: float
    chunk: float
    capacity: Float[np.ndarray, " link"]  # chunks an epoch
    window: Int[np.ndarray, " link"]  # epochs that a limit spans: 1 + beta
    most: Int[np.ndarray, " link"]  # chunks in any window
    delay: Int[np.ndarray, " link"]  # a, epochs
    hop: Int[np.ndarray, " link"]  # epochs from a send to the next: 1 + beta + a

    @property
    def part_hop(self) -> Int[np.ndarray, " link"]:
        """Epochs from a send of any part of a chunk to the next: 1 + a."""
        return 1 + self.delay


def epoch_length(topology: Topology, chunk: float, kind: str = "fastest") -> float:
    """s that a chunk (B) takes on the fastest or slowest link, at least a 200th of the
    least latency (machines with a link of no latency are exempt)."""
    rates = topology.rates
    tau = chunk / (rates.max() if kind == "fastest" else rates.min())
    return max(tau, float(topology.latencies.min()) / _SHORTEST)


def epoch_model(topology: Topology, chunk: float, tau: float) -> EpochModel:
    """The links of `topology` in epochs of `tau` s."""
    share = topology.rates * tau / chunk
    window = np.maximum(np.ceil(1 / share - _ROUNDING), 1).astype(int)
    most = np.floor(window * share + _ROUNDING).astype(int)
    ratio = topology.latencies / tau
    delay = np.ceil(ratio - _ROUNDING) * (ratio > _NEGLIGIBLE)
    delay = delay.astype(int)
    hop = window + delay
    if topology.free_exit:
        out = ~topology.stores[topology.sources]
        hop = np.where(out, delay, hop)
    return EpochModel(tau, chunk, share, window, most, delay, hop)


@dataclasses.dataclass(frozen=True)
class Clock:
    """What a send of one chunk takes on each link, in s or in epochs.

    A link has `lanes` and a send keeps one of them for `busy`; the chunk is at the
    other end `arrive` after the start, at the earliest. Through a switch or NIC it goes
    on `lead[in] + max(0, drag[in] - drag[out])` after its start on the way in: in
    epochs exactly when it is there; in s cut-through, so that the last byte leaves no
    earlier than it came.
    """

    busy: Float[np.ndarray, " link"]
    lanes: Int[np.ndarray, " link"]
    arrive: Float[np.ndarray, " link"]
    lead: Float[np.ndarray, " link"]
    drag: Float[np.ndarray, " link"]

    def onward(self, before: int, after: int) -> float:
        """Delay between the starts on a link into a switch and on one out of it."""
        return self.lead[before] + max(0.0, self.drag[before] - self.drag[after])


def epoch_clock(model: EpochModel) -> Clock:
    """Links in epochs. Below a chunk an epoch a link holds one chunk a window: fewer
    than two fit into 1 + beta < 1 / capacity + 1 epochs."""
    hop = model.hop.astype(float)
    return Clock(model.window.astype(float), model.most, hop, hop, np.zeros_like(hop))


def second_clock(topology: Topology, chunk: float) -> Clock:
    """Links in s for chunks of `chunk` B."""
    busy = chunk / topology.rates
    latency = topology.latencies
    return Clock(busy, np.ones(len(busy), int), busy + latency, latency, busy)


@dataclasses.dataclass(frozen=True)
class Routes:
    """Paths from GPU to GPU that pass no third GPU, one for each first link and GPU
    reached. `links`: along the path, -1 beyond its end; `offset`: starts on them after
    the start on the first; `arrive`: when the last byte is there."""

    links: Int[np.ndarray, "route hop"]
    offset: Float[np.ndarray, "route hop"]
    arrive: Float[np.ndarray, " route"]
    source: Int[np.ndarray, " route"]
    target: Int[np.ndarray, " route"]
    fans: Bool[np.ndarray, " route"]
    """Whether one send on the first link can serve all its routes at once: no relay
    without copy has a choice of ways out."""

    @property
    def direct(self) -> Bool[np.ndarray, " route"]:
        """Which routes have a single link."""
        return (self.links >= 0).sum(1) == 1


def routes(topology: Topology, clock: Clock) -> Routes:
    """All routes, quickest first through switches and NICs."""
    outgoing: list[list[int]] = [[] for _ in topology.nodes]
    for number, link in enumerate(topology.links):
        outgoing[link.source].append(number)
    routes_ = [
        path
        for number, link in enumerate(topology.links)
        if topology.stores[link.source]
        for path in _spread(topology, clock, outgoing, number)
    ]
    width = max((len(path[0]) for path in routes_), default=1)
    links = np.full((len(routes_), width), -1)
    offset = np.zeros((len(routes_), width))
    for row, (passed, starts, _) in enumerate(routes_):
        links[row, : len(passed)] = passed
        offset[row, : len(passed)] = starts
    hops = (links >= 0).sum(1)
    last = links[np.arange(len(routes_)), hops - 1]
    arrive = offset[np.arange(len(routes_)), hops - 1] + clock.arrive[last]
    fans = np.array([path[2] for path in routes_], bool)
    source, target = topology.sources[links[:, 0]], topology.targets[last]
    return Routes(links, offset, arrive, source, target, fans)


def _spread(
    topology: Topology, clock: Clock, outgoing: list[list[int]], first: int
) -> list[tuple[tuple[int, ...], tuple[float, ...], bool]]:
    """Routes that begin with link `first`: (links, offsets, fans)."""
    queue: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = [
        (0.0, (first,), (0.0,))
    ]
    visited = {topology.links[first].source}
    paths, fans = [], True
    while queue:
        start, passed, starts = heapq.heappop(queue)
        node = topology.links[passed[-1]].target
        if node in visited:
            continue
        visited.add(node)
        if topology.stores[node]:
            paths.append((passed, starts))
            continue
        onward = [
            out for out in outgoing[node] if topology.links[out].target not in visited
        ]
        fans = fans and (bool(topology.copies[node]) or len(onward) <= 1)
        for out in onward:
            begin = start + clock.onward(passed[-1], out)
            heapq.heappush(queue, (begin, (*passed, out), (*starts, begin)))
    return [(*path, fans) for path in paths]


def distances(topology: Topology, clock: Clock) -> Float[np.ndarray, "node node"]:
    """Least time from when a node has a chunk to when another has it, infinite without
    a path; out of a switch only what comes after the transmission counts."""
    return shortest(topology, hop_times(topology, clock))


def shortest(
    topology: Topology, weight: Float[np.ndarray, " link"]
) -> Float[np.ndarray, "node node"]:
    """Least sum of link weights (0 or more) from each node to each, infinite without a
    path."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    count = len(topology.nodes)
    table = np.full((count, count), np.inf)
    np.minimum.at(table, (topology.sources, topology.targets), weight)
    rows, columns = np.nonzero(np.isfinite(table))
    # A weight of exactly zero would not be an edge.
    edges = csr_array(
        (np.maximum(table[rows, columns], 1e-300), (rows, columns)), (count, count)
    )
    return np.asarray(dijkstra(edges))


def hop_times(topology: Topology, clock: Clock) -> Float[np.ndarray, " link"]:
    """Least time from when a link's sender has a chunk to when its receiver has it.

    With cut-through (`drag` above zero) a switch has passed on all but the latency of
    what it has: the last byte leaves no earlier than it came in.
    """
    out = ~topology.stores[topology.sources] & (clock.drag > 0)
    return np.where(out, clock.lead, clock.arrive)


def islands(topology: Topology, rate: float) -> Int[np.ndarray, " node"]:
    """Number of the island of each node: nodes that links of at least `rate` (B/s) join
    both ways."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count, fast = len(topology.nodes), topology.rates >= rate
    ends = topology.sources[fast], topology.targets[fast]
    graph = coo_array((np.ones(fast.sum()), ends), (count, count))
    return connected_components(graph, connection="strong")[1].astype(int)


def incidence(topology: Topology) -> Any:
    """Sparse matrix (node, link): 1 where a link begins, -1 where it ends."""
    from scipy.sparse import csr_array

    links = np.arange(len(topology.links))
    ends = np.append(topology.sources, topology.targets), np.tile(links, 2)
    signs = np.repeat([1.0, -1.0], len(links))
    return csr_array((signs, ends), (len(topology.nodes), len(links)))


# --- `Paths`: hops from GPU to GPU, and the quickest paths that are made of them.


_AS_QUICK: Final = 1e-6
"""Paths whose times differ by less than this share of the least hop are as quick."""


@dataclasses.dataclass(frozen=True)
class Paths:
    """Hops that pass no third GPU, the quickest for each pair of GPUs, and for every
    pair of nodes the quickest path: blocks are stored at each GPU in between.

    `links`: of a hop, -1 beyond its end; `time`: s that a block takes over it; `hop`:
    from node to node, -1 for none; `away`: s on the quickest, infinite without one.
    """

    links: Int[np.ndarray, "hop link"]
    time: Float[np.ndarray, " hop"]
    hop: Int[np.ndarray, "node node"]
    away: Float[np.ndarray, "node node"]
    before: Int[np.ndarray, "node node"]
    """GPU before the end (column) on the way from a GPU (row)."""
    after: Int[np.ndarray, "node node"]
    """GPU after the start (column) on the way to a GPU (row)."""

    neighbours: Bool[np.ndarray, "node node"]
    """Pairs with a hop that leaves a chassis no more often than their quickest path."""

    @functools.cached_property
    def by_hops(self) -> "Paths":
        """The same with neighbours joined by their hop, although a path is quicker."""
        here = np.arange(len(self.hop))[:, None]
        before = np.where(self.neighbours, here, self.before)
        after = np.where(self.neighbours.T, here, self.after)
        return dataclasses.replace(self, before=before, after=after)


def find_paths(topology: Topology, block: float, copies: bool) -> Paths:
    """The quickest paths of a block of `block` B, with nothing else under way: of those
    that leave a chassis as seldom as can be.

    Of paths that are as quick each node takes such as were taken least before, so that
    no link is in most of them. `copies`: a block passes a hop once, however many of its
    takers lie behind it; else each taker has a block of its own.
    """
    from scipy.sparse.csgraph import dijkstra

    direct = routes(topology, second_clock(topology, block))
    length = (direct.links >= 0).sum(1)
    order = np.lexsort((length, direct.arrive, direct.target, direct.source))
    ends = np.stack([direct.source, direct.target], 1)[order]
    order = order[np.append(True, (np.diff(ends, axis=0) != 0).any(1))]
    links, source, target = (
        direct.links[order],
        direct.source[order],
        direct.target[order],
    )
    count = len(topology.nodes)
    hop = np.full((count, count), -1)
    hop[source, target] = np.arange(len(order))
    # A weight of exactly zero would not be an edge.
    time = np.maximum(direct.arrive[order], 1e-300)
    abroad = 2 * count * float(time.max(initial=0.0))
    weight = np.full((count, count), np.inf)
    # Hops that pass or end in another chassis than they begin in.
    chassis = np.array([node.chassis for node in topology.nodes])
    ends = np.where(links >= 0, topology.targets[links], source[:, None])
    leaves = (chassis[ends] != chassis[source][:, None]).any(1)
    weight[source, target] = time + abroad * leaves
    away = np.asarray(dijkstra(np.where(hop >= 0, weight, 0.0)), float)
    share = [
        [(link, 1 / topology.links[link].rate) for link in row if link >= 0]
        for row in links.tolist()
    ]
    before = _steps_before(weight, away, hop, share, copies)
    after = _steps_before(weight.T, away.T, hop.T, share, copies)
    neighbours = (hop >= 0) & (weight < away + abroad)
    some = np.isfinite(away)
    away[some] -= abroad * np.floor(away[some] / abroad)
    return Paths(links, time, hop, away, before, after, neighbours)


def _steps_before(
    weight: Float[np.ndarray, "node node"],
    away: Float[np.ndarray, "node node"],
    hop: Int[np.ndarray, "node node"],
    share: list[list[tuple[int, float]]],
    copies: bool,
) -> Int[np.ndarray, "node node"]:
    """Node before each (column) on the way from each (row), -1 where there is none.

    Of paths that are as quick the one whose busiest link is least busy so far, then the
    first round from the row's node. `share`: links of a hop, and the load of each, s/B.
    """
    count = len(weight)
    near = _AS_QUICK * float(weight.min())
    before = np.full((count, count), -1)
    load: dict[int, float] = collections.defaultdict(float)
    for root in range(count):
        with np.errstate(invalid="ignore"):  # infinite less infinite
            tight = np.abs(away[root][:, None] + weight - away[root]) <= near
        nodes, ups = np.nonzero(tight.T)
        choices: dict[int, list[int]] = {}
        for node, up in zip(nodes.tolist(), ups.tolist(), strict=True):
            choices.setdefault(node, []).append(up)
        path: dict[int, list[tuple[int, float]]] = {root: []}
        nearest = np.argsort(away[root], kind="stable").tolist()
        for node in (node for node in nearest if node in choices):
            best = np.inf, 0, root
            for up in choices[node]:
                along = path[up] + share[hop[up, node]]
                most = max(load[link] + part for link, part in along)
                best = min(best, (most, (up - root) % count, up))
            up = before[root, node] = best[2]
            along = path[up] + share[hop[up, node]]
            path[node] = [] if copies else along
            for link, part in along:
                load[link] += part
    return before
