"""`whole_epochs`: how many epochs a schedule of whole chunks takes.

The orders of the links are kept; every send begins in the earliest epoch that its data
and the link's windows allow (`EpochModel`), out of a switch in the very epoch of
arrival.
"""

import collections

import numpy as np
from jaxtyping import Int

from .._machine.epochs import EpochModel
from .._machine.topology import Topology
from .schedule import Schedule
from .turning import spread_of, turned_round


def whole_epochs(schedule: Schedule, model: EpochModel) -> int | None:
    """Epochs until every wish is met; of a reduction those of its spread on the
    reversed machine, whose epochs `model` has. None for an all-reduce.
    """
    topology, demand, sends = schedule.topology, schedule.demand, schedule.sends
    if demand.collective == "all_reduce":
        return None
    if demand.reduces:
        topology, demand = spread_of(topology, demand)
        sends = turned_round(sends, float(sends.end.max(initial=0.0)))
    order = np.argsort(sends.start, kind="stable")
    feeder = _feeders(topology, sends.block, sends.link, sends.start, order)
    members: dict[int, list[tuple[int, int]]] = {}
    root: dict[int, tuple[int, int]] = {}
    hop, window, most = (x.tolist() for x in (model.hop, model.window, model.most))
    link, block = sends.link.tolist(), sends.block.tolist()
    for send in order.tolist():
        into = feeder[send]
        first, after = root[into] if into >= 0 else (send, 0)
        members.setdefault(first, []).append((send, after))
        root[send] = first, after + hop[link[send]]
    there = {(b, int(n)): 0 for b, n in enumerate(demand.source)}
    used = [collections.deque[int](maxlen=max(n, 1)) for n in most]
    for first, unit in members.items():
        home = int(topology.sources[link[first]])
        begin = there[block[first], home]
        for send, after in unit:
            past = used[link[send]]
            if past:
                begin = max(begin, past[-1] - after)
            if len(past) == past.maxlen:
                begin = max(begin, past[0] + window[link[send]] - after)
        for send, after in unit:
            used[link[send]].append(begin + after)
            end = int(topology.targets[link[send]])
            place, when = (block[send], end), begin + after + hop[link[send]]
            if topology.stores[end]:
                there[place] = min(there.get(place, when), when)
    wishes = np.argwhere(demand.wanted & topology.stores).tolist()
    return max((there[b, n] for b, n in wishes), default=0)


def _feeders(
    topology: Topology,
    block: Int[np.ndarray, " send"],
    link: Int[np.ndarray, " send"],
    start: Int[np.ndarray, " send"] | np.ndarray,
    order: Int[np.ndarray, " send"],
) -> list[int]:
    """The send into a switch that each send out of it passes on: the last to have come
    in; -1 out of a GPU. Without copy each is passed on once, first in first out."""
    near = 1e-9 * float(np.max(start, initial=0.0))
    came: dict[tuple[int, int], list[tuple[float, int]]] = {}
    feeder = [-1] * len(block)
    arrive = start + topology.latencies[link]
    for send in order.tolist():
        source, target = topology.sources[link[send]], topology.targets[link[send]]
        if not topology.stores[source]:
            pool = came[int(block[send]), int(source)]
            if topology.copies[source]:
                known = [s for t, s in pool if t <= start[send] + near]
                feeder[send] = known[-1] if known else pool[0][1]
            else:
                feeder[send] = pool.pop(0)[1]
        if not topology.stores[target]:
            key = int(block[send]), int(target)
            came.setdefault(key, []).append((float(arrive[send]), send))
    return feeder
