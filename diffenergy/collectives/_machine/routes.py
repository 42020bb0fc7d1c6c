"""`Clock` and `Routes`: how long links take, and the paths from GPU to GPU.

`EpochModel`: time cut into epochs, as published for TE-CCL (SIGCOMM 2024). With tau the
epoch, b the chunk, and a link of rate r and latency alpha:

- capacity r tau / b chunks an epoch; over any 1 + beta epochs in a row, with
  beta = max(0, ceil(b / (r tau)) - 1), at most floor((1 + beta) r tau / b);
- delay a = ceil(alpha / tau) epochs where alpha > tau / 10, else 0;
- what is sent in epoch k can be sent on from epoch k + 1 + beta + a; out of a switch
  whose exit is free from epoch k + a.
"""

import dataclasses
import heapq
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .topology import Topology

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
        """From the start on a link into a switch to the start on the link out of it."""
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
        """Routes of a single link."""
        return (self.links >= 0).sum(1) == 1


def routes(topology: Topology, clock: Clock) -> Routes:
    """All routes, quickest first through switches and NICs."""
    outgoing: list[list[int]] = [[] for _ in topology.nodes]
    for number, link in enumerate(topology.links):
        outgoing[link.source].append(number)
    found = [
        path
        for number, link in enumerate(topology.links)
        if topology.stores[link.source]
        for path in _spread(topology, clock, outgoing, number)
    ]
    width = max((len(path[0]) for path in found), default=1)
    links = np.full((len(found), width), -1)
    offset = np.zeros((len(found), width))
    for row, (passed, starts, _) in enumerate(found):
        links[row, : len(passed)] = passed
        offset[row, : len(passed)] = starts
    hops = (links >= 0).sum(1)
    last = links[np.arange(len(found)), hops - 1]
    arrive = offset[np.arange(len(found)), hops - 1] + clock.arrive[last]
    fans = np.array([path[2] for path in found], bool)
    source, target = topology.sources[links[:, 0]], topology.targets[last]
    return Routes(links, offset, arrive, source, target, fans)


def _spread(
    topology: Topology, clock: Clock, outgoing: list[list[int]], first: int
) -> list[tuple[tuple[int, ...], tuple[float, ...], bool]]:
    """Routes that begin with link `first`: (links, offsets, fans)."""
    queue: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = [
        (0.0, (first,), (0.0,))
    ]
    seen = {topology.links[first].source}
    paths, fans = [], True
    while queue:
        start, passed, starts = heapq.heappop(queue)
        node = topology.links[passed[-1]].target
        if node in seen:
            continue
        seen.add(node)
        if topology.stores[node]:
            paths.append((passed, starts))
            continue
        onward = [
            out for out in outgoing[node] if topology.links[out].target not in seen
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
