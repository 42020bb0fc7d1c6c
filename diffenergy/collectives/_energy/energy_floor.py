"""Least energy that any schedule spends on each block, however long it takes.

A block that one GPU wants needs at least its cheapest way. A block that several want
needs at least the cheapest tree of links that leads to all of them; its price is
bounded from below by dual ascent (Wong 1984): a set of nodes that holds a taker and not
the source must be entered, so it may charge every link into it, as long as no link is
charged more than its price. The charges add up to the bound.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .._demand.demand import Demand
from .._machine.routes import shortest
from .._machine.topology import Topology
from .._schedule.turning import spreads

_WORK: Final = 1.4e6
"""(blocks that differ) x arcs^2 above which the plain bound replaces dual ascent."""
_PAID: Final = 1e-9
"""Arcs whose price is charged up to this share of the dearest are paid."""


@dataclasses.dataclass(frozen=True)
class _Graph:
    """Arcs between nodes that a block can leave on several arcs; `price` in J/B."""

    nodes: int
    begin: Int[np.ndarray, " arc"]
    end: Int[np.ndarray, " arc"]
    price: Float[np.ndarray, " arc"]


def energy_floor(
    topology: Topology, demand: Demand, prices: Float[np.ndarray, " link"]
) -> float:
    """J below which no schedule of `demand` stays, at `prices` in J/B of each link. An
    all-reduce comes together at its sources and spreads from there."""
    return sum(
        float(_block_floors(machine, spread, prices).sum())
        for machine, spread in spreads(demand, topology)
    )


def _block_floors(
    topology: Topology, spread: Demand, prices: Float[np.ndarray, " link"]
) -> Float[np.ndarray, " block"]:
    """J of the cheapest tree, or a bound below it, of each block."""
    source, takers = spread.source, spread.wanted & topology.stores
    least = np.where(takers, shortest(topology, prices)[source], 0.0)
    price = least.sum(axis=1)
    several = np.flatnonzero(takers.sum(axis=1) > 1)
    if len(several):
        keys = np.column_stack([source[several], takers[several]])
        alike, which = np.unique(keys, axis=0, return_inverse=True)
        graph = _copying(topology, prices)
        ascend = len(alike) * len(graph.begin) ** 2 <= _WORK
        tree = _dual_ascent if ascend else _entered
        trees = [tree(graph, int(row[0]), row[1:].astype(bool)) for row in alike]
        # The farthest taker is a bound of its own.
        price[several] = np.maximum(
            np.array(trees)[which.reshape(-1)], least[several].max(axis=1)
        )
    return price * spread.size


def _copying(topology: Topology, prices: Float[np.ndarray, " link"]) -> _Graph:
    """The machine without its relays that cannot copy: each way through them, which a
    block pays once a taker, is an arc."""
    count = len(topology.nodes)
    table = np.full((count, count), np.inf)
    np.minimum.at(table, (topology.sources, topology.targets), prices)
    for relay in np.flatnonzero(~topology.copies):
        through = table[:, relay, None] + table[None, relay, :]
        np.minimum(table, through, out=table)
        table[relay, :] = table[:, relay] = np.inf
    np.fill_diagonal(table, np.inf)
    begin, end = np.nonzero(np.isfinite(table))
    return _Graph(count, begin, end, table[begin, end])


def _entered(graph: _Graph, source: int, takers: Bool[np.ndarray, " node"]) -> float:
    """Every taker is entered once; where no arc leads from the source to a taker, one
    out of the source comes on top."""
    into = np.full(graph.nodes, np.inf)
    np.minimum.at(into, graph.end, graph.price)
    out = graph.begin == source
    direct = (out & takers[graph.end]).any()
    leave = 0.0 if direct else float(graph.price[out].min(initial=np.inf))
    return float(into[takers].sum()) + leave


def _dual_ascent(
    graph: _Graph, source: int, takers: Bool[np.ndarray, " node"]
) -> float:
    """Charges of sets, smallest first, until paid arcs lead from the source to all
    takers."""
    left, charged = graph.price.copy(), 0.0
    enough = _PAID * float(left.max(initial=0.0))
    behind = {
        int(node): _behind(graph, left <= enough, int(node))
        for node in np.flatnonzero(takers)
    }
    while behind:
        node = min(behind, key=lambda taker: int(behind[taker].sum()))
        near = behind[node]
        if near[source]:
            del behind[node]
            continue
        into = near[graph.end] & ~near[graph.begin]
        if not into.any():
            return np.inf
        charge = float(left[into].min())
        left[into] -= charge
        charged += charge
        paid = left <= enough
        fresh = into & paid
        for other, set_ in behind.items():
            if set_[graph.end[fresh]].any():
                behind[other] = _behind(graph, paid, other)
    return charged


def _behind(
    graph: _Graph, paid: Bool[np.ndarray, " arc"], node: int
) -> Bool[np.ndarray, " node"]:
    """Nodes from which paid arcs lead to `node`."""
    begin, end = graph.begin[paid], graph.end[paid]
    near = np.zeros(graph.nodes, bool)
    near[node] = True
    while True:
        wider = near.copy()
        wider[begin[near[end]]] = True
        if (wider == near).all():
            return near
        near = wider
