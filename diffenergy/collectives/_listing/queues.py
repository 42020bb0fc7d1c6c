"""List scheduling of blocks with one taker each, in continuous time.

A block that has come to a GPU picks the next way that gets it home soonest, counting
what already waits for the way's slowest link, and queues there; a free link takes the
block with the longest way still to go. Blocks move whole.
"""

import dataclasses
import functools
import heapq
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .._machine.routes import Routes, distances, routes, second_clock
from .._machine.topology import Topology

_ALIKE: Final = 1e-6
"""Times this near each other, relatively, are a tie."""


@dataclasses.dataclass(frozen=True)
class Errands:
    """Blocks: where each is, where it is wanted, and its size in B."""

    source: Int[np.ndarray, " block"]
    taker: Int[np.ndarray, " block"]
    size: Float[np.ndarray, " block"]


@dataclasses.dataclass(frozen=True)
class Trips:
    """Sends of whole blocks in s, in any order, and the finish."""

    link: Int[np.ndarray, " send"]
    block: Int[np.ndarray, " send"]
    start: Float[np.ndarray, " send"]
    finish: float


def queue_schedule(topology: Topology, errands: Errands, seed: int) -> Trips:
    """Trips of all blocks; ties are broken at random."""
    return _Queues(topology, errands, seed).run()


def _turns(
    topology: Topology, errands: Errands, seed: int, rng: np.random.Generator
) -> list[int]:
    """Who goes first among equals: each GPU serves the next one up first in turn for
    seed 0 (no two send to the same GPU at a time), at random for others."""
    count = len(errands.size)
    if seed:
        return rng.permutation(count).tolist()
    rank = np.full(len(topology.nodes), 0)
    rank[topology.gpus] = np.arange(len(topology.gpus))
    shift = (rank[errands.taker] - rank[errands.source]) % len(topology.gpus)
    turn = np.empty(count, int)
    turn[np.argsort(shift, kind="stable")] = np.arange(count)
    return turn.tolist()


class _Queues:
    """Links with their queues, and the events to come."""

    def __init__(self, topology: Topology, errands: Errands, seed: int):
        rng = np.random.default_rng(seed)
        self.errands = errands
        clock = second_clock(topology, float(errands.size.mean()))
        self.routes: Routes = routes(topology, clock)
        self.way = distances(topology, clock)
        self.rate = topology.rates.tolist()
        self.latency = topology.latencies.tolist()
        self.free = [0.0] * len(self.rate)
        self.backlog = [0.0] * len(self.rate)
        self.queue: list[list[tuple[float, int, int, int]]] = [[] for _ in self.rate]
        self.asleep = [True] * len(self.rate)
        self.paths = [[int(n) for n in row if n >= 0] for row in self.routes.links]
        self.slowest = [min(path, key=self.rate.__getitem__) for path in self.paths]
        self.log: list[tuple[int, int, float]] = []
        self.turn = _turns(topology, errands, seed, rng)
        self.events: list[tuple[float, int, int, int]] = [
            (0.0, turn, block, int(errands.source[block]))
            for block, turn in enumerate(self.turn)
        ]
        heapq.heapify(self.events)
        self.finish = 0.0
        self.any = lambda: rng.uniform(1, 1 + _ALIKE)
        self.soon = 1e-9 * float(clock.arrive.max())

    def run(self) -> Trips:
        """Work off all events: arrivals (a turn >= 0) before links that wake (-1 as
        node) at the same time."""
        wake = len(self.turn)
        while self.events:
            now, turn, what, node = heapq.heappop(self.events)
            if turn == wake:
                self._serve(what, now)
            elif node == self.errands.taker[what]:
                self.finish = max(self.finish, now)
            else:
                self._join(what, node, now)
        link, block, start = zip(*self.log, strict=True) if self.log else ((), (), ())
        return Trips(
            np.array(link, int), np.array(block, int), np.array(start), self.finish
        )

    @functools.cache  # noqa: B019
    def _choices(
        self, node: int, taker: int
    ) -> tuple[tuple[int, int, float, float], ...]:
        """Ways out of `node` that end nearer to `taker`: (way, slowest link, time to
        the taker, time still to go at the end of the way)."""
        here = self.way[node, taker]
        ways = np.flatnonzero(self.routes.source == node)
        left = self.way[self.routes.target[ways], taker]
        return tuple(
            (int(w), self.slowest[w], float(self.routes.arrive[w] + rest), float(rest))
            for w, rest in zip(ways, left, strict=True)
            if rest < here
        )

    def _join(self, block: int, node: int, now: float) -> None:
        choices = self._choices(node, int(self.errands.taker[block]))
        way, link, _, rest = min(
            choices,
            key=lambda c: (max(self.backlog[c[1]], now) + c[2]) * self.any(),
        )
        size = float(self.errands.size[block])
        self.backlog[link] = max(self.backlog[link], now) + size / self.rate[link]
        heapq.heappush(self.queue[link], (-rest, self.turn[block], block, way))
        if self.asleep[link]:
            self.asleep[link] = False
            offsets = self._offsets(self.paths[way], size)
            at = max(now, self.free[link] - offsets[self.paths[way].index(link)])
            heapq.heappush(self.events, (at, len(self.turn), link, -1))

    def _serve(self, link: int, now: float) -> None:
        """Send the first in the queue of `link` as soon as its whole way is free."""
        if not self.queue[link]:
            self.asleep[link] = True
            return
        _, turn, block, way = self._pick(link, now)
        path, size = self.paths[way], float(self.errands.size[block])
        offsets = self._offsets(path, size)
        start = max(
            now, *(self.free[n] - o for n, o in zip(path, offsets, strict=True))
        )
        for n, o in zip(path, offsets, strict=True):
            self.free[n] = start + o + size / self.rate[n]
            self.log.append((n, block, start + o))
        end = start + offsets[-1] + size / self.rate[path[-1]] + self.latency[path[-1]]
        target = int(self.routes.target[way])
        heapq.heappush(self.events, (end, turn, block, target))
        # The next can set out while this one still leaves the relay before the link.
        lead = offsets[path.index(link)]
        again = max(now, self.free[link] - lead)
        heapq.heappush(self.events, (again, len(self.turn), link, -1))

    def _pick(self, link: int, now: float) -> tuple[float, int, int, int]:
        """The first in the queue whose way through relays is free, else the first."""
        queue = self.queue[link]
        if len(self.paths[queue[0][3]]) > 1:
            for errand in sorted(queue):
                path = self.paths[errand[3]]
                offsets = self._offsets(path, float(self.errands.size[errand[2]]))
                if all(
                    self.free[n] <= now + o + self.soon
                    for n, o in zip(path, offsets, strict=True)
                ):
                    queue.remove(errand)
                    heapq.heapify(queue)
                    return errand
        return heapq.heappop(queue)

    def _offsets(self, path: list[int], size: float) -> list[float]:
        """Starts on the links of a way after its start."""
        offsets = [0.0]
        for before, after in zip(path[:-1], path[1:], strict=True):
            lag = max(0.0, size / self.rate[before] - size / self.rate[after])
            offsets.append(offsets[-1] + self.latency[before] + lag)
        return offsets
