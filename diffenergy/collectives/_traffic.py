"""`Traffic`: hops from GPU to GPU that share links, played event by event.

A hop waits for its data, then for its links. Whichever can start first does; where
several could, the one of the lowest rank. Through switches and NICs it is cut-through:
all links of a hop are free when its bytes come by.
"""

import abc
import collections
import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ._topology import Topology

_ARRIVAL, _WAKE, _READY = range(3)
"""Kinds of events in the order in which those of one moment come: data, links that
become free, then the hops that both let go, by rank."""


@dataclasses.dataclass(frozen=True)
class Leg:
    """Links from a GPU to the next one, which a block enters as its bytes come by.

    `use`: each link, and when the bytes come by and have passed, s after the start;
    `lag`: s from the start until the last byte has arrived.
    """

    use: tuple[tuple[int, float, float], ...]
    lag: float


def leg_over(topology: Topology, links: Sequence[int], size: float) -> Leg:
    """The leg of a block of `size` B: its last byte leaves a relay no earlier than it
    came."""
    offset, use = 0.0, list[tuple[int, float, float]]()
    before, latency = 0.0, 0.0
    for number in links:
        link = topology.links[number]
        busy = size / link.rate
        if use:
            offset += latency + max(before - busy, 0.0)
        use.append((number, offset, offset + busy))
        before, latency = busy, link.latency
    return Leg(tuple(use), offset + before + latency)


class Traffic(abc.ABC):
    """Hops by number; who uses it says what follows: `leg_of`, `rank` and `sent`.

    Hops wait for data in the queue of events, or for a link in the line of that link; a
    line is woken when its link is free for one of them. Moments are whole ticks of
    `soon` s.
    """

    def __init__(self, topology: Topology, soon: float) -> None:
        self.topology, self.tick = topology, 1.0 / soon
        self.free = [0.0] * len(topology.links)
        self.finish = 0.0
        self._log: list[tuple[int, Leg, float]] = []
        self._ready: dict[int, float] = {}
        self._legs: dict[int, Leg] = {}
        self._reach: dict[int, float] = collections.defaultdict(float)
        self._lines: dict[int, list[tuple[Any, int, int]]] = {}
        self._line_of: dict[int, int] = {}
        self._alarm: dict[int, int] = {}
        self._events: list[tuple[int, int, Any, int]] = []

    # --- what a user of it says

    @abc.abstractmethod
    def leg_of(self, hop: int, now: float) -> Leg:
        """Leg of a hop; called when its data has arrived."""

    @abc.abstractmethod
    def rank(self, hop: int) -> Any:
        """Priority on a link, lowest first. It may rise while a hop waits."""

    @abc.abstractmethod
    def sent(self, hop: int, leg: Leg, there: float) -> None:
        """Called when a hop has started; it arrives at `there` s."""

    # --- events

    def bring(self, hop: int, at: float, turn: int = 0) -> None:
        """The data of a hop is there at `at` s; `turn`: its place among those whose
        data comes at the same moment."""
        self._ready[hop] = at
        moment = round(at * self.tick)
        heapq.heappush(self._events, (moment, _ARRIVAL, turn, hop))

    def run(self, give_up: float = np.inf) -> None:
        """Plays all hops; the finish is infinite if it would be after `give_up` s."""
        latest = give_up * self.tick + 1
        while self._events:
            now, kind, _, number = heapq.heappop(self._events)
            if now > latest:
                self.finish = np.inf
                return
            if kind == _ARRIVAL:
                self._legs[number] = self.leg_of(number, self._ready[number])
                heapq.heappush(self._events, (now, _READY, self.rank(number), number))
            elif kind == _WAKE:
                self._wake(number, now)
            else:
                self._start(number, now)

    def passed(
        self,
    ) -> tuple[
        Int[np.ndarray, " send"],
        Int[np.ndarray, " send"],
        Float[np.ndarray, " send"],
        Float[np.ndarray, " send"],
    ]:
        """Hop, link, start and end (s) of all sends, by number of the hop."""
        rows = [
            (hop, link, start + low, high - low)
            for hop, leg, start in self._log
            for link, low, high in leg.use
        ]
        rows.sort(key=lambda row: row[0])
        columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        hop, link, start, busy = (np.array(column) for column in columns)
        hop, link = hop.astype(int), link.astype(int)
        return hop, link, start, start + busy + self.topology.latencies[link]

    def _wake(self, link: int, now: int) -> None:
        """Starts the first hop in a line that the link is free for."""
        if self._alarm.get(link) != now:
            return  # another alarm came before
        del self._alarm[link]
        line, back = self._lines[link], list[tuple[Any, int, int]]()
        soon = 0
        while line:
            place = heapq.heappop(line)
            rank = self.rank(place[2])
            if rank > place[0]:  # it has risen meanwhile
                heapq.heappush(line, (rank, *place[1:]))
                continue
            moment = round((self.free[link] - self._low(place[2], link)) * self.tick)
            if moment <= now:
                self._line_of[place[2]] = link
                heapq.heappush(self._events, (now, _READY, place[0], place[2]))
                break
            soon = min(soon, moment) if back else moment
            back.append(place)
        else:
            if back:
                self._set_alarm(link, soon)
        for place in back:
            heapq.heappush(line, place)

    def _start(self, hop: int, now: int) -> None:
        """Starts a hop that has its data, or lines it up; the next in the line that it
        came from is let go."""
        line = self._line_of.pop(hop, -1)
        link, moment = self._try(hop, now)
        if link >= 0:
            self._line_up((self.rank(hop), now, hop), link, moment)
        if self._lines.get(line):
            again = round((self.free[line] - self._reach[line]) * self.tick)
            self._set_alarm(line, max(now, again))

    def _line_up(self, place: tuple[Any, int, int], link: int, moment: int) -> None:
        heapq.heappush(self._lines.setdefault(link, []), place)
        self._reach[link] = max(self._reach[link], self._low(place[2], link))
        self._set_alarm(link, moment)

    def _low(self, hop: int, link: int) -> float:
        """When the bytes of a hop come by a link, s after its start."""
        return next(low for number, low, _ in self._legs[hop].use if number == link)

    def _set_alarm(self, link: int, moment: int) -> None:
        if link not in self._alarm or moment < self._alarm[link]:
            self._alarm[link] = moment
            heapq.heappush(self._events, (moment, _WAKE, 0, link))

    def _try(self, hop: int, now: int) -> tuple[int, int]:
        """Starts a hop if its links are free; else the last of them and when."""
        free, begin, last = self.free, self._ready[hop], -1
        leg = self._legs[hop]
        for link, low, _ in leg.use:
            soonest = free[link] - low
            if soonest > begin:
                begin, last = soonest, link
        moment = round(begin * self.tick)
        if moment > now and last >= 0:
            return last, moment
        for link, _, high in leg.use:
            free[link] = begin + high
        there = begin + leg.lag
        self._log.append((hop, leg, begin))
        self.finish = max(self.finish, there)
        self.sent(hop, leg, there)
        return -1, now
