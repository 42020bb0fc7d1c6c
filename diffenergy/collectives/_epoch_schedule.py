"""Sends of a search over epochs: which can be good for something, and the `Schedule`
that those found make.

A send is of use between its block's earliest arrival and the last moment at which
somebody can still be served.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Int

from ..search import Status
from ._demand import Demand
from ._routes import EpochModel, shortest
from ._schedule import Schedule, Sends
from ._topology import Topology

_NEVER: Final = 1 << 30
"""Epochs to what cannot be reached."""
Picked = tuple[
    Int[np.ndarray, " send"], Int[np.ndarray, " send"], Int[np.ndarray, " send"]
]
"""Block, link and epoch of sends."""


@dataclasses.dataclass(frozen=True)
class SolverResult:
    """Result of a search in epochs: `schedule` unless infeasible or out of time.

    `infeasible_at`: a horizon that is proven too short, epochs (0: none tried).
    `bound`: of the objective; `work`: s of an idle core in the solver.
    """

    schedule: Schedule | None
    status: Status
    infeasible_at: int
    seconds: float
    objective: float | None = None
    bound: float | None = None
    work: float = 0.0


@dataclasses.dataclass(frozen=True)
class Reach:
    """Epochs that can matter, of blocks at nodes and on links; `horizon` epochs in all.

    A block can be at a node from `earliest` on and is of use there until `latest`;
    sends of it on a link are useful in epochs `first` to `last` (if `first <= last`).
    """

    horizon: int
    earliest: Int[np.ndarray, "block node"]
    latest: Int[np.ndarray, "block node"]
    first: Int[np.ndarray, "block link"]
    last: Int[np.ndarray, "block link"]

    @property
    def epochs(self) -> Int[np.ndarray, " epoch"]:
        """Numbers of the epochs, the horizon included."""
        return np.arange(self.horizon + 1)

    @property
    def open(self) -> Bool[np.ndarray, "block link epoch"]:
        """Which sends are useful, by block, link and epoch."""
        after = self.epochs >= self.first[:, :, None]
        return after & (self.epochs <= self.last[:, :, None])

    @property
    def choices(self) -> int:
        """Number of useful sends."""
        return int(np.maximum(self.last - self.first + 1, 0).sum())


def distances(
    topology: Topology, hop: Int[np.ndarray, " link"]
) -> Int[np.ndarray, "node node"]:
    """Least epochs from each node to each, `hop` epochs a link; `_NEVER` without a
    way."""
    away = shortest(topology, hop.astype(float))
    return np.where(np.isfinite(away), np.rint(away), _NEVER).astype(int)


def least_horizon(
    topology: Topology, demand: Demand, hop: Int[np.ndarray, " link"]
) -> int:
    """Fewest epochs in which every block can reach its takers."""
    away = distances(topology, hop)[demand.source]
    return int(np.where(demand.wanted, away, 0).max(initial=0))


def reach(
    topology: Topology,
    source: Int[np.ndarray, " block"],
    wanted: Bool[np.ndarray, "block node"],
    hop: Int[np.ndarray, " link"],
    horizon: int,
) -> Reach:
    """Epochs in which sends can matter if all must be met within `horizon` epochs."""
    away = distances(topology, hop)
    earliest = away[source]
    latest = horizon - _nearest(away, wanted)
    first = earliest[:, topology.sources]
    last = latest[:, topology.targets] - hop
    home = topology.targets == source[:, None]
    return Reach(horizon, earliest, latest, first, np.where(home, -1, last))


def _nearest(
    away: Int[np.ndarray, "node node"], wanted: Bool[np.ndarray, "block node"]
) -> Int[np.ndarray, "block node"]:
    """Epochs from each node to the nearest node that wants each block."""
    alike, which = np.unique(wanted, axis=0, return_inverse=True)
    near = np.stack([away[:, row].min(axis=1, initial=_NEVER) for row in alike], axis=0)
    return near[which.reshape(-1)]


def epoch_schedule(
    topology: Topology, demand: Demand, model: EpochModel, picked: Picked
) -> Schedule:
    """Those of the sends of whole blocks that are needed, each at the start of its
    epoch, with true latencies although epochs round them: `run_epochs` gives times that
    can be kept."""
    needed = _needed_sends(topology, demand, model, *picked)
    block, link, epoch = (column[needed] for column in picked)
    order = np.lexsort((block, link, epoch))
    block, link, epoch = block[order], link[order], epoch[order]
    start = epoch * model.tau
    end = start + demand.size[block] / topology.rates[link] + topology.latencies[link]
    size = demand.size[block].astype(float)
    sends = Sends(block, link, start, end, size, np.zeros(len(block), int))
    finish = int((epoch + model.hop[link]).max(initial=0))
    return Schedule(topology, demand, sends, model.tau, finish)


def _needed_sends(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    block: Int[np.ndarray, " send"],
    link: Int[np.ndarray, " send"],
    epoch: Int[np.ndarray, " send"],
) -> Bool[np.ndarray, " send"]:
    """Sends on the way of a block to a taker: at GPUs the first to arrive, at switches
    one that arrives in the very epoch, of each of which a switch without copy makes one
    send. A search for any solution also sends what nobody needs, even into switches
    that it never leaves."""
    there = epoch + model.hop[link]
    target, source = topology.targets[link], topology.sources[link]
    first: dict[tuple[int, int], int] = {}
    passing: dict[tuple[int, int, int], list[int]] = {}
    for send in np.argsort(there, kind="stable").tolist():
        place = int(block[send]), int(target[send])
        if topology.stores[place[1]]:
            first.setdefault(place, send)
        else:
            passing.setdefault((*place, int(there[send])), []).append(send)
    needed = np.zeros(len(block), bool)
    wishes = np.argwhere(demand.wanted).tolist()
    open_ = [first[b, n] for b, n in wishes if n != demand.source[b]]
    while open_:
        send = open_.pop()
        if needed[send]:
            continue
        needed[send] = True
        home, node = int(block[send]), int(source[send])
        if node == demand.source[home]:
            continue
        if topology.stores[node]:
            open_.append(first[home, node])
        else:
            feeds = passing[home, node, int(epoch[send])]
            open_.append(feeds[0] if topology.copies[node] else feeds.pop())
    return needed
