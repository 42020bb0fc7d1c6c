"""All-to-all schedules by linear programs: parts of chunks in epochs, without copy.

The formulation of TE-CCL (SIGCOMM 2024, section 4), flows added up by source. In
chunks, f[s, l, k] of what began at s enters link l in epoch k; h[s, n, k] waits at n:

- h[s, n, k] = h[s, n, k-1] + sum over links l into n of f[s, l, k - hop_l]
  - sum over links l out of n of f[s, l, k], with hop_l = 1 + delay_l;
- h[s, s, 0-] = all that s sends, h[s, n, horizon] = what n wants of s;
- a switch holds nothing: the same with h = 0;
- sum over s of f[s, l, k] <= capacity_l; least sum of all f, or of cost_l f.

The horizon is the least at which this has a solution: a static flow gives a bound (each
link carries something of use only between the earliest arrival at its start and the
latest departure to somebody who wants it), and bisection the rest.
"""

import collections
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ..search import USUAL, LinearModel, Solving, solve
from ._demand import Demand
from ._epoch_schedule import SolverResult, least_horizon, reach
from ._routes import EpochModel, incidence
from ._schedule import Schedule, Sends
from ._topology import Topology

# --- From flows of sources to sends of parts of blocks.

_DUST: Final = 1e-7
"""Chunks below which an amount is rounding."""
_LOST: Final = 1e-4
"""Chunks that rounding can lose of a wish."""


@dataclasses.dataclass(frozen=True)
class FlowModel:
    """The linear model at one horizon; axes (flow,) of its first columns say what they
    are: number of the source in `sources`, link, epoch."""

    linear: LinearModel
    sources: Int[np.ndarray, " source"]
    source: Int[np.ndarray, " flow"]
    link: Int[np.ndarray, " flow"]
    epoch: Int[np.ndarray, " flow"]


def part_sends(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    flows: FlowModel,
    values: Float[np.ndarray, " column"],
) -> Schedule:
    """A schedule whose sends carry parts of blocks along an answer, in chunks.

    Per source the flow is walked back from each taker, along what came last, into
    paths; each path serves the taker's blocks in order.
    """
    amount = values[: len(flows.link)]
    carried: dict[tuple[int, int, int], float] = collections.defaultdict(float)
    for number, source in enumerate(flows.sources.tolist()):
        mine = (flows.source == number) & (amount > _DUST)
        link, epoch = flows.link[mine], flows.epoch[mine]
        walk = _Walk(topology, epoch + model.part_hop[link], link, epoch, amount[mine])
        for block in np.flatnonzero(demand.source == source).tolist():
            takers = np.flatnonzero(demand.wanted[block])
            if not len(takers) or takers[0] == source:
                continue
            wish = float(demand.size[block]) / model.chunk
            for path, share in walk.paths(source, int(takers[0]), wish):
                for flow in path:
                    carried[walk.epoch[flow], walk.link[flow], block] += share
    keys = sorted(carried)
    epoch, link, block = np.array(keys, int).reshape(-1, 3).T
    size = np.array([carried[key] for key in keys]) * model.chunk
    start = epoch * model.tau
    end = start + size / topology.rates[link] + topology.latencies[link]
    sends = Sends(block, link, start, end, size, np.zeros(len(block), int))
    epochs = int((epoch + model.part_hop[link]).max(initial=0))
    return Schedule(topology, demand, sends, model.tau, epochs)


class _Walk:
    """Remaining flow of one source: for each node the arrivals, latest first."""

    def __init__(
        self,
        topology: Topology,
        arrive: Int[np.ndarray, " flow"],
        link: Int[np.ndarray, " flow"],
        epoch: Int[np.ndarray, " flow"],
        amount: Float[np.ndarray, " flow"],
    ) -> None:
        self._stores = topology.stores
        self._from: list[int] = topology.sources[link].tolist()
        self._arrive: list[int] = arrive.tolist()
        self.link: list[int] = link.tolist()
        self.epoch: list[int] = epoch.tolist()
        self._left: list[float] = amount.tolist()
        self._into: dict[int, list[int]] = collections.defaultdict(list)
        for flow in np.argsort(-arrive, kind="stable").tolist():
            self._into[int(topology.targets[link[flow]])].append(flow)

    def paths(
        self, source: int, taker: int, wish: float
    ) -> list[tuple[list[int], float]]:
        """Paths of flows from `source` to `taker`, and what each carries: `wish` in
        all, what rounding lost on the largest.

        Raises:
            ValueError: more is missing than rounding explains.
        """
        paths: list[tuple[list[int], float]] = []
        while wish > _DUST:
            path = self._back(source, taker)
            if path is None:
                break
            share = min(wish, *(self._left[flow] for flow in path))
            for flow in path:
                self._left[flow] -= share
            paths.append((path, share))
            wish -= share
        if wish > _LOST:
            raise ValueError(
                f"`solver` leaves {wish:.3g} chunks of a wish unserved, so loosely "
                "does it keep equations."
            )
        if wish > 0 and paths:
            largest = max(range(len(paths)), key=lambda n: paths[n][1])
            path, share = paths[largest]
            paths[largest] = path, share + wish
        return paths

    def _back(self, source: int, taker: int) -> list[int] | None:
        """One path, from its end: out of a store after any arrival, out of a switch at
        the arrival."""
        node, before, path = taker, None, []
        while node != source:
            for flow in self._into[node]:
                at = self._arrive[flow]
                late = before is not None and at > before
                missed = before is not None and not self._stores[node] and at != before
                if not late and not missed and self._left[flow] > _DUST:
                    break
            else:
                return None
            path.append(flow)
            node, before = self._from[flow], self.epoch[flow]
        return path[::-1]


# --- All-to-all schedules by linear programs

_SLACK: Final = 1e-7
"""Share of an epoch by which a static bound may be off."""


def grouped(
    demand: Demand, chunk: float
) -> tuple[Int[np.ndarray, " source"], Float[np.ndarray, "source node"]]:
    """Sources, and how much of each one's data every node wants, in chunks.

    Raises:
        ValueError: a block with more than one taker, or a sum.
    """
    if not demand.single:
        raise ValueError(
            f"`demand` is {demand.collective}, whose blocks are copied or added up; "
            "method lp moves blocks with one taker (all_to_all, scatter, gather); take "
            "milp or greedy."
        )
    sources, which = np.unique(demand.source, return_inverse=True)
    wanted = np.zeros((len(sources), demand.wanted.shape[1]))
    share = demand.wanted * (demand.size / chunk)[:, None]
    np.add.at(wanted, which.reshape(-1), share)
    wanted[np.arange(len(sources)), sources] = 0  # what stays needs no link
    return sources, wanted


def flow_model(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    horizon: int,
    link_cost: Float[np.ndarray, " link"] | None = None,
) -> FlowModel:
    """The equations above as one sparse matrix; `link_cost`: of a chunk over each link
    (None: 1)."""
    sources, wanted = grouped(demand, model.chunk)
    hop = model.part_hop
    reached = reach(topology, sources, wanted > 0, hop, horizon)
    source, link, epoch = np.nonzero(reached.open)
    nodes = len(topology.nodes)
    # A row for every source, node and epoch 0..horizon: what comes, leaves and waits.
    out = (source * nodes + topology.sources[link]) * (horizon + 1) + epoch
    into = (source * nodes + topology.targets[link]) * (horizon + 1) + epoch + hop[link]
    wait = np.zeros((len(sources), nodes, horizon + 1), bool)
    wait[:, topology.stores, :horizon] = True
    wait &= reached.epochs >= reached.earliest[:, :, None]
    wait &= reached.epochs < reached.latest[:, :, None]
    waiting = np.flatnonzero(wait)
    flows, waits = np.arange(len(link)), len(link) + np.arange(len(waiting))
    rows = np.concatenate([out, into, waiting, waiting + 1])
    columns = np.concatenate([flows, flows, waits, waits])
    values = np.repeat([1.0, -1.0, 1.0, -1.0], [len(flows)] * 2 + [len(waiting)] * 2)
    supply = np.zeros((len(sources), nodes, horizon + 1))
    supply[:, :, horizon] = -wanted
    supply[np.arange(len(sources)), sources, 0] += wanted.sum(axis=1)
    used, rows = np.unique(rows, return_inverse=True)
    lost = np.setdiff1d(np.flatnonzero(supply), used)
    load, load_row = np.unique(link * horizon + epoch, return_inverse=True)
    capacity = model.capacity[load // horizon]
    rows = np.concatenate([rows.reshape(-1), len(used) + load_row.reshape(-1)])
    places = rows, np.concatenate([columns, flows])
    values = np.concatenate([values, np.ones(len(flows))])
    shape = len(used) + len(load) + len(lost), len(flows) + len(waiting)
    matrix = sparse.csr_array(sparse.coo_array((values, places), shape))
    balance = supply.reshape(-1)[used]
    missing = supply.reshape(-1)[lost]
    low = np.concatenate([balance, np.full(len(load), -np.inf), missing])
    high = np.concatenate([balance, capacity, missing])
    count = len(flows) + len(waiting)
    passing = np.ones(len(flows)) if link_cost is None else link_cost[link]
    cost = np.concatenate([passing, np.zeros(len(waiting))])
    ends = np.zeros(count), np.full(count, np.inf)
    linear = LinearModel(matrix, low, high, *ends, cost, False)
    return FlowModel(linear, sources, source, link, epoch)


def flow_count(
    topology: Topology, demand: Demand, model: EpochModel, horizon: int
) -> int:
    """Flows (source, link, epoch) of `flow_model`, without building it."""
    sources, wanted = grouped(demand, model.chunk)
    return reach(topology, sources, wanted > 0, model.part_hop, horizon).choices


def static_bound(topology: Topology, demand: Demand, model: EpochModel) -> int:
    """Epochs below which no schedule ends: the least K for which a flow without time
    exists in which link l carries at most capacity_l (K - idle_l), idle_l the epochs
    in which nothing of use can be on it."""
    nearest = least_horizon(topology, demand, model.part_hop)
    sources, wanted = grouped(demand, model.chunk)
    far = nearest + 1
    reached = reach(topology, sources, wanted > 0, model.part_hop, far)
    useful = reached.first <= reached.last
    usable = useful.any(axis=0)
    first = np.where(useful, reached.first, far).min(axis=0)
    after = np.where(useful, far - 1 - reached.last, far).min(axis=0)
    idle = np.where(usable, first + after, far)
    links, count = len(topology.links), len(sources)
    balance = sparse.kron(sparse.eye_array(count), incidence(topology))
    loads = sparse.kron(np.ones((1, count)), sparse.eye_array(links))
    time = sparse.coo_array(-model.capacity[:, None])
    matrix = sparse.block_array([[balance, None], [loads, time]])
    supply = -wanted
    supply[np.arange(count), sources] += wanted.sum(axis=1)
    load = np.where(usable, -model.capacity * idle, 0.0)
    low = np.concatenate([supply.reshape(-1), np.full(links, -np.inf)])
    high = np.concatenate([supply.reshape(-1), load])
    cost = np.zeros(count * links + 1)
    cost[-1] = 1
    ends = np.full(count * links + 1, np.inf)
    none, matrix = np.zeros(len(cost)), sparse.csr_array(matrix)
    linear = LinearModel(matrix, low, high, none, ends, cost, False)
    answer = solve(linear)
    if answer.incumbent is None:
        return nearest
    return max(nearest, int(np.ceil(answer.incumbent - _SLACK)))


def lp(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    how: Solving = USUAL,
    *,
    low: int = 0,
    high: int | None = None,
    link_cost: Float[np.ndarray, " link"] | None = None,
) -> SolverResult:
    """The schedule of fewest epochs and, at those, of least volume over links, or of
    least `link_cost` (of a chunk over each link; near 1, as solvers round).

    `low`, `high`: horizons between which to look (a bound of one's own, the user's
    limit). `infeasible_at` of the answer is the longest horizon that a linear program
    proves too short (0: none had to; the static bound proves the rest). `status` is
    `optimal` if no horizon between is left.

    Raises:
        ValueError: blocks with several takers, or sums.
    """
    best = None
    short = max(low, static_bound(topology, demand, model)) - 1
    tried, step, long = 0, 1, None
    spent, work = 0.0, 0.0
    while long is None or long - short > 1:
        horizon = short + step if long is None else (short + long) // 2
        if high is not None and long is None and horizon > high:
            if short >= high:
                return SolverResult(None, "infeasible", short, spent, work=work)
            horizon = high
        flows = flow_model(topology, demand, model, horizon, link_cost)
        # Least volume is one figure: a seed only picks among equals.
        brief = dataclasses.replace(how.less(spent, work), seed=0)
        answer = solve(flows.linear, brief)
        spent, work = spent + answer.seconds, work + answer.work
        if answer.status == "infeasible":
            short, tried, step = horizon, horizon, 2 * step
        elif answer.values is None or answer.interrupted:
            break
        else:
            long, best = horizon, (flows, answer, answer.values)
    if best is None:
        return SolverResult(None, "unknown", tried, spent, work=work)
    flows, answer, values = best
    schedule = part_sends(topology, demand, model, flows, values)
    proven = long is not None and long - short <= 1
    status = answer.status if proven else "feasible"
    ended = answer.incumbent, answer.bound, work
    return SolverResult(schedule, status, tried, spent, *ended)
