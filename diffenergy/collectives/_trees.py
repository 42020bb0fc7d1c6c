"""Trees over which standard algorithms spread a block, or add it up.

A tree is given by its logical edges (parent, child, step) in an order in which parents
come first, and *grown* along the paths of a machine: a GPU on the way keeps what it
passes on, so that nothing comes to a GPU twice. A sum moves from the leaves to the
root, a copy from the root to the leaves.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from jaxtyping import Int

from ._demand import Demand
from ._routes import Paths
from ._schedule import Schedule, Sends
from ._topology import Topology
from ._traffic import Leg, Traffic, leg_over

Edge = tuple[int, int, int]
"""Parent, child, step."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """`edges`: hops between neighbours, parents first."""

    root: int
    edges: tuple[Edge, ...]

    @functools.cached_property
    def place(self) -> dict[int, int]:
        """Number of the edge to each node below the root."""
        return {down: n for n, (_, down, _) in enumerate(self.edges)}


def grown(root: int, edges: Iterable[Edge], before: Int[np.ndarray, "a b"]) -> Tree:
    """The tree of logical `edges` as hops; `before`: see `Paths`."""
    parent: dict[int, Edge] = {}
    for up, down, step in edges:
        path = [down]
        while path[-1] != up:
            path.append(int(before[up, path[-1]]))
        for low, high in zip(path[-2::-1], path[:0:-1], strict=True):
            if low != root and low not in parent:
                parent[low] = high, low, step
    return Tree(root, tuple(parent.values()))


def pruned(tree: Tree, takers: Iterable[int]) -> Tree:
    """The tree without branches that lead to none of `takers`."""
    needed: dict[int, int] = {}
    for node in takers:
        while node in tree.place and node not in needed:
            needed[node] = tree.place[node]
            node = tree.edges[needed[node]][0]
    return Tree(tree.root, tuple(tree.edges[n] for n in sorted(needed.values())))


def chain(order: Sequence[int], root: int) -> list[Edge]:
    """Once round the ring `order`.

    >>> chain([0, 1, 2], 1)
    [(1, 2, 0), (2, 0, 1)]
    """
    hops = itertools.pairwise(_turned(order, root))
    return [(here, there, step) for step, (here, there) in enumerate(hops)]


def _turned(order: Sequence[int], root: int) -> list[int]:
    """The ring as it begins at `root`."""
    at = list(order).index(root)
    return [*order[at:], *order[:at]]


def both_ways(order: Sequence[int], root: int) -> list[Edge]:
    """Edges round the ring in both directions, to its far side."""
    there, back = chain(order, root), chain(order[::-1], root)
    return [*there[: (len(order)) // 2], *back[: (len(order) - 1) // 2]]


def doubling(order: Sequence[int], root: int) -> list[Edge]:
    """Step k: all that have it give it to the GPU at distance 2^k (by exclusive or of
    their places in `order`); their number is a power of two."""
    at = list(order).index(root)
    edges: list[Edge] = []
    for step in range((len(order) - 1).bit_length()):
        far = 1 << step
        edges += [(order[at ^ m], order[at ^ m ^ far], step) for m in range(far)]
    return edges


def star(order: Sequence[int], root: int) -> list[Edge]:
    """Edges from the root to all others, the next in `order` first."""
    return [(root, end, step) for step, end in enumerate(_turned(order, root)[1:])]


def binomial(groups: Sequence[Sequence[int]], root: int) -> list[Edge]:
    """Binomial tree over one GPU of each group (chassis), then within each."""
    turned = _home_first(groups, root)
    at = list(turned[0]).index(root)
    turned = [[*g[at % len(g) :], *g[: at % len(g)]] for g in turned]
    edges = _halves([group[0] for group in turned], 0)
    first = 1 + max((step for _, _, step in edges), default=-1)
    for group in turned:
        edges += _halves(group, first)
    return sorted(edges, key=lambda edge: edge[2])


def _home_first(groups: Sequence[Sequence[int]], root: int) -> list[Sequence[int]]:
    """Groups in order, that of `root` first."""
    home = next(g for g, group in enumerate(groups) if root in group)
    return [*groups[home:], *groups[:home]]


def _halves(order: Sequence[int], step: int) -> list[Edge]:
    """Edges of halving: the first sends to the middle, both go on with their halves."""
    if len(order) < 2:
        return []
    middle = (len(order) + 1) // 2
    near, far = order[:middle], order[middle:]
    edges = [(order[0], far[0], step)]
    return edges + _halves(near, step + 1) + _halves(far, step + 1)


def double_binary(order: Sequence[int], root: int, lane: int) -> list[Edge]:
    """The binary tree of lane 0 or 1 below the root: who passes on in one is a leaf in
    the other, so that each can carry half of the blocks (Sanders, Speck, Traff 2009).
    """
    rest = _turned(order, root)[1:]
    if lane:
        rest = [rest[-1], *rest[:-1]] if len(rest) % 2 else rest[::-1]
    edges: list[Edge] = []

    def place(low: int, high: int, up: int, step: int) -> None:
        if low == high:
            return
        middle = low + (1 << ((high - low).bit_length() - 1)) - 1
        edges.append((up, rest[middle], step))
        place(low, middle, rest[middle], step + 1)
        place(middle + 1, high, rest[middle], step + 1)

    place(0, len(rest), root, 0)
    return sorted(edges, key=lambda edge: edge[2])


def by_entry(groups: Sequence[Sequence[int]], root: int, lane: int) -> list[Edge]:
    """From root to root's neighbour number `lane`, on to the GPUs at that place in the
    other groups (chassis), and from there over one of two binary trees."""
    turned = _home_first(groups, root)
    entries = [group[lane % len(group)] for group in turned]
    edges = [] if entries[0] == root else [(root, entries[0], 0)]
    edges += _halves(entries, 1)
    first = 2 + max(step for _, _, step in edges)
    second = lane // max(map(len, groups)) % 2
    for group, entry in zip(turned, entries, strict=True):
        begin = root if root in group else entry
        inside = double_binary(group, begin, second)
        edges += [(up, down, first + step) for up, down, step in inside]
    return sorted(edges, key=lambda edge: edge[2])


# --- `tree_schedule`: blocks sent over given trees.
#
# Of hops that could start at once (`Traffic`), the one with the longest chain of hops
# after it goes first, then the one of the lowest step.

_MOMENT: Final = 1e-6
"""Starts this near each other, as a share of the shortest hop, are at once."""


@dataclasses.dataclass(frozen=True)
class Course:
    """Hops of one block: which, phase, step, the longest chain of hops that waits for
    each, and the places of those that wait for it."""

    hop: list[int]
    phase: list[int]
    step: list[int]
    ahead: list[int]
    then: list[list[int]]


def course(paths: Paths, inward: Tree | None, outward: Tree | None) -> Course:
    """Hops of a sum on its path `inward` to the root, then of copies `outward`."""
    steps = Course([], [], [], [], [])
    brought: dict[int, list[int]] = collections.defaultdict(list)  # to a node: summands
    copied: dict[int, list[int]] = {}  # to a node: the hop of the copy

    def add(source: int, target: int, phase: int, step: int, feeds: list[int]) -> int:
        number = len(steps.hop)
        steps.hop.append(int(paths.hop[source, target]))
        steps.phase.append(phase)
        steps.step.append(step)
        steps.then.append([])
        for feed in feeds:
            steps.then[feed].append(number)
        return number

    first = 1 + max((step for _, _, step in inward.edges), default=0) if inward else 0
    for up, down, step in reversed(inward.edges if inward else ()):
        brought[up].append(add(down, up, 0, first - step, brought[down]))
    for up, down, step in outward.edges if outward else ():
        feeds = copied[up] if up in copied else brought[up]
        phase = 1 if inward else 0
        copied[down] = [add(up, down, phase, first + 1 + step, feeds)]
    steps.ahead.extend(0 for _ in steps.hop)
    for n in reversed(range(len(steps.hop))):  # those that wait come later
        steps.ahead[n] = max((1 + steps.ahead[m] for m in steps.then[n]), default=0)
    return steps


def tree_schedule(
    topology: Topology, demand: Demand, paths: Paths, courses: Sequence[Course]
) -> Schedule:
    """Schedule of every block on its course."""
    hops = [len(one.hop) for one in courses]
    block = np.repeat(np.arange(len(courses)), hops)
    phase = np.array([p for one in courses for p in one.phase], int)
    step = np.array([s for one in courses for s in one.step], int)
    ahead = np.array([a for one in courses for a in one.ahead], int)
    # Longest chains first, then lower steps.
    rank = (ahead.max(initial=0) - ahead) * (step.max(initial=0) + 1) + step
    links = [[n for n in row if n >= 0] for row in paths.links.tolist()]

    @functools.cache
    def leg(hop: int, size: float) -> Leg:
        return leg_over(topology, links[hop], size)

    size = demand.size[block].astype(float)
    hop = [number for one in courses for number in one.hop]
    legs = [leg(*one) for one in zip(hop, size.tolist(), strict=True)]
    begins = np.cumsum([0, *hops[:-1]]).tolist()
    then = [
        [begin + after for after in follow]
        for begin, one in zip(begins, courses, strict=True)
        for follow in one.then
    ]
    traffic = _Tree(topology, legs, rank.tolist(), then)
    traffic.run()
    row, link, start, end = traffic.passed()
    sends = Sends(block[row], link, start, end, size[row], phase[row])
    return Schedule(topology, demand, sends)


class _Tree(Traffic):
    """Hops that wait for others of their block: `then`, those after each."""

    def __init__(
        self,
        topology: Topology,
        legs: list[Leg],
        rank: list[int],
        then: list[list[int]],
    ) -> None:
        shortest = min((leg.lag for leg in legs), default=1.0)
        super().__init__(topology, _MOMENT * shortest)
        self.legs, self.ranks, self.then = legs, rank, then
        after = np.array(list(itertools.chain(*then)), int)
        self.waits = np.bincount(after, minlength=len(legs)).tolist()
        self.there = [0.0] * len(legs)
        for hop, waits in enumerate(self.waits):
            if not waits:
                self.bring(hop, 0.0)

    def leg_of(self, hop: int, now: float) -> Leg:
        return self.legs[hop]

    def rank(self, hop: int) -> int:
        return self.ranks[hop]

    def sent(self, hop: int, leg: Leg, there: float) -> None:
        for after in self.then[hop]:
            self.there[after] = max(self.there[after], there)
            self.waits[after] -= 1
            if not self.waits[after]:
                self.bring(after, self.there[after])
