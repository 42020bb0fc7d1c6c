"""Symmetries: groups of automorphisms of a machine and a demand, and what they move
onto each other.

If a schedule is asked to look the same after each element of a group, all variables of
an orbit are one. Such a schedule is a true schedule; that there is none proves nothing.
Groups are used that move every GPU (only the identity keeps one): others would put
several blocks on one link at once.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Int

from .._machine.topology import Topology
from .automorphisms import Graph, Permutation, block_map, labels_of, link_map, orbits
from .demand import Demand

_TRIALS: Final = 400
"""Random products looked at for each step of a group."""
_ATTEMPTS: Final = 6
"""First elements that are tried."""

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

    def leads(self, first: Int[np.ndarray, "*axes"]) -> Bool[np.ndarray, "*axes"]:
        """Members that stand for their orbit."""
        return first == np.arange(first.size).reshape(first.shape)


def no_symmetry(topology: Topology, demand: Demand) -> Symmetry:
    """The identity alone."""
    return _symmetry(topology, demand, [], 1)


def symmetries(topology: Topology, demand: Demand) -> list[Symmetry]:
    """Groups that move every GPU, largest first, each within the one before; without
    the identity alone, so empty where there is nothing to merge."""
    return [
        _symmetry(topology, demand, makers, len(group))
        for makers, group in reversed(_free_groups(topology, demand))
    ]


def _symmetry(
    topology: Topology, demand: Demand, makers: list[Permutation], size: int
) -> Symmetry:
    blocks, links = len(demand.source), len(topology.links)
    nodes = len(topology.nodes)
    block_maps = [block_map(demand, maker) for maker in makers]
    link_maps = [link_map(topology, maker) for maker in makers]
    pairs = pair_maps(block_maps, link_maps, links)
    places = pair_maps(block_maps, makers, nodes)
    return Symmetry(
        size,
        orbits(blocks * links, pairs).reshape(blocks, links),
        orbits(blocks * nodes, places).reshape(blocks, nodes),
        orbits(links, link_maps),
    )


def pair_maps(
    first: list[np.ndarray], second: list[np.ndarray], count: int
) -> list[Int[np.ndarray, " pair"]]:
    """Where pairs (one, two), numbered one * count + two, go."""
    return [
        (one[:, None] * count + two).reshape(-1)
        for one, two in zip(first, second, strict=True)
    ]


def _free_groups(topology: Topology, demand: Demand) -> list[_Step]:
    """The chain of growing groups that ends largest, of a few ways to begin."""
    chance = np.random.default_rng(0)
    labels = labels_of(topology, demand)
    found = Graph(demand, labels).generators()
    best: list[_Step] = []
    for attempt in range(_ATTEMPTS):
        greedy = attempt == 0
        chain = _chain(demand, labels, topology.gpus, found, chance, greedy)
        best = max(best, chain, key=lambda one: len(one[-1][1]) if one else 1)
        if not best or len(best[-1][1]) == len(topology.gpus):
            break
    return best


def _chain(
    demand: Demand,
    labels: Int[np.ndarray, "node node"],
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
        found = Graph(demand, labels).generators()


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
