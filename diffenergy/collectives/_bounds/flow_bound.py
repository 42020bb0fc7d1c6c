"""`flow_bound`: the least time of a flow, for blocks with one taker.

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

from typing import Final

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from .._demand.demand import Demand
from .._demand.orbits import automorphisms, link_map, orbit_numbers
from .._exact.solver import LinearModel, Solving, solve
from .._machine.routes import incidence
from .._machine.topology import Topology
from .bounds import spreads
from .prices import Transfers, costs, idle, price_bound, price_time, transfers

MOST_ROWS: Final = 200_000
"""(source, link) pairs, symmetric ones once, up to which the program is solved."""
_ROUNDING: Final = 1e-9
"""Relative difference of bounds that counts as none."""


def flow_bound(
    demand: Demand,
    topology: Topology,
    *,
    whole: bool = True,
    most_rows: int = MOST_ROWS,
    time_limit: float = 60.0,
) -> float:
    """Least s of any schedule, by what has one taker (0 if nothing has); of blocks that
    may be cut up if not `whole`.

    A program of more than `most_rows`, or that takes longer than `time_limit` (s), is
    left to fixed prices.

    Raises:
        ValueError: a block cannot reach its taker.
    """
    bound = 0.0
    for spread in spreads(demand, topology):
        moved = transfers(spread.source, spread.wanted, spread.size)
        if len(moved.bytes):
            found = _bound(moved, spread.topology, whole, most_rows, time_limit)
            bound = max(bound, found)
    return bound


def _bound(
    moved: Transfers, topology: Topology, whole: bool, most_rows: int, limit: float
) -> float:
    spare, farthest = idle(moved, topology, whole)
    if np.isinf(farthest):
        raise ValueError(
            f"`demand` has a block that no way of `{topology.name}` leads to its "
            "taker; add links or change the demand."
        )
    spare = np.where(np.isinf(spare), np.inf, np.minimum(spare, farthest))
    fixed = price_bound(moved, topology, whole)
    link_class, stands_for = _classes(moved, topology)
    if np.count_nonzero(stands_for) * len(spare) > most_rows:
        return fixed
    program = _program(moved, topology, spare, link_class, stands_for)
    answer = solve(program, Solving(time_limit=limit))
    if answer.values is None:
        return fixed
    price = np.maximum(answer.values[: link_class.max() + 1], 0.0)[link_class]
    price = np.where(np.isfinite(spare), price / topology.rates.max(), 0.0)
    seconds = price_time(moved, topology, price, costs(topology, price), spare)
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
    return LinearModel(
        sparse.csr_array(matrix),
        np.append(np.full(rows, -np.inf), 1.0),
        np.append(np.zeros(rows), 1.0),
        np.zeros(len(gain)),
        high,
        -gain,
        False,
    )
