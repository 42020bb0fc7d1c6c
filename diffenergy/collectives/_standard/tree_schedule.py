"""`tree_schedule`: blocks sent over given trees.

A hop from GPU to GPU waits for its data, then for its links. Whichever hop can start
first does; where several could, the one with the longest chain of hops after it, then
the one of the lowest step. Through switches and NICs it is cut-through: all links of a
hop are free when its bytes come by.
"""

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .._demand.demand import Demand
from .._machine.paths import Paths
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends
from .trees import Tree

_MOMENT: Final = 1e-6
"""Starts this near each other, as a share of the shortest hop, are at once."""
_WAKE: Final = 1 << 60
"""In the place of a rank: links that become free come last."""
_Place = tuple[int, int, int]
"""In the line of a link: rank, moment, number of the hop."""
_Use = tuple[int, float, float]
"""Link, and when the bytes come by and have passed, s after the start of the hop."""


@dataclasses.dataclass(frozen=True)
class Course:
    """Hops of one block: which, phase, step, the longest chain of hops that waits for
    each, and the places of those that wait for it."""

    hop: list[int]
    phase: list[int]
    step: list[int]
    ahead: list[int]
    then: list[list[int]]


def course(paths: Paths, inward: Tree | None, outward: Tree | None) -> Course:
    """Hops of a sum on its path `inward` to the root, then of copies `outward`."""
    found = Course([], [], [], [], [])
    brought: dict[int, list[int]] = collections.defaultdict(list)  # to a node: summands
    copied: dict[int, list[int]] = {}  # to a node: the hop of the copy

    def add(source: int, target: int, phase: int, step: int, feeds: list[int]) -> int:
        number = len(found.hop)
        found.hop.append(int(paths.hop[source, target]))
        found.phase.append(phase)
        found.step.append(step)
        found.then.append([])
        for feed in feeds:
            found.then[feed].append(number)
        return number

    first = 1 + max((step for _, _, step in inward.edges), default=0) if inward else 0
    for up, down, step in reversed(inward.edges if inward else ()):
        brought[up].append(add(down, up, 0, first - step, brought[down]))
    for up, down, step in outward.edges if outward else ():
        feeds = copied[up] if up in copied else brought[up]
        phase = 1 if inward else 0
        copied[down] = [add(up, down, phase, first + 1 + step, feeds)]
    found.ahead.extend(0 for _ in found.hop)
    for n in reversed(range(len(found.hop))):  # those that wait come later
        found.ahead[n] = max((1 + found.ahead[m] for m in found.then[n]), default=0)
    return found


def tree_schedule(
    topology: Topology, demand: Demand, paths: Paths, courses: Sequence[Course]
) -> Schedule:
    """Every block sent on its course."""
    hops = [len(one.hop) for one in courses]
    block = np.repeat(np.arange(len(courses)), hops)
    hop = np.array([h for one in courses for h in one.hop], int)
    phase = np.array([p for one in courses for p in one.phase], int)
    step = np.array([s for one in courses for s in one.step], int)
    ahead = np.array([a for one in courses for a in one.ahead], int)
    # Longest chains first, then lower steps.
    rank = (ahead.max(initial=0) - ahead) * (step.max(initial=0) + 1) + step
    size = demand.size[block].astype(float)
    links = paths.links[hop]
    offset, busy = _passing(topology, links, size)
    begins = np.cumsum([0, *hops[:-1]]).tolist()
    then = [
        [begin + after for after in follow]
        for begin, one in zip(begins, courses, strict=True)
        for follow in one.then
    ]
    used = links >= 0
    last = used.sum(1) - 1
    rows = np.arange(len(hop))
    lag = offset[rows, last] + busy[rows, last] + topology.latencies[links[rows, last]]
    uses = zip(links.tolist(), offset.tolist(), (offset + busy).tolist(), strict=True)
    use = [[one for one in zip(*row, strict=True) if one[0] >= 0] for row in uses]
    start = _Timing(use, rank.tolist(), then, lag).run()
    row, column = np.nonzero(used)
    link = links[row, column]
    at = start[row] + offset[row, column]
    end = at + busy[row, column] + topology.latencies[link]
    sends = Sends(block[row], link, at, end, size[row], phase[row])
    return Schedule(topology, demand, sends)


def _passing(
    topology: Topology,
    links: Int[np.ndarray, "send link"],
    size: Float[np.ndarray, " send"],
) -> tuple[Float[np.ndarray, "send link"], Float[np.ndarray, "send link"]]:
    """When the first byte enters each link of a hop after the start, and how long the
    bytes take to enter it; the last byte leaves a relay no earlier than it came."""
    busy = size[:, None] / topology.rates[links]
    offset = np.zeros_like(busy)
    for k in range(1, links.shape[1]):
        wait = np.maximum(busy[:, k - 1] - busy[:, k], 0.0)
        offset[:, k] = offset[:, k - 1] + topology.latencies[links[:, k - 1]] + wait
    return offset, busy


class _Timing:
    """Hops that wait for data, in `queue`, or for a link, in the line of that link; a
    line is woken when its link is free for one of them. Moments are whole ticks."""

    def __init__(
        self,
        use: list[list[_Use]],
        rank: list[int],
        then: list[list[int]],
        lag: Float[np.ndarray, " send"],
    ) -> None:
        self.use, self.rank, self.then = use, rank, then
        after = np.array(list(itertools.chain(*then)), int)
        self.waits = np.bincount(after, minlength=len(use)).tolist()
        self.tick = 1.0 / (_MOMENT * float(lag.min(initial=np.inf)))
        self.lag, self.ready = lag.tolist(), [0.0] * len(use)
        self.start = [0.0] * len(use)
        self.free: dict[int, float] = collections.defaultdict(float)
        self.reach: dict[int, float] = collections.defaultdict(float)
        self.lines: dict[int, list[_Place]] = collections.defaultdict(list)
        self.alarm: dict[int, int] = {}
        self.queue = [(0, rank[n], n) for n, w in enumerate(self.waits) if not w]
        heapq.heapify(self.queue)

    def run(self) -> Float[np.ndarray, " send"]:
        """Start of every hop, s."""
        while self.queue:
            now, order, number = heapq.heappop(self.queue)
            if order == _WAKE:
                self._wake(number, now)
            else:
                self._come(now, order, number)
        return np.array(self.start)

    def _come(self, now: int, rank: int, number: int) -> None:
        """Starts a hop that has its data, or lines it up."""
        for link, _, _ in self.use[number]:
            if self.alarm.get(link) == now:  # others wait for it too
                self._line_up((rank, now, number), link, now)
                return
        link, moment = self._try(number, now)
        if link >= 0:
            self._line_up((rank, now, number), link, moment)

    def _wake(self, link: int, now: int) -> None:
        """Starts the first in a line that can."""
        if self.alarm.get(link) != now:
            return  # another alarm came before
        del self.alarm[link]
        line, back = self.lines[link], list[_Place]()
        soon = now
        while line:
            event = heapq.heappop(line)
            other, moment = self._try(event[2], now)
            if other < 0:
                again = round((self.free[link] - self.reach[link]) * self.tick)
                soon = max(now, again)
                break
            if other == link:
                soon = min(soon, moment) if back else moment
                back.append(event)
            else:
                self._line_up(event, other, moment)
        for event in back:
            heapq.heappush(line, event)
        if line:
            self._set_alarm(link, soon)

    def _line_up(self, event: _Place, link: int, moment: int) -> None:
        heapq.heappush(self.lines[link], event)
        low = next(low for number, low, _ in self.use[event[2]] if number == link)
        self.reach[link] = max(self.reach[link], low)
        self._set_alarm(link, moment)

    def _set_alarm(self, link: int, moment: int) -> None:
        if link not in self.alarm or moment < self.alarm[link]:
            self.alarm[link] = moment
            heapq.heappush(self.queue, (moment, _WAKE, link))

    def _try(self, n: int, now: int) -> tuple[int, int]:
        """Starts hop `n` if its links are free; else the last of them and when."""
        free, begin, last = self.free, self.ready[n], -1
        for link, low, _ in self.use[n]:
            soonest = free[link] - low
            if soonest > begin:
                begin, last = soonest, link
        moment = round(begin * self.tick)
        if moment > now and last >= 0:
            return last, moment
        self.start[n] = begin
        for link, _, high in self.use[n]:
            free[link] = begin + high
        there = begin + self.lag[n]
        for after in self.then[n]:
            self.ready[after] = max(self.ready[after], there)
            self.waits[after] -= 1
            if not self.waits[after]:
                moment = round(self.ready[after] * self.tick)
                heapq.heappush(self.queue, (moment, self.rank[after], after))
        return -1, now
