"""`rate_prices`: which links bind the bound, whatever the schedule.

The bound is that of flow alone: latencies left out, chunks cut up at will. With
f[s, l] what began at s and passes link l of rate r_l, a linear program:

- least T with sum over s of f[s, l] <= r_l T,
- out of each node goes what comes in, of each s, and what it has or wants.

Its dual prices y of the links say dT = -T sum(y_l dr_l), with sum(y_l r_l) = 1: the
share y_l r_l of the bound is the link's. Flows that a symmetry of machine and demand
moves onto each other are one variable: the mean of a flow over the symmetries is a
flow, no worse.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ...search import LinearModel, highs
from .._demand.automorphisms import Permutation, automorphisms, link_map, orbit_numbers
from .._demand.demand import Demand
from .._demand.symmetries import pair_maps
from .._machine.routes import incidence
from .._machine.topology import Topology
from .._schedule.time_reversal import spreads

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
