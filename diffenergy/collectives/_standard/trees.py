"""Trees over which standard algorithms spread a block, or add it up.

A tree is given by its logical edges (parent, child, step) in an order in which parents
come first, and *grown* along the paths of a machine: a GPU on the way keeps what it
passes on, so that nothing comes to a GPU twice. A sum moves from the leaves to the
root, a copy from the root to the leaves.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

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
    """The round from `root` on."""
    at = list(order).index(root)
    return [*order[at:], *order[:at]]


def both_ways(order: Sequence[int], root: int) -> list[Edge]:
    """Round the ring in both directions, to its far side."""
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
    """Straight to everybody, the next in `order` first."""
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
    """The round of groups from that of `root` on."""
    home = next(g for g, group in enumerate(groups) if root in group)
    return [*groups[home:], *groups[:home]]


def _halves(order: Sequence[int], step: int) -> list[Edge]:
    """The first gives it to the middle, and both go on with their halves."""
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
