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

from ._demand import Demand
from ._routes import Paths, find_paths
from ._topology import Topology
from ._trees import (
    Edge,
    binomial,
    both_ways,
    by_entry,
    chain,
    double_binary,
    doubling,
    star,
)

# --- `ring_order`: a ring through all GPUs whose worst and whose total hops are short.
#
# An assignment of successors of least cost gives cycles (Karp's patching, 1979), which
# are joined where that costs least; exchanges of segments then improve the ring. Costs
# are raised to a power, so that the worst hop counts before the sum. Deterministic.


_POWER: Final = 4.0
"""Power of the costs; with 4 a hop that is twice as long counts as 16."""
_MOST_SEGMENTS: Final = 48
"""GPUs up to which exchanges of two segments are tried: their number cubed, each."""
_MOST_TURNS: Final = 256
"""GPUs up to which segments are turned round."""
_ROUNDS: Final = 100
_TIE: Final = 1e-6
"""Share of a weight that decides between equals."""


def ring_order(
    cost: Float[np.ndarray, "gpu gpu"], tries: int = 8
) -> Int[np.ndarray, " gpu"]:
    """Places of the GPUs in order round the ring, from 0 on; `cost`: s from one (row)
    to the next."""
    count = len(cost)
    if count < 3:
        return np.arange(count)
    apart = ~np.eye(count, dtype=bool)
    weight = np.where(apart, cost / cost[apart].min(), 1.0) ** _POWER
    # Of rings that are as short, the one in order of the numbers.
    number = np.arange(count)
    weight += _TIE * ((number[None] - number[:, None] - 1) % count) / count
    random = np.random.default_rng(0)
    best, order = np.inf, number
    for _ in range(tries):
        candidate, least = _ring(weight)
        along = float(weight[candidate, np.roll(candidate, -1)].sum())
        if along < best:
            best, order = along, candidate
        if best <= least * (1 + 10 * _TIE):
            break
        weight = weight * (1 + _TIE * random.random(weight.shape))
    return np.roll(order, -int(np.argmin(order)))


def _ring(
    weight: Float[np.ndarray, "gpu gpu"],
) -> tuple[Int[np.ndarray, " gpu"], float]:
    """A short ring, and a lower bound on the weight of any ring."""
    successor, least = _cycles(weight)
    order = _cycle(_join_cycles(weight, successor))
    for _ in range(_ROUNDS):
        along = weight[order, np.roll(order, -1)].sum()
        better = _exchange_segments(weight, order)
        if along <= least * (1 + 10 * _TIE) or better is None:
            break
        order = better
    return order, least


def _cycles(
    weight: Float[np.ndarray, "gpu gpu"],
) -> tuple[Int[np.ndarray, " gpu"], float]:
    """Assignment of successors with the least total weight, and that weight."""
    from scipy.optimize import linear_sum_assignment

    closed = weight.copy()
    np.fill_diagonal(closed, 1e3 * weight.sum())
    rows, successor = linear_sum_assignment(closed)
    return np.asarray(successor, int), float(closed[rows, successor].sum())


def _join_cycles(
    weight: Float[np.ndarray, "gpu gpu"], successor: Int[np.ndarray, " gpu"]
) -> Int[np.ndarray, " gpu"]:
    """Successors in one ring: two cycles swap a successor, the cheapest swap first."""
    successor = successor.copy()
    cycle = np.full(len(successor), -1)
    for first in range(len(successor)):
        if cycle[first] < 0:
            cycle[_cycle(successor, first)] = first
    here = np.arange(len(successor))
    while (cycle != cycle[0]).any():
        ahead = weight[:, successor]  # from a to the successor of b
        swap = ahead + ahead.T - (ahead[here, here] + ahead[here, here][:, None])
        swap[cycle[:, None] == cycle] = np.inf
        a, b = np.unravel_index(int(swap.argmin()), swap.shape)
        successor[[a, b]] = successor[[b, a]]
        cycle[cycle == cycle[b]] = cycle[a]
    return successor


def _cycle(
    successor: Int[np.ndarray, " gpu"], first: int = 0
) -> Int[np.ndarray, " place"]:
    """Places of the cycle that begins at `first`, in order."""
    order = [first]
    while successor[order[-1]] != first:
        order.append(int(successor[order[-1]]))
    return np.array(order)


def _exchange_segments(
    weight: Float[np.ndarray, "gpu gpu"], order: Int[np.ndarray, " gpu"]
) -> Int[np.ndarray, " gpu"] | None:
    """The ring after the best exchange; None if none makes it shorter."""
    count = len(order)
    along = weight[np.ix_(order, order)]
    ahead = np.roll(along, -1, axis=1)  # from the place of the row to one after
    now = np.diagonal(ahead)
    near = -1e-9 * now.sum()
    best: tuple[float, Int[np.ndarray, " gpu"]] | None = None
    if count <= _MOST_TURNS:
        gain, (i, j) = _best_turn(along, now)
        if gain < near:
            turned = order[i + 1 : j + 1][::-1]
            best = gain, np.concatenate([order[: i + 1], turned, order[j + 1 :]])
    if count <= _MOST_SEGMENTS:
        gain, (i, j, k) = _best_swap(ahead, now)
        if gain < (best[0] if best else near):
            parts = (order[: i + 1], order[j + 1 : k + 1], order[i + 1 : j + 1])
            best = gain, np.concatenate([*parts, order[k + 1 :]])
    return best[1] if best else None


def _best_turn(
    along: Float[np.ndarray, "gpu gpu"], now: Float[np.ndarray, " gpu"]
) -> tuple[float, tuple[int, int]]:
    """Change of weight if what lies after place i up to j is turned round."""
    count = len(now)
    i, j = np.triu_indices(count, 1)
    after = (j + 1) % count
    back = np.diagonal(np.roll(along, -1, axis=0))  # from each place to the one before
    gone, come = (np.concatenate([[0.0], np.cumsum(x)]) for x in (now, back))
    change = along[i, j] + along[i + 1, after] - now[i] - now[j]
    change += (come[j] - come[i + 1]) - (gone[j] - gone[i + 1])
    best = int(change.argmin())
    return float(change[best]), (int(i[best]), int(j[best]))


def _best_swap(
    ahead: Float[np.ndarray, "gpu gpu"], now: Float[np.ndarray, " gpu"]
) -> tuple[float, tuple[int, int, int]]:
    """Change of weight if the segments (i, j] and (j, k] change places."""
    i, j, k = np.ogrid[: len(now), : len(now), : len(now)]
    change = ahead[:, :, None] + ahead.T[:, None, :] + ahead[None]
    change = change - now[:, None, None] - now[:, None] - now
    change = np.where((i < j) & (j < k), change, np.inf)
    best = np.unravel_index(int(change.argmin()), change.shape)
    return float(change[best]), (int(best[0]), int(best[1]), int(best[2]))


# --- algorithms


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
    """A demand on a machine, with the paths that its algorithms use."""

    topology: Topology
    demand: Demand

    @functools.cached_property
    def team(self) -> list[int]:
        """GPUs that hold, add or want a block, chassis by chassis."""
        demand, nodes = self.demand, self.topology.nodes
        active = np.flatnonzero(demand.wanted.any(0) | demand.parts.any(0))
        members = np.union1d(active, demand.source).tolist()
        return sorted(members, key=lambda node: (nodes[node].chassis, node))

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
        """Lane of each block: in turn for the blocks of a source, each source from
        another one on."""
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

    variants = [along("one direction", order)]
    if not _links_round(task, order) & _links_round(task, back):
        variants.append(along("both directions, half of the blocks each", order, back))
        far = "both directions, each block to the far side"
        variants.append(
            Variant(far, lambda root, *_: both_ways(order, root), by_hops=True)
        )
    rings = _rings(task, cost, order)
    if len(rings) > 1:
        variants.append(along(f"{len(rings)} rings, blocks in turn", *rings))
    return variants


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
    used, rings = cost.copy(), [order]
    for _ in range(max(map(len, task.groups)) - 1 if len(task.groups) > 1 else 0):
        enter = np.roll(last, -1)
        over = crossing[last, enter]
        leave, enter = last[over], enter[over]
        used[leave] *= np.where(crossing[leave], _AGAIN, 1.0)
        used[:, enter] *= np.where(crossing[:, enter], _AGAIN, 1.0)
        last = ring_order(used, tries=1)
        if used[last, np.roll(last, -1)].max() > slowest * _SAME:
            break
        rings.append(team[last].tolist())
    return rings


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
    variants = [Variant("binomial", lambda root, *_: binomial(task.groups, root))]
    if kind in ("broadcast", "reduce"):
        name = "double binary"
        variants.append(
            Variant(name, lambda root, lane, _: double_binary(task.team, root, lane), 2)
        )
        if len(task.groups) > 1:
            variants.append(
                Variant(
                    f"{name}, chassis by chassis",
                    lambda root, lane, _: by_entry(task.groups, root, lane),
                    2 * max(map(len, task.groups)),
                )
            )
    return variants


def direct(task: Task) -> list[Variant] | str:
    """One edge from the root to every GPU; quickest paths make it a tree."""

    def straight(root: int, lane: int, inward: bool) -> list[Edge]:
        away = task.paths.away[:, root] if inward else task.paths.away[root]
        near = [node for node in task.team if np.isfinite(away[node])]
        return star(near, root)

    return [Variant("quickest ways", straight)]
