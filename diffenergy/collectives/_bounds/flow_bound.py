"""`flow_bound`: the least time of a flow, for blocks with one taker, and its prices.

With W[s, t] the bytes from s to t, f[s, l] what of s passes link l, and idle_l the time
in which nothing of use can be on l (`prices.idle`), no schedule ends before the least T
of

- sum over links l out of n of f[s, l] - sum over links l into n of f[s, l]
  = sum over t of W[s, t] if n = s, else -W[s, n];
- sum over s of f[s, l] <= r_l (T - idle_l), f >= 0.

What is solved (GLOP) is its dual, for the prices y of the links,

    T = max of sum over s, t of W[s, t] p[s, t] + sum over l of y_l r_l idle_l
    with p[s, head of l] - p[s, tail of l] <= y_l, p[s, s] = 0, sum of y_l r_l = 1,

y equal on links that symmetries of machine and demand move onto each other, and one
source standing for all of its orbit. The bound is then worked out from y alone by
cheapest ways, so that it holds whatever the solver's tolerance.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import csgraph

from .._demand.demand import Demand
from .._demand.orbits import automorphisms, link_map
from .._exact.solver import LinearModel, Watch, Worker, worker
from .._machine.topology import Topology
from .bounds import spreads
from .prices import Transfers, costs, idle, price_bound, price_time, transfers

MOST_ROWS: Final = 200_000
"""(source, link) pairs, symmetric ones once, up to which the program is solved."""


@dataclasses.dataclass(frozen=True)
class FlowBound:
    """Bound on the finish of a demand by what flows alone can do.

    `rate_prices`: dT/dr of each link, s per B/s, never above 0 (a rate `r` that grows
    by 1 % moves T by 0.01 r dT/dr): where optimal prices are not unique, of one choice
    of them, alike for alike links. `latency_prices`: dT/d(idle), s per s. `best`:
    whether the prices are optimal; if not (too large, out of time) they are fixed ones
    and the bound holds all the same. 0 s and no prices where nothing has one taker.
    """

    seconds: float
    rate_prices: Float[np.ndarray, " link"]
    latency_prices: Float[np.ndarray, " link"]
    best: bool


def flow_bound(
    demand: Demand,
    topology: Topology,
    *,
    whole: bool = True,
    most_rows: int = MOST_ROWS,
    time_limit: float = 60.0,
    child: Worker | None = None,
    watch: Watch | None = None,
) -> FlowBound:
    """Least s of any schedule, by what has one taker; of blocks that may be cut up if
    not `whole`.

    Raises:
        ValueError: a block cannot reach its taker.
    """
    none = np.zeros(len(topology.links))
    bound = FlowBound(0.0, none, none, True)
    for spread in spreads(demand, topology):
        moved = transfers(spread.source, spread.wanted, spread.size)
        if not len(moved.bytes):
            continue
        found = _bound(
            moved, spread.topology, whole, most_rows, time_limit, child, watch
        )
        bound = max(bound, found, key=lambda one: one.seconds)
    return bound


def _bound(
    moved: Transfers,
    topology: Topology,
    whole: bool,
    most_rows: int,
    time_limit: float,
    child: Worker | None,
    watch: Watch | None,
) -> FlowBound:
    spare, farthest = idle(moved, topology, whole)
    if np.isinf(farthest):
        raise ValueError(
            f"`demand` has a block that no way of `{topology.name}` leads to its "
            "taker; add links or change the demand."
        )
    none = np.zeros(len(spare))
    spare = np.where(np.isinf(spare), np.inf, np.minimum(spare, farthest))
    fallback = FlowBound(price_bound(moved, topology, whole), none, none, False)
    link_class, stands_for = _classes(moved, topology)
    if np.count_nonzero(stands_for) * len(spare) > most_rows:
        return fallback
    model = _program(moved, topology, spare, link_class, stands_for)
    if child is None:
        with worker() as own:
            answer = own.solve(model, "glop", time_limit=time_limit, watch=watch)
    else:
        answer = child.solve(model, "glop", time_limit=time_limit, watch=watch)
    if answer.values is None:
        return fallback
    price = np.maximum(answer.values[: link_class.max() + 1], 0.0)[link_class]
    price = np.where(np.isfinite(spare), price / topology.rates.max(), 0.0)
    weight = price * topology.rates
    seconds = price_time(moved, topology, price, costs(topology, price), spare)
    if seconds < fallback.seconds * (
        1 - 1e-9
    ):  # the farthest block says more than all flows
        return dataclasses.replace(fallback, best=answer.status == "optimal")
    share = weight / weight.sum()
    span = seconds - np.where(np.isfinite(spare), spare, seconds)
    return FlowBound(
        seconds, -share * span / topology.rates, share, answer.status == "optimal"
    )


def _classes(
    moved: Transfers, topology: Topology
) -> tuple[Int[np.ndarray, " link"], Int[np.ndarray, " node"]]:
    """Number of the orbit of each link, and how many sources each node stands for."""
    nodes, pairs = len(topology.nodes), len(moved.bytes)
    wanted = np.zeros((pairs, nodes), bool)
    wanted[np.arange(pairs), moved.taker] = True
    number, parts = np.zeros(pairs, int), np.zeros((pairs, nodes), bool)
    flat = Demand("custom", moved.source, number, moved.bytes, wanted, parts)
    makers = automorphisms(topology, flat)
    link_class = _orbits(len(topology.links), [link_map(topology, m) for m in makers])
    orbit = _orbits(nodes, makers)
    sources = np.unique(moved.source)
    _, first, count = np.unique(orbit[sources], return_index=True, return_counts=True)
    stands_for = np.zeros(nodes, int)
    stands_for[sources[first]] = count
    return link_class, stands_for


def _orbits(count: int, maps: list[np.ndarray]) -> Int[np.ndarray, " member"]:
    """Number of the orbit of each of `count` members."""
    start = np.tile(np.arange(count), len(maps))
    end = np.concatenate([np.zeros(0, int), *maps])
    arcs = sparse.coo_array((np.ones(len(end), np.int8), (start, end)), (count, count))
    return np.asarray(csgraph.connected_components(arcs, directed=False)[1], int)


def _program(
    moved: Transfers,
    topology: Topology,
    spare: Float[np.ndarray, " link"],
    link_class: Int[np.ndarray, " link"],
    stands_for: Int[np.ndarray, " node"],
) -> LinearModel:
    """The dual above: columns y of each class of links, then p of each source and node.
    Rates in the fastest, bytes in all that move."""
    nodes, links = len(topology.nodes), np.flatnonzero(np.isfinite(spare))
    speed = topology.rates / topology.rates.max()
    unit = float(moved.bytes.sum())
    sources = np.flatnonzero(stands_for)
    place = np.full(nodes, -1)
    place[sources] = np.arange(len(sources))
    prices = int(link_class.max()) + 1
    head = topology.targets[links]
    tail = topology.sources[links]
    row = np.arange(len(sources) * len(links))
    base = prices + np.repeat(np.arange(len(sources)) * nodes, len(links))
    every = np.tile(np.arange(len(links)), len(sources))
    weight = np.bincount(link_class[links], speed[links], prices)
    matrix = sparse.coo_array(
        (
            np.concatenate([np.repeat([1.0, -1.0, -1.0], len(row)), weight]),
            (
                np.concatenate([row, row, row, np.full(prices, len(row))]),
                np.concatenate(
                    [
                        base + head[every],
                        base + tail[every],
                        link_class[links[every]],
                        np.arange(prices),
                    ]
                ),
            ),
        ),
        (len(row) + 1, prices + len(sources) * nodes),
    )
    gain = np.zeros(prices + len(sources) * nodes)
    wait = speed[links] * spare[links] * topology.rates.max() / unit
    gain[:prices] = np.bincount(link_class[links], wait, prices)
    mine = stands_for[moved.source] > 0
    into = prices + place[moved.source[mine]] * nodes + moved.taker[mine]
    np.add.at(gain, into, moved.bytes[mine] / unit * stands_for[moved.source[mine]])
    high = np.full(len(gain), np.inf)
    high[prices + np.arange(len(sources)) * nodes + sources] = 0.0
    return LinearModel(
        sparse.csr_array(matrix),
        np.append(np.full(len(row), -np.inf), 1.0),
        np.append(np.zeros(len(row)), 1.0),
        np.zeros(len(gain)),
        high,
        -gain,
        False,
    )
