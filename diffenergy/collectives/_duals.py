"""Bounds by prices of links, for blocks with one taker.

For any prices y >= 0, a block of b bytes from s to t costs at least b times the
shortest way under y, and all bytes on link l cost y_l times them, at most
y_l r_l (T - idle_l), where idle_l is the time in which nothing of use can be on it:

    T >= (sum over blocks of b dist_y(s, t) + sum over links of y_l r_l idle_l)
         / sum over links of y_l r_l.

Fixed prices cost nothing: equal prices (bytes times links passed), prices 1 / rate
(time on links), and those of the slow links alone. The best ones are those of the least
time of a flow: with W[s, t] the bytes from s to t and f[s, l] what of s passes link l,
no schedule ends before the least T of

- sum over links l out of n of f[s, l] - sum over links l into n of f[s, l]
  = sum over t of W[s, t] if n = s, else -W[s, n];
- sum over s of f[s, l] <= r_l (T - idle_l), f >= 0.

What is solved is its dual,

    T = max of sum over s, t of W[s, t] p[s, t] + sum over l of y_l r_l idle_l
    with p[s, head of l] - p[s, tail of l] <= y_l, p[s, s] = 0, sum of y_l r_l = 1,

y equal on links that symmetries of machine and demand move onto each other, and one
source standing for all of its orbit. The bound is then worked out from y alone by
cheapest ways, so that it holds whatever the solver's tolerance.
"""

import dataclasses
import functools
from typing import Final

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ..search import LinearModel, Solving, solve
from ._demand import Demand
from ._routes import distances, incidence, second_clock, shortest
from ._symmetries import (
    automorphisms,
    link_map,
    orbit_numbers,
)
from ._time_reversal import spreads
from ._topology import Topology

MOST_ROWS: Final = 200_000
"""(source, link) pairs, symmetric ones once, up to which the program is solved."""
_ROUNDING: Final = 1e-9
"""Relative difference of bounds that counts as none."""
_USUAL: Final = Solving(work=60.0)


@dataclasses.dataclass(frozen=True)
class Transfers:
    """Bytes from each source to each taker, and the smallest block of them, B."""

    source: Int[np.ndarray, " pair"]
    taker: Int[np.ndarray, " pair"]
    bytes: Float[np.ndarray, " pair"]
    block: float


def transfers(spread: Demand) -> Transfers:
    """What the blocks with exactly one taker move, by pairs."""
    wanted, size = spread.wanted, spread.size
    nodes = wanted.shape[1]
    single = np.flatnonzero(wanted.sum(1) == 1)
    pair = spread.source[single] * nodes + wanted[single].argmax(1)
    total = np.zeros(nodes * nodes)
    np.add.at(total, pair, size[single])
    some = np.flatnonzero(total)
    block = float(size[single].min()) if len(single) else 0.0
    return Transfers(some // nodes, some % nodes, total[some], block)


@functools.lru_cache(maxsize=16)
def _fixed_prices(
    topology: Topology,
) -> tuple[
    tuple[Float[np.ndarray, " link"], ...], tuple[Float[np.ndarray, "node node"], ...]
]:
    """Prices that need no search, and what the cheapest ways cost under each."""
    rates = topology.rates
    prices = [np.ones(len(rates)), 1 / rates]
    for rate in np.unique(rates)[:-1]:
        prices.append(np.where(rates <= rate, 1.0, 0.0))
    return tuple(prices), tuple(shortest(topology, price) for price in prices)


def idle(
    moved: Transfers, topology: Topology, whole: bool
) -> tuple[Float[np.ndarray, " link"], float]:
    """s in which each link can carry nothing of use (infinite: never of use): until
    something can be at its start, its latency, and from its end to a taker, at most
    what the farthest transfer takes; and s of this one. `whole`: blocks are not cut up,
    so that GPUs pass them on once they have them."""
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
    spare = come + topology.latencies + go
    return np.where(np.isinf(spare), np.inf, np.minimum(spare, farthest)), farthest


def _price_time(
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
    toll = (moved.bytes * cost[moved.source, moved.taker]).sum()
    waits = (weight * np.where(used, spare, 0.0)).sum()
    return float((toll + waits) / weight.sum())


def price_bound(moved: Transfers, topology: Topology, whole: bool) -> float:
    """Best bound by the fixed prices (s)."""
    if not len(moved.bytes):
        return 0.0
    spare, least = idle(moved, topology, whole)
    if np.isinf(least):
        return np.inf
    bounds = [
        _price_time(moved, topology, price, cost, spare)
        for price, cost in zip(*_fixed_prices(topology), strict=True)
    ]
    return max(least, *bounds)


def flow_bound(
    demand: Demand,
    topology: Topology,
    *,
    whole: bool = True,
    how: Solving = _USUAL,
) -> float:
    """Least s of any schedule, by what has one taker (0 if nothing has); of blocks that
    may be cut up if not `whole`.

    A program of more than `MOST_ROWS`, or beyond the limits of `how`, is left to fixed
    prices.
    """
    bound = 0.0
    for machine, spread in spreads(demand, topology):
        moved = transfers(spread)
        if len(moved.bytes):
            machine_bound = _bound(moved, machine, whole, how)
            bound = max(bound, machine_bound)
    return bound


def _bound(moved: Transfers, topology: Topology, whole: bool, how: Solving) -> float:
    spare, _ = idle(moved, topology, whole)
    fixed = price_bound(moved, topology, whole)
    link_class, stands_for = _classes(moved, topology)
    if np.count_nonzero(stands_for) * len(spare) > MOST_ROWS:
        return fixed
    program = _program(moved, topology, spare, link_class, stands_for)
    answer = solve(program, how)
    if answer.values is None:
        return fixed
    price = np.maximum(answer.values[: link_class.max() + 1], 0.0)[link_class]
    price = np.where(np.isfinite(spare), price / topology.rates.max(), 0.0)
    seconds = _price_time(moved, topology, price, shortest(topology, price), spare)
    # The farthest block may say more than all flows.
    return seconds if seconds >= fixed * (1 - _ROUNDING) else fixed


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
    link_class = orbit_numbers(
        len(topology.links), [link_map(topology, m) for m in makers]
    )
    orbit = orbit_numbers(nodes, makers)
    sources = np.unique(moved.source)
    _, first, count = np.unique(orbit[sources], return_index=True, return_counts=True)
    stands_for = np.zeros(nodes, int)
    stands_for[sources[first]] = count
    return link_class, stands_for


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
    ones = -np.ones(len(links)), (np.arange(len(links)), link_class[links])
    classes = sparse.coo_array(ones, (len(links), prices))
    ends = -incidence(topology)[:, links].T
    weight = np.bincount(link_class[links], speed[links], prices)
    rows = len(sources) * len(links)
    each, every = sparse.eye_array(len(sources)), np.ones((len(sources), 1))
    ways = [sparse.kron(every, classes), sparse.kron(each, ends)]
    matrix = sparse.block_array([ways, [sparse.coo_array(weight[None]), None]])
    gain = np.zeros(prices + len(sources) * nodes)
    wait = speed[links] * spare[links] * topology.rates.max() / unit
    gain[:prices] = np.bincount(link_class[links], wait, prices)
    mine = stands_for[moved.source] > 0
    into = prices + place[moved.source[mine]] * nodes + moved.taker[mine]
    np.add.at(gain, into, moved.bytes[mine] / unit * stands_for[moved.source[mine]])
    high = np.full(len(gain), np.inf)
    high[prices + np.arange(len(sources)) * nodes + sources] = 0.0
    limits = np.append(np.full(rows, -np.inf), 1.0), np.append(np.zeros(rows), 1.0)
    low, matrix = np.zeros(len(gain)), sparse.csr_array(matrix)
    return LinearModel(matrix, *limits, low, high, -gain, False)
