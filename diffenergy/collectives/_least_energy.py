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
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from ..hardware import GpuSpec
from ..search import USUAL, Solving
from ._demand import Demand
from ._energy import (
    CollectiveEnergy,
    byte_prices,
    memory_price,
    schedule_energy,
    schedule_price,
)
from ._epoch_schedule import SolverResult, reach
from ._lp import flow_count, lp
from ._milp import milp
from ._routes import EpochModel, shortest
from ._schedule import Schedule
from ._simulate import prune, run_epochs
from ._time_reversal import reduction, spread_of, spreads
from ._topology import Topology
from ._verify import verify
from ._violation import Violation

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
    """A schedule with its energy at `prices` (J/B of each link, `byte_prices`)."""
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
    best = dataclasses.replace(start, seconds=0.0, work=0.0)
    try:
        best = _cheaper(best, start.schedule, prices, latest)
        if model is not None and horizon and not best.meets_floor:
            answer = _solve(best.schedule, prices, model, horizon, how)
            if answer is not None:
                spent = dict(seconds=answer.seconds, work=answer.work)
                best = dataclasses.replace(best, **spent)
            if answer is not None and answer.schedule is not None:
                other = _timed_solution(start.schedule, answer.schedule, model)
                best = _cheaper(best, other, prices, latest)
    except KeyboardInterrupt:
        best = dataclasses.replace(best, interrupted=True)
    return best


def _cheaper(
    best: SecondStage,
    other: Schedule,
    prices: Float[np.ndarray, " link"],
    latest: float,
) -> SecondStage:
    """`other` if it verifies, is in time and takes less energy; else `best`."""
    other = prune(other)
    cost = schedule_price(other, prices)
    if cost > best.joules * (1 - SAME):
        return best
    try:
        finish = verify(other)
    except Violation:
        return best
    if finish > latest * (1 + SAME):
        return best
    return dataclasses.replace(best, schedule=other, finish=finish, joules=cost)


def _solve(
    schedule: Schedule,
    prices: Float[np.ndarray, " link"],
    model: EpochModel,
    horizon: int,
    how: Solving,
) -> SolverResult | None:
    """Cheapest schedule of `horizon` epochs by a solver; None where none fits."""
    topology, demand = schedule.topology, schedule.demand
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


def _timed_solution(
    schedule: Schedule, solved: Schedule, model: EpochModel
) -> Schedule:
    """A solver's schedule of the demand of `schedule`, in continuous time."""
    timed = run_epochs(solved, model, parts=solved.demand.single)
    if schedule.demand.reduces:
        timed = reduction(schedule.topology, schedule.demand, timed)
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
        graph = _copy_graph(topology, prices)
        ascend = len(alike) * len(graph.begin) ** 2 <= _WORK
        tree = _dual_ascent if ascend else _entry_bound
        trees = [tree(graph, int(row[0]), row[1:].astype(bool)) for row in alike]
        # The farthest taker is a bound of its own.
        price[several] = np.maximum(
            np.array(trees)[which.reshape(-1)], least[several].max(axis=1)
        )
    return price * spread.size


def _copy_graph(topology: Topology, prices: Float[np.ndarray, " link"]) -> _Graph:
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


def _entry_bound(
    graph: _Graph, source: int, takers: Bool[np.ndarray, " node"]
) -> float:
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
        int(node): _reaching(graph, left <= enough, int(node))
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
                behind[other] = _reaching(graph, paid, other)
    return charged


def _reaching(
    graph: _Graph, paid: Bool[np.ndarray, " arc"], node: int
) -> Bool[np.ndarray, " node"]:
    """Which nodes reach `node` over paid arcs."""
    begin, end = graph.begin[paid], graph.end[paid]
    near = np.zeros(graph.nodes, bool)
    near[node] = True
    while True:
        wider = near.copy()
        wider[begin[near[end]]] = True
        if (wider == near).all():
            return near
        near = wider


# --- Finish time against energy: the Pareto front of schedules, and a choice from it.
#
# `least_energy` looks for the cheapest schedule of links and memory within later and
# later limits. Waiting GPUs draw power all the while, so a later schedule is worth it
# only if it saves more than GPUs x idle power x delay; where it does not, the front of
# finish and total energy is the fastest schedule alone.


Goal = Literal["time", "energy"]
_STRETCHES: Final = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)
"""Latest finishes that are tried, in finishes of the first schedule."""
_ROUNDING: Final = 1e-6
"""Share of an epoch by which a limit may miss it."""


@dataclasses.dataclass(frozen=True)
class FrontPoint:
    """A schedule with its `finish` (s) and what it takes."""

    schedule: Schedule
    finish: float
    energy: CollectiveEnergy

    @property
    def total(self) -> float | None:
        """Best guess of the energy with waiting GPUs (J); None without a known GPU."""
        total = self.energy.total
        return None if total is None else total.typical


@dataclasses.dataclass(frozen=True)
class Front:
    """Schedules by rising finish. `trades`: none is faster and spends less on links and
    memory than another; `points`: the same for the total with waiting GPUs (equal to
    `trades` where the GPU is not known). One point: the fastest is also the leanest."""

    points: tuple[FrontPoint, ...]
    trades: tuple[FrontPoint, ...]
    interrupted: bool = False
    out_of_time: bool = False


def frontier(
    start: Schedule,
    gpu: GpuSpec | None,
    how: Solving = USUAL,
    *,
    model: EpochModel | None = None,
) -> Front:
    """Pareto front of finish and energy, beginning at `start`, a fast schedule.

    `model`: epochs for the solver, which gets as many as fit; the limits are for all
    searches. Ends at the first schedule that nothing can undercut, and on Ctrl-C.
    """
    memory = None if gpu is None else memory_price(gpu)
    prices = byte_prices(start.topology, memory)
    stages, seconds, work = [priced(start, prices)], 0.0, 0.0
    for number, stretch in enumerate(_STRETCHES):
        left = how.less(seconds, work)
        out = seconds >= how.time_limit or work >= how.work
        if stages[-1].meets_floor or stages[-1].interrupted or out:
            break
        limit, rest = stages[0].finish * stretch, len(_STRETCHES) - number
        share = dataclasses.replace(left, work=left.work / rest)
        horizon = None if model is None else int(limit / model.tau + _ROUNDING)
        stages.append(
            least_energy(
                stages[-1], prices, share, limit=limit, model=model, horizon=horizon
            )
        )
        seconds, work = seconds + stages[-1].seconds, work + stages[-1].work
    points = [
        FrontPoint(x.schedule, x.finish, schedule_energy(x.schedule, gpu, x.finish))
        for x in stages
    ]
    ended = stages[-1].interrupted, seconds >= how.time_limit
    return Front(_pareto(points, True), _pareto(points, False), *ended)


def front_rows(front: Front) -> list[dict[str, Any]]:
    """The front for JSON, by rising finish: `moved_j` of links and memory, `energy_j`
    with the GPUs that wait."""
    return [
        {"finish_s": p.finish, "moved_j": p.energy.active, "energy_j": p.total}
        for p in front.trades
    ]


def read_objective(text: str) -> Goal | float:
    """An objective as written: `time`, `energy`, or a weight in J per s of finish.

    Raises:
        ValueError: anything else.
    """
    word = text.strip().lower()
    if word == "time" or word == "energy":
        return word
    try:
        weight = float(word)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(
            f"`objective` is '{text}'; allowed are time, energy, or a weight of 0 or "
            "more, in J per s of finish."
        )
    return weight


def pick(front: Front, objective: Goal | float) -> FrontPoint:
    """The point of a front: `time` the fastest, `energy` the least total with waiting
    GPUs, or a weight in J per s of finish: least energy of links and memory + weight x
    finish (`energy` is the weight GPUs x idle power, of a known GPU).
    """
    if objective == "time":
        return min(front.trades, key=lambda p: (p.finish, p.energy.active))
    if objective == "energy":
        return min(front.points, key=lambda p: (p.total or 0.0, p.finish))
    return min(
        front.trades, key=lambda p: (p.energy.active + objective * p.finish, p.finish)
    )


def _pareto(points: Sequence[FrontPoint], whole: bool) -> tuple[FrontPoint, ...]:
    """Points that no other beats in finish and energy (`whole`: the total, where it is
    known), by rising finish."""

    def energy(point: FrontPoint) -> float:
        return point.energy.active if point.total is None or not whole else point.total

    front: list[FrontPoint] = []
    for point in sorted(points, key=lambda p: (p.finish, energy(p))):
        if front and energy(point) >= energy(front[-1]) * (1 - SAME):
            continue
        if front and point.finish <= front[-1].finish * (1 + SAME):
            front.pop()
        front.append(point)
    return tuple(front)
