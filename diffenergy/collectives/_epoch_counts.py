"""How many epochs (`EpochModel`) a schedule takes.

`whole_epochs`: whole chunks. The orders of the links are kept; every send begins in the
earliest epoch that its data and the link's windows allow, out of a switch in the very
epoch of arrival.

`flow_epochs`: blocks with one taker as the flow of the linear program (`lp`). Parts of
a block move, at most `capacity` of all blocks together on a link in an epoch, and what
enters a link in epoch k can go on from epoch k + 1 + delay, out of a switch in that
very epoch. Blocks that pass the busiest links go first, then whoever goes first in the
schedule, and nobody waits for those who cannot go.
"""

import collections
import dataclasses
import heapq
from typing import Final

import numpy as np
from jaxtyping import Float

from ._routes import EpochModel
from ._schedule import Schedule
from ._time_reversal import reversed_in_time, spread_of

_DUST: Final = 1e-9
"""Chunks below which nothing is left to send."""
_BUSY: Final = 0.999
"""Links with this share of the work of the busiest come first with it."""


def whole_epochs(schedule: Schedule, model: EpochModel) -> int | None:
    """Epochs until every wish is met; of a reduction those of its spread on the
    reversed machine, whose epochs `model` has. None for an all-reduce.
    """
    if schedule.demand.collective == "all_reduce":
        return None
    if schedule.demand.reduces:
        turned = spread_of(schedule.topology, schedule.demand)
        backwards = reversed_in_time(schedule.sends, schedule.last_end)
        schedule = Schedule(*turned, backwards)
    topology, demand, sends = schedule.topology, schedule.demand, schedule.sends
    order = np.argsort(sends.start, kind="stable").tolist()
    feeder = _feeders(schedule, order)
    members: dict[int, list[tuple[int, int]]] = {}
    root: dict[int, tuple[int, int]] = {}
    hop, window, most = (x.tolist() for x in (model.hop, model.window, model.most))
    link, block = sends.link.tolist(), sends.block.tolist()
    for send in order:
        into = feeder[send]
        first, after = root[into] if into >= 0 else (send, 0)
        members.setdefault(first, []).append((send, after))
        root[send] = first, after + hop[link[send]]
    there = {(b, int(n)): 0 for b, n in enumerate(demand.source)}
    used = [collections.deque[int](maxlen=max(n, 1)) for n in most]
    for first, unit in members.items():
        home = int(schedule.sources[first])
        begin = there[block[first], home]
        for send, after in unit:
            past = used[link[send]]
            if past:
                begin = max(begin, past[-1] - after)
            if len(past) == past.maxlen:
                begin = max(begin, past[0] + window[link[send]] - after)
        for send, after in unit:
            used[link[send]].append(begin + after)
            end = int(schedule.targets[send])
            place, when = (block[send], end), begin + after + hop[link[send]]
            if topology.stores[end]:
                there[place] = min(there.get(place, when), when)
    wishes = np.argwhere(demand.wanted & topology.stores).tolist()
    return max((there[b, n] for b, n in wishes), default=0)


def _feeders(schedule: Schedule, order: list[int]) -> list[int]:
    """The send into a switch that each send out of it passes on: the last to have come
    in; -1 out of a GPU. Without copy each is passed on once, first in first out.
    `order`: sends by their starts."""
    topology, block = schedule.topology, schedule.sends.block
    start = schedule.sends.start
    near = 1e-9 * float(np.max(start, initial=0.0))
    came: dict[tuple[int, int], list[tuple[float, int]]] = {}
    feeder = [-1] * len(block)
    arrive = start + topology.latencies[schedule.sends.link]
    for send in order:
        source, target = schedule.sources[send], schedule.targets[send]
        if not topology.stores[source]:
            pool = came[int(block[send]), int(source)]
            if topology.copies[source]:
                in_time = [s for t, s in pool if t <= start[send] + near]
                feeder[send] = in_time[-1] if in_time else pool[0][1]
            else:
                feeder[send] = pool.pop(0)[1]
        if not topology.stores[target]:
            key = int(block[send]), int(target)
            came.setdefault(key, []).append((float(arrive[send]), send))
    return feeder


def flow_epochs(schedule: Schedule, model: EpochModel) -> int:
    """Epochs until every wish is met, of whole blocks with one taker; at least what
    `lp` finds."""
    blocks = schedule.demand.size / model.chunk
    legs, first = _legs(schedule, model)
    return _run(legs, [(0, leg.rank, float(blocks[leg.block])) for leg in first], model)


@dataclasses.dataclass
class _Leg:
    """A block's way from one GPU to the next: when it begins, s; each link with the
    epochs after which it is entered, `last` until all of it is passed; whose turn it
    is, the leg after it, and the chunks that wait."""

    block: int
    began: float
    ways: list[tuple[int, int]]
    last: int
    rank: int = 0
    onward: "_Leg | None" = None
    waiting: float = 0.0


def _legs(schedule: Schedule, model: EpochModel) -> tuple[list[_Leg], list[_Leg]]:
    """Legs in order of their ranks, and the first one of every block."""
    topology, sends = schedule.topology, schedule.sends
    hop = model.part_hop.tolist()
    stores = topology.stores[schedule.targets].tolist()
    work = np.bincount(sends.link, sends.bytes, len(topology.links)) / topology.rates
    busy = (work >= _BUSY * work.max()).tolist()
    link, block = sends.link.tolist(), sends.block.tolist()
    legs: list[_Leg] = []
    first: list[_Leg] = []
    leg: _Leg | None = None
    for send in np.lexsort((sends.start, sends.block)).tolist():
        leg = leg or _Leg(block[send], float(sends.start[send]), [], 0)
        leg.ways.append((link[send], leg.last))
        leg.last += hop[link[send]]
        if stores[send]:
            if legs and legs[-1].block == leg.block:
                legs[-1].onward = leg
            else:
                first.append(leg)
            legs.append(leg)
            leg = None
    legs.sort(key=lambda leg: (not any(busy[n] for n, _ in leg.ways), leg.began))
    for rank, leg in enumerate(legs):
        leg.rank = rank
    return legs, first


def _run(
    legs: list[_Leg], start: list[tuple[int, int, float]], model: EpochModel
) -> int:
    """Epoch by epoch, what is ready goes in order of its leg as far as links have room
    (heap of (epoch, leg, chunks that come))."""
    heapq.heapify(start)
    coming, active, epoch, finish = start, set[int](), 0, 0
    used: dict[tuple[int, int], float] = {}
    room: Float[np.ndarray, " link"] = model.capacity
    while coming or active:
        if not active:
            epoch = max(epoch, coming[0][0])
        while coming and coming[0][0] <= epoch:
            _, leg, chunks = heapq.heappop(coming)
            legs[leg].waiting += chunks
            active.add(leg)
        for number in sorted(active):
            leg = legs[number]
            spots = [(link, epoch + after) for link, after in leg.ways]
            free = min(room[spot[0]] - used.get(spot, 0.0) for spot in spots)
            chunks = min(float(free), leg.waiting)
            if chunks <= _DUST:
                continue
            for spot in spots:
                used[spot] = used.get(spot, 0.0) + chunks
            leg.waiting -= chunks
            if leg.waiting <= _DUST:
                active.discard(number)
            if leg.onward is not None:
                heapq.heappush(coming, (epoch + leg.last, leg.onward.rank, chunks))
            else:
                finish = max(finish, epoch + leg.last)
        epoch += 1
    return finish
