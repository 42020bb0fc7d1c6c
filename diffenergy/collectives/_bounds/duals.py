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
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, Solving, highs, solve
from .._demand.demand import Demand
from .._demand.symmetries import (
    Permutation,
    automorphisms,
    link_map,
    orbit_numbers,
    pair_maps,
)
from .._machine.routes import distances, incidence, second_clock, shortest
from .._machine.topology import Topology
from .._schedule.time_reversal import spreads

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
    """Best bound of the fixed prices, s."""
    if not len(moved.bytes):
        return 0.0
    spare, least = idle(moved, topology, whole)
    if np.isinf(least):
        return np.inf
    found = [
        _price_time(moved, topology, price, cost, spare)
        for price, cost in zip(*_fixed_prices(topology), strict=True)
    ]
    return max(least, *found)


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
            found = _bound(moved, machine, whole, how)
            bound = max(bound, found)
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


# --- `rate_prices`: which links bind the bound, whatever the schedule.
#
# The bound is that of flow alone: latencies left out, chunks cut up at will. With
# f[s, l] what began at s and passes link l of rate r_l, a linear program:
#
# - least T with sum over s of f[s, l] <= r_l T,
# - out of each node goes what comes in, of each s, and what it has or wants.
#
# Its dual prices y of the links say dT = -T sum(y_l dr_l), with sum(y_l r_l) = 1: the
# share y_l r_l of the bound is the link's. Flows that a symmetry of machine and demand
# moves onto each other are one variable: the mean of a flow over the symmetries is a
# flow, no worse.

_NOTHING: Final = 1e-9
"""Shares, and relative differences of bounds, below this are rounding."""


@dataclasses.dataclass(frozen=True)
class RatePrices:
    """`rate` = d ln bound / d ln r of each link, of the `bound` in s. None is above 0,
    and they sum to -1.

    Best prices need not be unique; these are the same for links that are alike by
    symmetry. What several links bind together (two equal bottlenecks) is shared out
    among them: all of them faster help as much as the sum, one alone perhaps nothing.
    """

    kind: Literal["flow", "cut"]
    bound: float
    rate: Float[np.ndarray, " link"]


def rate_prices(demand: Demand, topology: Topology) -> RatePrices:
    """Shadow prices of the rates, of the larger of two bounds:

    - "flow", of blocks with one taker: a flow of several commodities, one a source;
    - "cut", of blocks with several, which a copy serves: all that one node wants flows
      to it; of the worst such node, or the mean of several.

    Sums are bounded on the reversed machine; of an all-reduce, whose halves overlap,
    the worse half counts.

    Raises:
        ValueError: the demand moves nothing.
    """
    makers = automorphisms(topology, demand)
    found = [
        one
        for machine, spread in spreads(demand, topology)
        for one in _prices(machine, spread, makers)
    ]
    if not found:
        raise ValueError("`demand` moves nothing, so no rate matters; give another.")
    bound = max(one.bound for one in found)
    worst = [one for one in found if one.bound >= bound * (1 - _NOTHING)]
    rate = np.mean([one.rate for one in worst], axis=0)
    orbit = orbit_numbers(len(rate), [link_map(topology, maker) for maker in makers])
    mean = np.bincount(orbit, rate) / np.bincount(orbit)
    return RatePrices(worst[0].kind, bound, np.minimum(mean[orbit], 0.0))


def price_rows(prices: RatePrices, topology: Topology) -> list[dict[str, Any]]:
    """Rows of the links that bind, most first: `bound_rate_sensitivity` in % of the
    bound per % of rate."""
    names = topology.names
    order = np.argsort(prices.rate.round(9), kind="stable").tolist()
    return [
        {
            "link": [names[topology.links[n].source], names[topology.links[n].target]],
            "rate_bytes_per_s": topology.links[n].rate,
            "bound_rate_sensitivity": float(prices.rate[n]),
        }
        for n in order
        if prices.rate[n] < -_NOTHING
    ]


def _prices(
    machine: Topology, spread: Demand, makers: list[Permutation]
) -> Iterator[RatePrices]:
    """Of blocks with one taker the flow; of others what each node wants, of nodes that
    are alike one."""
    takers, nodes = spread.wanted.sum(1), spread.wanted.shape[1]
    alone = takers == 1
    if alone.any():
        sources, which = np.unique(spread.source[alone], return_inverse=True)
        which, size = which.reshape(-1), spread.size[alone]
        given = np.zeros((len(sources), nodes))
        np.add.at(given, (which, spread.wanted[alone].argmax(1)), -size)
        np.add.at(given, (which, sources[which]), size)
        moved = [np.searchsorted(sources, maker[sources]) for maker in makers]
        flow = _least_time(machine, given, makers, moved)
        yield RatePrices("flow", *flow)
    several = np.flatnonzero(spread.wanted[takers > 1].any(0))
    _, first = np.unique(orbit_numbers(nodes, makers)[several], return_index=True)
    for node in several[first].tolist():
        mine = spread.wanted[:, node]
        given = np.bincount(spread.source[mine], spread.size[mine], nodes)
        given[node] -= given.sum()
        still = [maker for maker in makers if maker[node] == node]
        moved = [np.zeros(1, int)] * len(still)
        cut = _least_time(machine, given[None], still, moved)
        yield RatePrices("cut", *cut)


def _least_time(
    topology: Topology,
    given: Float[np.ndarray, "flow node"],
    makers: list[Permutation],
    moved: list[Int[np.ndarray, " flow"]],
) -> tuple[float, Float[np.ndarray, " link"]]:
    """Least T, s, with flows that leave `given` B at each node (that end, below 0), and
    d ln T / d ln rate. `makers` keep all as it is if flows go where `moved` says."""
    flows, nodes, links = *given.shape, len(topology.links)
    unit = float(np.median(np.abs(given[given != 0])))  # B; HiGHS wants figures near 1
    speed = topology.rates / topology.rates.max()
    link_maps = [link_map(topology, maker) for maker in makers]
    link_orbit = orbit_numbers(links, link_maps)
    place_orbit = orbit_numbers(flows * nodes, pair_maps(moved, makers, nodes))
    flow_orbit = orbit_numbers(flows * links, pair_maps(moved, link_maps, links))
    time = int(flow_orbit.max()) + 1  # the column of T, after those of flows
    member = np.ones(len(flow_orbit)), (np.arange(len(flow_orbit)), flow_orbit)
    merged = sparse.csr_array(member, shape=(len(flow_orbit), time))
    every = sparse.kron(sparse.eye_array(flows), incidence(topology), "csr")
    balance = (every @ merged)[_leaders(place_orbit)]
    balance.resize(balance.shape[0], time + 1)
    first = _leaders(link_orbit)
    sums = sparse.kron(np.ones((1, flows)), sparse.eye_array(links), "csr") @ merged
    load = sparse.hstack([sums[first], sparse.coo_array(-speed[first, None])])
    cost = np.append(np.zeros(time), 1.0)
    wish = given.reshape(-1)[_leaders(place_orbit)] / unit
    model = LinearModel(
        matrix=sparse.csr_array(sparse.vstack([load, balance])),
        row_low=np.append(np.full(len(first), -np.inf), wish),
        row_high=np.append(np.zeros(len(first)), wish),
        low=np.zeros(len(cost)),
        high=np.full(len(cost), np.inf),
        cost=cost,
    )
    answer = highs(model, method="highs-ipm")
    if answer.incumbent is None or answer.duals is None:
        raise RuntimeError(f"HiGHS found no prices: {answer.message}")
    least = float(answer.incumbent * unit / topology.rates.max())
    price = answer.duals[: len(first)] / np.bincount(link_orbit)
    return least, price[link_orbit] * speed


def _leaders(orbit: Int[np.ndarray, " member"]) -> Int[np.ndarray, " orbit"]:
    """First member of each orbit."""
    return np.unique(orbit, return_index=True)[1]
