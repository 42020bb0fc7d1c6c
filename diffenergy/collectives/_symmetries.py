"""Automorphisms of a machine and a demand: renumberings of the nodes that keep kinds,
link rates, latencies and the demand as they are; where they take links and blocks, and
what they make one orbit.

They are found by colour refinement with individualised nodes, as in graph isomorphism.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Int, UInt64
from scipy import sparse
from scipy.sparse import csgraph

from ._demand import Demand
from ._topology import Topology

Permutation = Int[np.ndarray, " node"]
"""Where each node goes."""
Colours = Int[np.ndarray, " node"]
"""Nodes of one colour may be alike."""
_MOST_TRIES: Final = 2000
"""Choices after which a search for one automorphism gives up."""


def automorphisms(topology: Topology, demand: Demand) -> list[Permutation]:
    """Generators of all automorphisms, the identity left out."""
    return Graph(demand, labels_of(topology, demand)).generators()


def orbits(count: int, maps: list[np.ndarray]) -> Int[np.ndarray, " member"]:
    """First member of the orbit of each of `count` members."""
    number = orbit_numbers(count, maps)
    return np.unique(number, return_index=True)[1][number]


def orbit_numbers(count: int, maps: list[np.ndarray]) -> Int[np.ndarray, " member"]:
    """Number of the orbit of each of `count` members, in order of first members;
    `maps`: where generators take them."""
    if not maps:
        return np.arange(count)
    start, end = np.tile(np.arange(count), len(maps)), np.concatenate(maps)
    arcs = sparse.coo_array((np.ones(len(end), np.int8), (start, end)), (count, count))
    return csgraph.connected_components(arcs, directed=False)[1].astype(int)


def link_map(topology: Topology, node_map: Permutation) -> Int[np.ndarray, " link"]:
    """Where each link goes when nodes go to `node_map`."""
    old = (topology.latencies, topology.rates, topology.targets, topology.sources)
    moved = (*old[:2], node_map[topology.targets], node_map[topology.sources])
    to = np.empty(len(topology.links), int)
    to[np.lexsort(moved)] = np.lexsort(old)
    return to


def block_map(demand: Demand, node_map: Permutation) -> Int[np.ndarray, " block"]:
    """Where each block goes when nodes go to `node_map`; alike blocks keep their order.

    Raises:
        ValueError: the demand does not stay as it is.
    """
    back = np.argsort(node_map)
    old = _rows(demand, demand.source, demand.wanted, demand.parts)
    moved = _rows(
        demand, node_map[demand.source], demand.wanted[:, back], demand.parts[:, back]
    )
    order, goal = np.lexsort(moved.T), np.lexsort(old.T)
    if not np.array_equal(moved[order], old[goal]):
        raise ValueError("`node_map` changes the demand; take an automorphism of it.")
    to = np.empty(len(order), int)
    to[order] = goal
    return to


def _rows(
    demand: Demand,
    source: Int[np.ndarray, " block"],
    wanted: Bool[np.ndarray, "block node"],
    parts: Bool[np.ndarray, "block node"],
) -> Int[np.ndarray, "block feature"]:
    """Features by which blocks are alike, as whole numbers."""
    _, size = np.unique(demand.size, return_inverse=True)
    bits = np.packbits(np.concatenate([wanted, parts], axis=1), axis=1)
    heads = np.stack([source, size.reshape(-1)], axis=1)
    return np.concatenate([heads, bits.astype(int)], axis=1)


def labels_of(topology: Topology, demand: Demand) -> Int[np.ndarray, "node node"]:
    """A number for every ordered pair of nodes: equal where links between them, wishes
    and (on the diagonal) kinds are alike."""
    count = len(topology.nodes)
    order = np.lexsort((topology.latencies, topology.rates))
    marks: dict[tuple[int, int], tuple[object, ...]] = {}
    for link in (topology.links[n] for n in order):
        at = link.source, link.target
        marks[at] = (*marks.get(at, ()), link.rate, link.latency)
    for n, node in enumerate(topology.nodes):
        marks[n, n] = (node.kind, node.copy, node.reduces)
    number: dict[tuple[object, ...], int] = {}
    labels = np.zeros((count, count), int)
    for at, mark in marks.items():
        labels[at] = number.setdefault(mark, len(number) + 1)
    volume = np.zeros((2, count, count))
    for part, who in enumerate((demand.wanted, demand.parts)):
        np.add.at(volume[part], demand.source, who * demand.size[:, None])
    # B: less than a thousandth is rounding
    wishes = volume.reshape(2, -1).round(3)
    _, wish = np.unique(wishes, axis=1, return_inverse=True)
    return labels * (int(wish.max(initial=0)) + 1) + wish.reshape(count, count)


def _mix(value: UInt64[np.ndarray, "*axes"]) -> UInt64[np.ndarray, "*axes"]:
    """Hash of 64-bit numbers (splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


class Graph:
    """What a renumbering has to keep: the labels of pairs of nodes, and the demand."""

    def __init__(self, demand: Demand, labels: Int[np.ndarray, "node node"]) -> None:
        self._demand, self._labels = demand, labels
        scaled = labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._out = _mix(scaled)
        self._in = _mix(scaled.T + np.uint64(1))

    def generators(self) -> list[Permutation]:
        """Generators of all automorphisms, level by level: those that keep more nodes
        fixed first."""
        levels: list[tuple[int, Colours]] = []
        kinds = np.unique(np.diag(self._labels), return_inverse=True)[1].reshape(-1)
        colour = self._refined(kinds, kinds)[0]
        while (node := _first_to_split(colour)) is not None:
            levels.append((node, colour))
            fixed = _mark(colour, node)
            colour = self._refined(fixed, fixed)[0]
        makers: list[Permutation] = []
        for node, colour in reversed(levels):
            for other in np.flatnonzero(colour == colour[node]).tolist():
                orbit = orbits(len(colour), [*makers])
                if orbit[other] != orbit[node]:
                    makers += self._moving(colour, node, other)
        return makers

    def _keeps(self, node_map: Permutation) -> bool:
        """Whether a renumbering is an automorphism."""
        moved = self._labels[np.ix_(node_map, node_map)]
        if not np.array_equal(moved, self._labels):
            return False
        try:
            block_map(self._demand, node_map)
        except ValueError:
            return False
        return True

    def _moving(self, colour: Colours, node: int, other: int) -> list[Permutation]:
        """An automorphism that keeps `colour` and takes `node` to `other`, if any."""
        # often two alike nodes can simply be swapped, which needs no search
        swap = np.arange(len(colour))
        swap[[node, other]] = other, node
        if self._keeps(swap):
            return [swap]
        left, right = _mark(colour, node), _mark(colour, other)
        return self._search(left, right, iter(range(_MOST_TRIES)))

    def _search(
        self, one: Colours, two: Colours, tries: Iterator[int]
    ) -> list[Permutation]:
        """An automorphism that takes the first colouring to the second, if any."""
        one, two = self._refined(one, two)
        if not np.array_equal(np.sort(one), np.sort(two)):
            return []
        node = _first_to_split(one)
        if node is None:
            node_map = np.empty(len(one), int)
            node_map[np.argsort(one)] = np.argsort(two)
            return [node_map] if self._keeps(node_map) else []
        left = _mark(one, node)
        options = np.flatnonzero(two == one[node]).tolist()
        for option in sorted(options, key=lambda n: n != node):
            if next(tries, None) is None:
                return []
            if maps := self._search(left, _mark(two, option), tries):
                return maps
        return []

    def _refined(self, one: Colours, two: Colours) -> tuple[Colours, Colours]:
        """The coarsest stable colourings below these, side by side; as far as they are
        the same."""
        count, colours = len(one), len(np.unique(one))
        same = one is two
        while True:
            first = self._hashes(one)
            second = first if same else self._hashes(two)
            both = np.concatenate([first, second])
            hashes, names = np.unique(both, return_inverse=True)
            one, two = np.split(names.reshape(-1), [count])
            if len(hashes) == colours or not np.array_equal(np.sort(one), np.sort(two)):
                return one, two
            colours = len(hashes)

    def _hashes(self, colour: Colours) -> UInt64[np.ndarray, " node"]:
        far = _mix((colour.astype(np.uint64) + np.uint64(7)) * np.uint64(0xD6E8FEB9))
        mixed = _mix(self._out ^ far) + _mix(self._in + far)
        return _mix(mixed.sum(axis=1, dtype=np.uint64) ^ (far << np.uint64(1)))


def _first_to_split(colour: Colours) -> int | None:
    """First node of the rarest colour that several nodes have; None if none has."""
    names, size = np.unique(colour, return_counts=True)
    if len(names) == len(colour):
        return None
    split = names[size > 1][np.argmin(size[size > 1])]
    return int(np.flatnonzero(colour == split)[0])


def _mark(colour: Colours, node: int) -> Colours:
    """The colouring with a colour of its own for a node."""
    marked = colour.copy()
    marked[node] = len(colour) + 1
    return marked
