"""List scheduling of blocks with one taker each along ways that are given.

Whatever starts at a moment starts at once on all links up to the next GPU (switches do
not store). Of all blocks that could start, those go first whose way has most before it:
the largest, over the links still to pass, of the work that the link still has plus the
time from it to the taker.
"""

import heapq
from typing import Final

import numpy as np

from .._machine.topology import Topology
from .queues import Errands, Trips

_SAME: Final = 1e-9
"""Times this near each other, relative to a typical one, are one moment."""
_Leg = tuple[list[int], list[float], list[float]]
"""Links up to the next GPU, their starts after the first, and how long each takes."""


def planned_schedule(
    topology: Topology,
    errands: Errands,
    ways: list[list[int]],
    rng: np.random.Generator,
    give_up: float = np.inf,
) -> Trips:
    """Trips of all blocks along `ways`; the finish is infinite if it would be after
    `give_up`."""
    return _Planned(topology, errands, ways, rng, give_up).run()


class _Planned:
    """Links, blocks on their ways, and the events to come."""

    def __init__(
        self,
        topology: Topology,
        errands: Errands,
        ways: list[list[int]],
        rng: np.random.Generator,
        give_up: float,
    ):
        self.give_up = give_up
        self.latency = topology.latencies.tolist()
        self.legs = [
            _legs(topology, way, float(size))
            for way, size in zip(ways, errands.size, strict=True)
        ]
        self.free = [0.0] * len(self.latency)
        self.left = [0.0] * len(self.latency)
        for legs in self.legs:
            for links, _, took in legs:
                for link, time in zip(links, took, strict=True):
                    self.left[link] += time
        self.rest = [_rests(legs, self.latency) for legs in self.legs]
        self.at = [0] * len(ways)
        self.waiting: dict[int, set[int]] = {}
        self.noise = rng.random(len(ways)).tolist()
        self.jitter = float(rng.choice([0.0, 0.02, 0.2])) * max(self.left, default=0.0)
        self.log: list[tuple[int, int, float]] = []
        self.finish = 0.0
        self.soon = _SAME * max(
            (sum(took) for legs in self.legs for _, _, took in legs), default=0.0
        )

    def run(self) -> Trips:
        """Work off all events: blocks that come (0, block) and links to look at (1,
        first link)."""
        events: list[tuple[float, int, int]] = [
            (0.0, 0, block) for block in range(len(self.legs))
        ]
        while events:
            now = events[0][0]
            if now > self.give_up:
                self.finish = np.inf
                break
            look: set[int] = set()
            while events and events[0][0] <= now + self.soon:
                _, kind, what = heapq.heappop(events)
                if kind == 0:
                    first = self.legs[what][self.at[what]][0][0]
                    self.waiting.setdefault(first, set()).add(what)
                    look.add(first)
                else:
                    look.add(what)
            self._start(now, look, events)
        link, block, start = zip(*self.log, strict=True) if self.log else ((), (), ())
        return Trips(
            np.array(link, int),
            np.array(block, int),
            np.array(start, float),
            float(self.finish),
        )

    def _start(
        self, now: float, look: set[int], events: list[tuple[float, int, int]]
    ) -> None:
        """Start what can start on the links to look at, the most pressing first."""
        late = now + self.soon
        ready: list[tuple[float, int]] = []
        for first in look:
            if self.free[first] <= late:
                for block in self.waiting[first]:
                    if self._when(block) <= late:
                        ready.append((-self._press(block), block))
        ready.sort()
        for _, block in ready:
            if self._when(block) <= late:
                self._send(block, now, events)
        for first in look:
            waiting = self.waiting[first]
            if waiting:
                again = self.free[first]
                if again <= late:
                    again = min(self._when(block) for block in waiting)
                heapq.heappush(events, (again, 1, first))

    def _when(self, block: int) -> float:
        """When all links of the next leg are free."""
        links, offset, _ = self.legs[block][self.at[block]]
        if len(links) == 1:
            return self.free[links[0]]
        return max(self.free[n] - o for n, o in zip(links, offset, strict=True))

    def _press(self, block: int) -> float:
        left = self.left
        most = max([left[n] + rest for n, rest in self.rest[block][self.at[block]]])
        return most + self.noise[block] * self.jitter

    def _send(
        self, block: int, now: float, events: list[tuple[float, int, int]]
    ) -> None:
        links, offset, took = self.legs[block][self.at[block]]
        self.waiting[links[0]].discard(block)
        for link, o, time in zip(links, offset, took, strict=True):
            self.free[link] = now + o + time
            self.left[link] -= time
            self.log.append((link, block, now + o))
        end = now + offset[-1] + took[-1] + self.latency[links[-1]]
        self.at[block] += 1
        if self.at[block] < len(self.legs[block]):
            heapq.heappush(events, (end, 0, block))
        else:
            self.finish = max(self.finish, end)


def _legs(topology: Topology, way: list[int], size: float) -> list[_Leg]:
    """The way cut at GPUs."""
    legs: list[_Leg] = []
    links: list[int] = []
    for link in way:
        links.append(link)
        if topology.stores[topology.links[link].target]:
            took = [size / topology.links[n].rate for n in links]
            offset = [0.0]
            for n, (before, after) in enumerate(zip(took[:-1], took[1:], strict=True)):
                lag = max(0.0, before - after)
                offset.append(offset[-1] + topology.links[links[n]].latency + lag)
            legs.append((links, offset, took))
            links = []
    return legs


def _rests(legs: list[_Leg], latency: list[float]) -> list[list[tuple[int, float]]]:
    """For each leg: the links still to pass, each with the time to the taker."""
    found: list[list[tuple[int, float]]] = []
    rest, after = 0.0, list[tuple[int, float]]()
    for links, offset, took in reversed(legs):
        end = offset[-1] + took[-1] + latency[links[-1]] + rest
        pairs = [(n, end - o) for n, o in zip(links, offset, strict=True)]
        after = pairs + after
        found.append(after)
        rest = end
    return found[::-1]
