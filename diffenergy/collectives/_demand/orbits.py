"""Symmetries of a machine and a demand, and what they move onto each other.

An automorphism renumbers the nodes so that kinds, link rates, latencies and the
demand stay as they are. If a schedule is asked to look the same after each of a group
of them, all variables of an orbit are one. Such a schedule is a true schedule; that
there is none proves nothing. Groups are used that move every GPU (only the identity
keeps one): others would put several blocks on one link at once.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Int, UInt64
from scipy import sparse
from scipy.sparse import csgraph

from .._machine.topology import Topology
from .demand import Demand

Permutation = Int[np.ndarray, " node"]
"""Where each node goes."""
_TRIALS: Final = 400
"""Random products looked at for each step of a group."""
_ATTEMPTS: Final = 6
"""First elements that are tried."""
_MOST_TRIES: Final = 2000
"""Choices after which a search for one automorphism gives up."""

_Step = tuple[list[Permutation], list[Permutation]]
"""Generators and elements of a group."""


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """Orbits of a group of `size` elements; each named by its first member, counted
    through the array."""

    size: int
    pairs: Int[np.ndarray, "block link"]
    places: Int[np.ndarray, "block node"]
    links: Int[np.ndarray, " link"]

    def leads(self, orbits: Int[np.ndarray, "*axes"]) -> Bool[np.ndarray, "*axes"]:
        """Members that stand for their orbit."""
        return orbits == np.arange(orbits.size).reshape(orbits.shape)


def no_symmetry(topology: Topology, demand: Demand) -> Symmetry:
    """The identity alone."""
    return _symmetry(topology, demand, [], 1)


def symmetries(topology: Topology, demand: Demand, seed: int = 0) -> list[Symmetry]:
    """Groups that move every GPU, largest first, each within the one before; without
    the identity alone, so empty where there is nothing to merge."""
    chain = _free_groups(topology, demand, seed)
    return [
        _symmetry(topology, demand, makers, len(group))
        for makers, group in reversed(chain)
    ]


def automorphisms(topology: Topology, demand: Demand) -> list[Permutation]:
    """Generators of all automorphisms, the identity left out."""
    return _generators(_labels(topology, demand), _Exact(topology, demand))


# Orbits


def _symmetry(
    topology: Topology, demand: Demand, makers: list[Permutation], size: int
) -> Symmetry:
    blocks, links = len(demand.source), len(topology.links)
    nodes = len(topology.nodes)
    block_maps = [block_map(demand, maker) for maker in makers]
    link_maps = [link_map(topology, maker) for maker in makers]
    pairs = [b[:, None] * links + t for b, t in zip(block_maps, link_maps, strict=True)]
    places = [b[:, None] * nodes + m for b, m in zip(block_maps, makers, strict=True)]
    return Symmetry(
        size,
        _orbits(blocks * links, pairs).reshape(blocks, links),
        _orbits(blocks * nodes, places).reshape(blocks, nodes),
        _orbits(links, link_maps),
    )


def _orbits(count: int, maps: list[np.ndarray]) -> Int[np.ndarray, " member"]:
    """First member of the orbit of each of `count` members."""
    if not maps:
        return np.arange(count)
    start = np.tile(np.arange(count), len(maps))
    end = np.concatenate([one.reshape(-1) for one in maps])
    arcs = sparse.coo_array((np.ones(len(end), np.int8), (start, end)), (count, count))
    _, label = csgraph.connected_components(arcs, directed=False)
    _, first = np.unique(label, return_index=True)
    return first[label]


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
    """What makes blocks alike, as whole numbers."""
    _, size = np.unique(demand.size, return_inverse=True)
    bits = np.packbits(np.concatenate([wanted, parts], axis=1), axis=1)
    heads = np.stack([source, size.reshape(-1)], axis=1)
    return np.concatenate([heads, bits.astype(int)], axis=1)


# Automorphisms


class _Exact:
    """Whether a renumbering keeps links and demand as they are."""

    def __init__(self, topology: Topology, demand: Demand) -> None:
        self._topology, self._demand = topology, demand

    def __call__(self, node_map: Permutation) -> bool:
        try:
            block_map(self._demand, node_map)
        except ValueError:
            return False
        return True


def _labels(topology: Topology, demand: Demand) -> Int[np.ndarray, "node node"]:
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
    wishes = volume.reshape(2, -1).round(3)
    _, wish = np.unique(wishes, axis=1, return_inverse=True)
    return labels * (int(wish.max(initial=0)) + 1) + wish.reshape(count, count)


def _mix(value: UInt64[np.ndarray, "*axes"]) -> UInt64[np.ndarray, "*axes"]:
    """A scramble of 64 bits (splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


class _Refiner:
    """Colour refinement of two colourings of one labelled graph side by side."""

    def __init__(self, labels: Int[np.ndarray, "node node"]) -> None:
        scaled = labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._out = _mix(scaled)
        self._in = _mix(scaled.T + np.uint64(1))
        self.kinds = np.unique(np.diag(labels), return_inverse=True)[1].reshape(-1)

    def _hashes(self, colour: Int[np.ndarray, " node"]) -> UInt64[np.ndarray, " node"]:
        far = _mix((colour.astype(np.uint64) + np.uint64(7)) * np.uint64(0xD6E8FEB9))
        seen = _mix(self._out ^ far) + _mix(self._in + far)
        return _mix(seen.sum(axis=1, dtype=np.uint64) ^ (far << np.uint64(1)))

    def refine(
        self, one: Int[np.ndarray, " node"], two: Int[np.ndarray, " node"]
    ) -> tuple[Int[np.ndarray, " node"], Int[np.ndarray, " node"]] | None:
        """The coarsest stable colourings below these; None if they differ."""
        count, colours = len(one), len(np.unique(one))
        same = one is two
        while True:
            first = self._hashes(one)
            second = first if same else self._hashes(two)
            found, names = np.unique(
                np.concatenate([first, second]), return_inverse=True
            )
            names = names.reshape(-1)
            one, two = names[:count], names[count:]
            if not same and not np.array_equal(np.sort(one), np.sort(two)):
                return None
            if len(found) == colours:
                return one, two
            colours = len(found)


def _search(
    refiner: _Refiner,
    exact: "_Both",
    one: Int[np.ndarray, " node"],
    two: Int[np.ndarray, " node"],
    tries: Iterator[int],
) -> Permutation | None:
    """An automorphism that takes the first colouring to the second."""
    refined = refiner.refine(one, two)
    if refined is None:
        return None
    one, two = refined
    colour, size = np.unique(one, return_counts=True)
    if len(colour) == len(one):
        node_map = np.empty(len(one), int)
        node_map[np.argsort(one)] = np.argsort(two)
        return node_map if exact(node_map) else None
    split = colour[size > 1][np.argmin(size[size > 1])]
    node = np.flatnonzero(one == split)[0]
    fresh = len(one) + 1
    left = one.copy()
    left[node] = fresh
    options = np.flatnonzero(two == split)
    for option in sorted(options, key=lambda n: n != node):
        if next(tries, None) is None:
            return None
        right = two.copy()
        right[option] = fresh
        found = _search(refiner, exact, left, right, tries)
        if found is not None:
            return found
    return None


class _Both:
    """Whether a renumbering keeps the labels and passes the exact test."""

    def __init__(self, labels: Int[np.ndarray, "node node"], exact: _Exact) -> None:
        self._labels, self._exact = labels, exact

    def __call__(self, node_map: Permutation) -> bool:
        moved = self._labels[np.ix_(node_map, node_map)]
        return bool(np.array_equal(moved, self._labels)) and self._exact(node_map)


def _generators(
    labels: Int[np.ndarray, "node node"], exact: _Exact
) -> list[Permutation]:
    """Generators level by level: those that keep more nodes fixed first."""
    refiner, both = _Refiner(labels), _Both(labels, exact)
    levels: list[tuple[int, Int[np.ndarray, " node"]]] = []
    stable = refiner.refine(refiner.kinds, refiner.kinds)
    assert stable is not None
    colour = stable[0]
    while len(np.unique(colour)) < len(colour):
        names, size = np.unique(colour, return_counts=True)
        split = names[size > 1][np.argmin(size[size > 1])]
        node = int(np.flatnonzero(colour == split)[0])
        levels.append((node, colour))
        fixed = colour.copy()
        fixed[node] = len(colour) + 1
        stable = refiner.refine(fixed, fixed)
        assert stable is not None
        colour = stable[0]
    makers: list[Permutation] = []
    for node, colour in reversed(levels):
        for other in np.flatnonzero(colour == colour[node]).tolist():
            orbit = _orbits(len(colour), [*makers])
            if orbit[other] != orbit[node]:
                found = _moving(refiner, both, colour, node, other)
                makers += [] if found is None else [found]
    return makers


def _moving(
    refiner: _Refiner,
    both: _Both,
    colour: Int[np.ndarray, " node"],
    node: int,
    other: int,
) -> Permutation | None:
    """An automorphism that keeps `colour` and takes `node` to `other`."""
    swap = np.arange(len(colour))
    swap[[node, other]] = other, node
    if both(swap):
        return swap
    left, right = colour.copy(), colour.copy()
    left[node] = right[other] = len(colour) + 1
    return _search(refiner, both, left, right, iter(range(_MOST_TRIES)))


# Groups that move every GPU


def _free_groups(topology: Topology, demand: Demand, seed: int) -> list[_Step]:
    """The chain of growing groups that ends largest, of a few ways to begin."""
    chance = np.random.default_rng(seed)
    exact, labels = _Exact(topology, demand), _labels(topology, demand)
    found = _generators(labels, exact)
    best: list[_Step] = []
    for attempt in range(_ATTEMPTS):
        chain = _chain(labels, exact, topology.gpus, found, chance, attempt == 0)
        best = max(best, chain, key=lambda one: len(one[-1][1]) if one else 1)
        if not best or len(best[-1][1]) == len(topology.gpus):
            break
    return best


def _chain(
    labels: Int[np.ndarray, "node node"],
    exact: _Exact,
    gpus: Int[np.ndarray, " gpu"],
    found: list[Permutation],
    chance: np.random.Generator,
    greedy: bool,
) -> list[_Step]:
    """Groups that grow by an element that commutes with those before: the one that
    makes the group largest, or (the first one, if not `greedy`) any."""
    makers: list[Permutation] = []
    group = [np.arange(len(labels))]
    chain: list[_Step] = []
    while True:
        larger = [_joined(group, one, gpus) for one in _products(found, chance)]
        larger = [one for one in larger if len(one) > len(group)]
        if not larger:
            return chain
        any_one = larger[int(chance.integers(len(larger)))]
        best = max(larger, key=len) if greedy or makers else any_one
        makers, group = [*makers, best[len(group)]], best
        chain.append((makers, group))
        labels = 2 * labels
        labels[np.arange(len(labels)), makers[-1]] += 1
        found = _generators(labels, exact)


def _products(
    makers: list[Permutation], chance: np.random.Generator
) -> Iterator[Permutation]:
    """The generators and random products of them."""
    yield from makers
    if not makers:
        return
    yield functools.reduce(lambda one, two: one[two], makers)
    held = [makers[n % len(makers)] for n in range(max(len(makers), 4))]
    for _ in range(_TRIALS):
        one, two = chance.choice(len(held), 2, replace=False)
        held[one] = held[one][held[two]]
        yield held[one]


def _joined(
    group: list[Permutation], extra: Permutation, gpus: Int[np.ndarray, " gpu"]
) -> list[Permutation]:
    """Elements of the commuting group with one element more, `extra` first of the new
    ones; the group as it was if an element then keeps a GPU."""
    known = {element.tobytes() for element in group}
    joined, power = list(group), extra
    while power.tobytes() not in known:
        coset = [power[element] for element in group]
        if any((element[gpus] == gpus).any() for element in coset):
            return group
        joined += coset
        power = extra[power]
    return joined
