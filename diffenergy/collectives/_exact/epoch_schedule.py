"""The `Schedule` that the sends of a search over epochs make."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Int

from .._demand.demand import Demand
from .._machine.epochs import EpochModel
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends
from .solver import Status

Picked = tuple[
    Int[np.ndarray, " send"], Int[np.ndarray, " send"], Int[np.ndarray, " send"]
]
"""Block, link and epoch of sends."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A search's end: `schedule` unless infeasible or out of time. `infeasible_at`: a
    horizon that is proven too short, epochs (0: none tried; under a symmetry it proves
    nothing). `bound`: of the objective."""

    schedule: Schedule | None
    status: Status
    infeasible_at: int
    seconds: float
    objective: float | None = None
    bound: float | None = None


def epoch_schedule(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    picked: Picked,
) -> Schedule:
    """Those of the sends of whole blocks that are needed, each at the start of its
    epoch, with true latencies although epochs round them: `run_epochs` gives times that
    can be kept."""
    kept = _needed(topology, demand, model, *picked)
    block, link, epoch = (column[kept] for column in picked)
    order = np.lexsort((block, link, epoch))
    block, link, epoch = block[order], link[order], epoch[order]
    start = epoch * model.tau
    end = start + demand.size[block] / topology.rates[link] + topology.latencies[link]
    size = demand.size[block].astype(float)
    sends = Sends(block, link, start, end, size, np.zeros(len(block), int))
    finish = int((epoch + model.hop[link]).max(initial=0))
    return Schedule(topology, demand, sends, model.tau, finish)


def _needed(
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
    kept = np.zeros(len(block), bool)
    wishes = np.argwhere(demand.wanted).tolist()
    open_ = [first[b, n] for b, n in wishes if n != demand.source[b]]
    while open_:
        send = open_.pop()
        if kept[send]:
            continue
        kept[send] = True
        home, node = int(block[send]), int(source[send])
        if node == demand.source[home]:
            continue
        if topology.stores[node]:
            open_.append(first[home, node])
        else:
            feeds = passing[home, node, int(epoch[send])]
            open_.append(feeds[0] if topology.copies[node] else feeds.pop())
    return kept
