"""`least_energy`: the second stage, fewest joules of links and memory at fixed finish.

1. `prune` leaves out what nobody needs.
2. If the schedule costs no more than `energy_floor`, it is done.
3. With epochs given and a model of moderate size, a solver looks for the cheapest
   schedule of as many epochs: `milp` with a cost for every send, `lp` for blocks with
   one taker.

Every result is verified; one that ends later or costs more is thrown away.

`energy_floor`: a block that one GPU wants needs at least its cheapest way. A block that
several want needs at least the cheapest tree of links that leads to all of them; its
price is bounded from below by dual ascent (Wong 1984): a set of nodes that holds a
taker and not the source must be entered, so it may charge every link into it, as long
as no link is charged more than its price. The charges add up to the bound.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ...search import USUAL, Solving
from .._demand.demand import Demand
from .._exact.epoch_schedule import Found, reach
from .._exact.lp import flow_count, lp
from .._exact.milp import milp
from .._machine.routes import EpochModel, shortest
from .._machine.topology import Topology
from .._schedule.schedule import Schedule
from .._schedule.simulate import prune, run_epochs
from .._schedule.time_reversal import reduction, spread_of, spreads
from .._verify.verify import verify
from .._verify.violation import Violation
from .energy import schedule_price

SAME: Final = 1e-9
"""Relative difference of joules or seconds that counts as none."""
_MOST_CHOICES: Final = 3e5
"""(block, link, epoch) or (source, link, epoch) above which no solver is asked."""
_WORK: Final = 1.4e6
"""(blocks that differ) x arcs^2 above which the plain bound replaces dual ascent."""
_PAID: Final = 1e-9
"""Arcs whose price is charged up to this share of the dearest are paid."""


@dataclasses.dataclass(frozen=True)
class SecondStage:
    """A schedule with its `finish` (s), `joules` of links and memory at the prices
    given, and the `floor` that no schedule stays below (0: none known); `seconds` and
    `work` (s of an idle core) of the solver for it."""

    schedule: Schedule
    finish: float
    joules: float
    floor: float
    interrupted: bool = False
    seconds: float = 0.0
    work: float = 0.0

    @property
    def meets_floor(self) -> bool:
        """Whether no schedule can cost less, however late."""
        return self.joules <= self.floor * (1 + SAME)


def priced(schedule: Schedule, prices: Float[np.ndarray, " link"]) -> SecondStage:
    """What a schedule costs at `prices` (J/B of each link, `energy.byte_prices`)."""
    floor = energy_floor(schedule.topology, schedule.demand, prices)
    cost = schedule_price(schedule, prices)
    return SecondStage(schedule, verify(schedule), cost, floor)


def least_energy(
    start: SecondStage,
    prices: Float[np.ndarray, " link"],
    how: Solving = USUAL,
    *,
    limit: float = 0.0,
    model: EpochModel | None = None,
    horizon: int | None = None,
) -> SecondStage:
    """The cheapest schedule at `prices` that ends by `limit` (s) or when `start` does.

    `model`, `horizon`: epochs, and how many, for the solver (None: no solver). Ctrl-C
    keeps the best so far.
    """
    latest = max(start.finish, limit)
    found = dataclasses.replace(start, seconds=0.0, work=0.0)
    try:
        found = _better(found, start.schedule, prices, latest)
        if model is not None and horizon and not found.meets_floor:
            answer = _solved(found.schedule, prices, model, horizon, how)
            if answer is not None:
                spent = dict(seconds=answer.seconds, work=answer.work)
                found = dataclasses.replace(found, **spent)
            if answer is not None and answer.schedule is not None:
                other = _in_time(start.schedule, answer.schedule, model)
                found = _better(found, other, prices, latest)
    except KeyboardInterrupt:
        found = dataclasses.replace(found, interrupted=True)
    return found


def _better(
    found: SecondStage,
    other: Schedule,
    prices: Float[np.ndarray, " link"],
    latest: float,
) -> SecondStage:
    """`other` where it is right, in time and cheaper."""
    other = prune(other)
    cost = schedule_price(other, prices)
    if cost > found.joules * (1 - SAME):
        return found
    try:
        finish = verify(other)
    except Violation:
        return found
    if finish > latest * (1 + SAME):
        return found
    return dataclasses.replace(found, schedule=other, finish=finish, joules=cost)


def _solved(
    given: Schedule,
    prices: Float[np.ndarray, " link"],
    model: EpochModel,
    horizon: int,
    how: Solving,
) -> Found | None:
    """What a solver finds in as many epochs; None where it is not asked."""
    topology, demand = given.topology, given.demand
    if demand.collective == "all_reduce":
        return None
    if demand.reduces:
        topology, demand = spread_of(topology, demand)
    if demand.single:
        choices = flow_count(topology, demand, model, horizon)
    elif np.allclose(demand.size, model.chunk, rtol=1e-9):
        wanted = demand.source, demand.wanted
        choices = reach(topology, *wanted, model.hop, horizon).choices
    else:
        return None
    if choices > _MOST_CHOICES:
        return None
    cost = prices / max(float(prices.mean()), 1e-300)
    if demand.single:
        return lp(
            topology, demand, model, how, low=horizon, high=horizon, link_cost=cost
        )
    return milp(topology, demand, model, horizon, how, link_cost=cost)


def _in_time(given: Schedule, solved: Schedule, model: EpochModel) -> Schedule:
    """A solver's schedule of the demand of `given`, in continuous time."""
    timed = run_epochs(solved, model, parts=solved.demand.single)
    if given.demand.reduces:
        timed = reduction(given.topology, given.demand, timed)
    return timed


# --- the floor


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
