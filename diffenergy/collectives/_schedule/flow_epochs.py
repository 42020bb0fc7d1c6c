"""`flow_epochs`: how many epochs a schedule of single-taker blocks takes as a flow.

The epochs are those of the linear program (`lp`): parts of a block move, at most
`capacity` of all blocks together on a link in an epoch, and what enters a link in epoch
k can go on from epoch k + 1 + delay, out of a switch in that very epoch. Blocks that
pass the busiest links go first, then whoever goes first in the schedule, and nobody
waits for those who cannot go.
"""

import dataclasses
import heapq
from typing import Final

import numpy as np
from jaxtyping import Float

from .._machine.epochs import EpochModel
from .schedule import Schedule

_DUST: Final = 1e-9
"""Chunks below which nothing is left to send."""
_BUSY: Final = 0.999
"""Links with this share of the work of the busiest come first with it."""


@dataclasses.dataclass
class _Leg:
    """A block's way from one GPU to the next: each link with the epochs after which it
    is entered, `last` until all of it is passed, chunks still to come and waiting."""

    ways: list[tuple[int, int]]
    last: int
    onward: int
    waiting: float = 0.0


def flow_epochs(schedule: Schedule, model: EpochModel) -> int:
    """Epochs until every wish is met; at least what `lp` finds.

    Raises:
        ValueError: blocks in parts, or with more than one taker.
    """
    demand, sends = schedule.demand, schedule.sends
    if demand.reduces or (demand.wanted.sum(1) > 1).any():
        raise ValueError("`schedule` has blocks that are copied or added up.")
    if (sends.bytes < demand.size[sends.block] * (1 - 1e-6)).any():
        raise ValueError("`schedule` has parts of blocks.")
    legs, first = _legs(schedule, model)
    blocks = demand.size / model.chunk
    start = [(0, rank, float(blocks[block])) for block, rank in first]
    return _run(legs, start, model)


def _legs(
    schedule: Schedule, model: EpochModel
) -> tuple[list[_Leg], list[tuple[int, int]]]:
    """Legs in order of their starts, and the first one of every block."""
    topology, sends = schedule.topology, schedule.sends
    hop = (1 + model.delay).tolist()
    stores = topology.stores[topology.targets[sends.link]].tolist()
    work = np.bincount(sends.link, sends.bytes, len(topology.links)) / topology.rates
    busy = (work >= _BUSY * work.max()).tolist()
    order = np.lexsort((sends.start, sends.block)).tolist()
    link, block = sends.link.tolist(), sends.block.tolist()
    found: list[tuple[float, int, list[tuple[int, int]], int]] = []
    ways: list[tuple[int, int]] = []
    began, after = 0.0, 0
    for send in order:
        if not ways:
            began, after = float(sends.start[send]), 0
        ways.append((link[send], after))
        after += hop[link[send]]
        if stores[send]:
            found.append((began, block[send], ways, after))
            ways = []
    calm = [not any(busy[way] for way, _ in leg[2]) for leg in found]
    ranks = np.lexsort(([leg[0] for leg in found], calm)).tolist()
    place = {number: rank for rank, number in enumerate(ranks)}
    legs: list[_Leg] = []
    for number in ranks:
        _, mine, ways, last = found[number]
        more = number + 1 < len(found) and found[number + 1][1] == mine
        legs.append(_Leg(ways, last, place[number + 1] if more else -1))
    first = [
        (leg[1], place[number])
        for number, leg in enumerate(found)
        if number == 0 or found[number - 1][1] != leg[1]
    ]
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
            if leg.onward >= 0:
                heapq.heappush(coming, (epoch + leg.last, leg.onward, chunks))
            else:
                finish = max(finish, epoch + leg.last)
        epoch += 1
    return finish
