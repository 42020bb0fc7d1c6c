"""Bounds by prices of links, for blocks with one taker.

For any prices y >= 0, a block of b bytes from s to t costs at least b times the
shortest way under y, and all bytes on link l cost y_l times them, at most
y_l r_l (T - idle_l), where idle_l is the time in which nothing of use can be on it:

    T >= (sum over blocks of b dist_y(s, t) + sum over links of y_l r_l idle_l)
         / sum over links of y_l r_l.

The best prices solve a linear program (`flow_bound`); fixed ones cost nothing: equal
prices (bytes times links passed), prices 1 / rate (time on links), and those of the
slow links alone.
"""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Int

from .._machine.routes import Clock, distances, second_clock
from .._machine.topology import Topology


@dataclasses.dataclass(frozen=True)
class Transfers:
    """Bytes from each source to each taker, and the smallest block of them, B."""

    source: Int[np.ndarray, " pair"]
    taker: Int[np.ndarray, " pair"]
    bytes: Float[np.ndarray, " pair"]
    block: float


def transfers(
    source: Int[np.ndarray, " block"],
    wanted: np.ndarray,
    size: Float[np.ndarray, " block"],
) -> Transfers:
    """What the blocks with exactly one taker move, by pairs."""
    nodes = wanted.shape[1]
    single = np.flatnonzero(wanted.sum(1) == 1)
    pair = source[single] * nodes + wanted[single].argmax(1)
    total = np.zeros(nodes * nodes)
    np.add.at(total, pair, size[single])
    some = np.flatnonzero(total)
    block = float(size[single].min()) if len(single) else 0.0
    return Transfers(some // nodes, some % nodes, total[some], block)


@functools.lru_cache(maxsize=16)
def fixed_prices(
    topology: Topology,
) -> tuple[
    tuple[Float[np.ndarray, " link"], ...], tuple[Float[np.ndarray, "node node"], ...]
]:
    """Prices that need no search, and what the cheapest ways cost under each."""
    rates = topology.rates
    prices = [np.ones(len(rates)), 1 / rates]
    for rate in np.unique(rates)[:-1]:
        prices.append(np.where(rates <= rate, 1.0, 0.0))
    return tuple(prices), tuple(costs(topology, price) for price in prices)


def costs(
    topology: Topology, price: Float[np.ndarray, " link"]
) -> Float[np.ndarray, "node node"]:
    """Cost of the cheapest way from each node to each."""
    none = np.zeros(len(price))
    clock = Clock(none, none.astype(int), price, price, none)
    return distances(topology, clock)


def idle(
    moved: Transfers, topology: Topology, whole: bool
) -> tuple[Float[np.ndarray, " link"], float]:
    """s in which each link can carry nothing of use (infinite: never of use): until
    something can be at its start, its latency, and from its end to a taker; and s that
    the farthest transfer takes. `whole`: blocks are not cut up, so that GPUs pass them
    on once they have them."""
    clock = second_clock(topology, moved.block if whole else 0.0)
    way = distances(topology, clock)
    farthest = float(way[moved.source, moved.taker].max(initial=0.0))
    # A switch passes on what it does not have wholly yet.
    soonest = way
    if whole:
        soonest = np.where(
            topology.stores, way, distances(topology, second_clock(topology, 0.0))
        )
    come = soonest[np.unique(moved.source)].min(0)[topology.sources]
    go = way[:, np.unique(moved.taker)].min(1)[topology.targets]
    return come + topology.latencies + go, farthest


def price_time(
    moved: Transfers,
    topology: Topology,
    price: Float[np.ndarray, " link"],
    cost: Float[np.ndarray, "node node"],
    spare: Float[np.ndarray, " link"],
) -> float:
    """Least s by `price`; `spare`: s in which each link can carry nothing of use, where
    it is of use, no longer than the finish."""
    used = np.isfinite(spare)
    weight = np.where(used, price * topology.rates, 0.0)
    if not weight.sum():
        return 0.0
    toll = float((moved.bytes * cost[moved.source, moved.taker]).sum())
    return (toll + float((weight * np.where(used, spare, 0.0)).sum())) / float(
        weight.sum()
    )


def price_bound(moved: Transfers, topology: Topology, whole: bool) -> float:
    """Best bound of the fixed prices, s."""
    if not len(moved.bytes):
        return 0.0
    spare, least = idle(moved, topology, whole)
    if np.isinf(least):
        return np.inf
    spare = np.where(np.isinf(spare), np.inf, np.minimum(spare, least))
    found = [
        price_time(moved, topology, price, cost, spare)
        for price, cost in zip(*fixed_prices(topology), strict=True)
    ]
    return max(least, *found)
