"""The standard algorithms as trees: for every block the path that it takes.

Each function returns the variants of one algorithm for a `Task`, or in words why it
does not fit.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .._demand.demand import Demand
from .._machine.paths import Paths, find_paths
from .._machine.topology import Topology
from .ring_search import ring_order
from .trees import (
    Edge,
    binomial,
    both_ways,
    by_entry,
    chain,
    double_binary,
    doubling,
    star,
)

EXCHANGES: Final = {
    "all_gather": "recursive_doubling",
    "reduce_scatter": "recursive_halving",
    "all_reduce": "recursive_halving_doubling",
}
"""Name of the algorithm of exchanges, by collective."""
_AGAIN: Final = 1.1
"""Factor of the cost of leaving a chassis where another ring does."""
_SAME: Final = 1.001
"""Times up to this factor apart are as quick."""
_RELAYED: Final = 2.0
"""Factor of the cost of a ring's step that passes other GPUs: they need their links."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """Logical edges of the tree of a block with the given root in the given lane, of
    which there are `lanes`; the last argument: for a sum on its path to the root."""

    name: str
    edges: Callable[[int, int, bool], list[Edge]]
    lanes: int = 1
    by_hops: bool = False
    """Whether neighbours use the hop between them, although a path may be quicker."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A demand on a machine."""

    topology: Topology
    demand: Demand

    @functools.cached_property
    def team(self) -> list[int]:
        """GPUs that hold, add or want a block, chassis by chassis."""
        demand, nodes = self.demand, self.topology.nodes
        active = np.flatnonzero(demand.wanted.any(0) | demand.parts.any(0))
        found = np.union1d(active, demand.source).tolist()
        return sorted(found, key=lambda node: (nodes[node].chassis, node))

    @functools.cached_property
    def groups(self) -> list[list[int]]:
        """The team by chassis."""
        chassis: dict[int, list[int]] = {}
        for node in self.team:
            chassis.setdefault(self.topology.nodes[node].chassis, []).append(node)
        return list(chassis.values())

    @functools.cached_property
    def paths(self) -> Paths:
        """Quickest paths of the largest block."""
        largest = float(self.demand.size.max())
        return find_paths(self.topology, largest, not self.demand.single)

    def lane(self, lanes: int) -> Int[np.ndarray, " block"]:
        """Lanes in turn for the blocks of a source, each source from another on."""
        source = self.demand.source
        place = np.zeros(len(self.topology.nodes), int)
        place[self.team] = np.arange(len(self.team))
        order = np.argsort(source, kind="stable")
        first = np.searchsorted(source[order], source[order])
        turn = np.empty(len(source), int)
        turn[order] = np.arange(len(source)) - first
        return (turn + place[source]) % lanes


def ring(task: Task) -> list[Variant] | str:
    """One ring in one direction; in both if they share no link; several rings where
    chassis have several ways out."""
    team, paths, among = task.team, task.paths, np.ix_(task.team, task.team)
    near = paths.neighbours[among]
    # Of a step from each GPU of the team to each, s.
    cost = np.where(near, paths.time[paths.hop[among]], _RELAYED * paths.away[among])
    order = [team[n] for n in ring_order(cost)]
    back = order[::-1]

    def along(name: str, *rings: list[int]) -> Variant:
        def edges(root: int, lane: int, inward: bool) -> list[Edge]:
            return chain(rings[lane][::-1] if inward else rings[lane], root)

        return Variant(name, edges, len(rings), by_hops=True)

    found = [along("one direction", order)]
    if not _links_round(task, order) & _links_round(task, back):
        found.append(along("both directions, half of the blocks each", order, back))
        far = "both directions, each block to the far side"
        found.append(
            Variant(far, lambda root, *_: both_ways(order, root), by_hops=True)
        )
    rings = _rings(task, cost, order)
    if len(rings) > 1:
        found.append(along(f"{len(rings)} rings, blocks in turn", *rings))
    return found


def _rings(
    task: Task, cost: Float[np.ndarray, "gpu gpu"], order: list[int]
) -> list[list[int]]:
    """The ring `order` and others, as many as there are GPUs in a chassis, that are as
    quick and leave and enter chassis elsewhere."""
    team = np.array(task.team)
    chassis = np.array([task.topology.nodes[n].chassis for n in team])
    crossing = chassis[:, None] != chassis
    last = np.array([task.team.index(node) for node in order])
    slowest = cost[last, np.roll(last, -1)].max()
    used, found = cost.copy(), [order]
    for _ in range(max(map(len, task.groups)) - 1 if len(task.groups) > 1 else 0):
        enter = np.roll(last, -1)
        over = crossing[last, enter]
        leave, enter = last[over], enter[over]
        used[leave] *= np.where(crossing[leave], _AGAIN, 1.0)
        used[:, enter] *= np.where(crossing[:, enter], _AGAIN, 1.0)
        last = ring_order(used, tries=1)
        if used[last, np.roll(last, -1)].max() > slowest * _SAME:
            break
        found.append(team[last].tolist())
    return found


def _links_round(task: Task, order: list[int]) -> set[int]:
    """Links that a ring in that order uses."""
    paths, links = task.paths, set[int]()
    for begin, node in zip(order, [*order[1:], order[0]], strict=True):
        while node != begin:
            before = int(paths.by_hops.before[begin, node])
            links.update(paths.links[paths.hop[before, node]].tolist())
            node = before
    return links - {-1}


def exchanges(task: Task) -> list[Variant] | str:
    """Recursive doubling; for sums recursive halving."""
    if task.demand.collective not in EXCHANGES:
        return f"made for {', '.join(EXCHANGES)}"
    if len(task.team) & (len(task.team) - 1):
        return f"made for a power of two of GPUs; {len(task.team)} take part"
    name = "pairs by GPU number"
    return [Variant(name, lambda root, *_: doubling(task.team, root))]


def tree(task: Task) -> list[Variant] | str:
    """Binomial trees; double binary trees for one root of many blocks."""
    kind = task.demand.collective
    if kind == "all_to_all":
        return "made for collectives with a root, or whose blocks go to all"

    def to_taker(root: int, lane: int, inward: bool) -> list[Edge]:
        end = int(np.argmax(task.demand.wanted.any(0)))
        above = {down: (down, up, -k) for up, down, k in binomial(task.groups, end)}
        edges = [above[root]]
        while edges[-1][1] != end:
            edges.append(above[edges[-1][1]])
        return edges

    if kind == "gather":
        return [Variant("binomial", to_taker)]
    found = [Variant("binomial", lambda root, *_: binomial(task.groups, root))]
    if kind in ("broadcast", "reduce"):
        name = "double binary"
        found.append(
            Variant(name, lambda root, lane, _: double_binary(task.team, root, lane), 2)
        )
        if len(task.groups) > 1:
            found.append(
                Variant(
                    f"{name}, chassis by chassis",
                    lambda root, lane, _: by_entry(task.groups, root, lane),
                    2 * max(map(len, task.groups)),
                )
            )
    return found


def direct(task: Task) -> list[Variant] | str:
    """A star round the root; quickest paths make it a tree."""

    def straight(root: int, lane: int, inward: bool) -> list[Edge]:
        away = task.paths.away[:, root] if inward else task.paths.away[root]
        near = [node for node in task.team if np.isfinite(away[node])]
        return star(near, root)

    return [Variant("quickest ways", straight)]
