"""`Paths`: hops from GPU to GPU, and the quickest paths that are made of them."""

import collections
import dataclasses
import functools
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .routes import routes, second_clock
from .topology import Topology

_SAME: Final = 1e-6
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

    found = routes(topology, second_clock(topology, block))
    length = (found.links >= 0).sum(1)
    order = np.lexsort((length, found.arrive, found.target, found.source))
    ends = np.stack([found.source, found.target], 1)[order]
    order = order[np.append(True, (np.diff(ends, axis=0) != 0).any(1))]
    links, source, target = found.links[order], found.source[order], found.target[order]
    count = len(topology.nodes)
    hop = np.full((count, count), -1)
    hop[source, target] = np.arange(len(order))
    # A weight of exactly zero would not be an edge.
    time = np.maximum(found.arrive[order], 1e-300)
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
    before = _spread(weight, away, hop, share, copies)
    after = _spread(weight.T, away.T, hop.T, share, copies)
    neighbours = (hop >= 0) & (weight < away + abroad)
    some = np.isfinite(away)
    away[some] -= abroad * np.floor(away[some] / abroad)
    return Paths(links, time, hop, away, before, after, neighbours)


def _spread(
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
    near = _SAME * float(weight.min())
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
