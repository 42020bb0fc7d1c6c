"""List scheduling of blocks with one taker each, in continuous time; blocks move whole.

`Queues`: a block that has come to a GPU picks the next path that gets it home
soonest, counting what already waits for the path's slowest link, and queues there; a
free link takes the block with the longest path still to go.

`Planned`: the paths are given. Of all blocks that could start, those go first
whose path has most before it: the largest, over the links still to pass, of the work
that the link still has plus the time from it to the taker.
"""

import dataclasses
import functools
import heapq
import itertools
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .._machine.routes import Routes, distances, routes, second_clock
from .._machine.topology import Topology
from .list_schedule import Plan

_ALIKE: Final = 1e-6
"""Times this near each other, relatively, are a tie."""
_SAME: Final = 1e-9
"""Times this near each other, relative to a typical one, are one moment."""


@dataclasses.dataclass(frozen=True)
class Requests:
    """Blocks: where each is, where it is wanted, and its size in B."""

    source: Int[np.ndarray, " block"]
    taker: Int[np.ndarray, " block"]
    size: Float[np.ndarray, " block"]


class _Leg:
    """Links up to the next GPU, which a block enters at once (switches do not store):
    starts after the first, s that it takes on each, latency of the last."""

    def __init__(self, topology: Topology, links: list[int], size: float):
        latency = [topology.links[n].latency for n in links]
        self.links, self.latency = links, latency[-1]
        self.took = [size / topology.links[n].rate for n in links]
        self.offset = [0.0]
        for wait, (before, after) in zip(
            latency[:-1], itertools.pairwise(self.took), strict=True
        ):
            self.offset.append(self.offset[-1] + wait + max(0.0, before - after))

    def there(self, start: float) -> float:
        """When the last byte has arrived."""
        return start + self.offset[-1] + self.took[-1] + self.latency


class _Traffic:
    """Links with when each is free, and the sends so far."""

    def __init__(self, topology: Topology, requests: Requests):
        self.topology, self.requests = topology, requests
        self.free = [0.0] * len(topology.links)
        self.log: list[tuple[int, int, float]] = []
        self.finish = 0.0

    def when(self, leg: _Leg) -> float:
        """When all links of a leg are free."""
        if len(leg.links) == 1:
            return self.free[leg.links[0]]
        return max(self.free[n] - o for n, o in zip(leg.links, leg.offset, strict=True))

    def send(self, block: int, leg: _Leg, start: float) -> float:
        """Takes the links; when the block has arrived."""
        for link, after, took in zip(leg.links, leg.offset, leg.took, strict=True):
            self.free[link] = start + after + took
            self.log.append((link, block, start + after))
        return leg.there(start)

    def plan(self) -> Plan:
        """The sends so far."""
        columns = zip(*self.log, strict=True) if self.log else ((), (), ())
        link, block, start = (np.array(column) for column in columns)
        link, block = link.astype(int), block.astype(int)
        took = self.requests.size[block] / self.topology.rates[link]
        end = start + (took + self.topology.latencies[link])
        return Plan(link, block, start, end, float(self.finish))


def _turns(
    topology: Topology, requests: Requests, seed: int, rng: np.random.Generator
) -> list[int]:
    """Who goes first among equals: each GPU serves the next one up first in turn for
    seed 0 (no two send to the same GPU at a time), at random for others."""
    count = len(requests.size)
    if seed:
        return rng.permutation(count).tolist()
    rank = np.full(len(topology.nodes), 0)
    rank[topology.gpus] = np.arange(len(topology.gpus))
    shift = (rank[requests.taker] - rank[requests.source]) % len(topology.gpus)
    return np.argsort(np.argsort(shift, kind="stable")).tolist()


class Queues(_Traffic):
    """Links with their queues, and the events to come; ties are broken at random."""

    def __init__(self, topology: Topology, requests: Requests, seed: int):
        super().__init__(topology, requests)
        rng = np.random.default_rng(seed)
        clock = second_clock(topology, float(requests.size.mean()))
        self.routes: Routes = routes(topology, clock)
        self.away = distances(topology, clock)
        self.rate = topology.rates.tolist()
        self.backlog = [0.0] * len(self.rate)
        self.queue: list[list[tuple[float, int, int, int]]] = [[] for _ in self.rate]
        self.asleep = [True] * len(self.rate)
        self.links = [[int(n) for n in row if n >= 0] for row in self.routes.links]
        self.slowest = [min(row, key=self.rate.__getitem__) for row in self.links]
        self.turn = _turns(topology, requests, seed, rng)
        self.events: list[tuple[float, int, int, int]] = [
            (0.0, turn, block, int(requests.source[block]))
            for block, turn in enumerate(self.turn)
        ]
        heapq.heapify(self.events)
        self.any = lambda: rng.uniform(1, 1 + _ALIKE)
        self.soon = _SAME * float(clock.arrive.max())

    def run(self) -> Plan:
        """Sends of all blocks: works off all events, arrivals (a turn >= 0) before
        links that wake (-1 as node) at the same time."""
        wake = len(self.turn)
        while self.events:
            now, turn, what, node = heapq.heappop(self.events)
            if turn == wake:
                self._serve(what, now)
            elif node == self.requests.taker[what]:
                self.finish = max(self.finish, now)
            else:
                self._join(what, node, now)
        return self.plan()

    @functools.cache  # noqa: B019
    def _choices(
        self, node: int, taker: int
    ) -> tuple[tuple[int, int, float, float], ...]:
        """Paths out of `node` that end nearer to `taker`: (path, slowest link, time to
        the taker, time still to go at the end of the path)."""
        here = self.away[node, taker]
        paths = np.flatnonzero(self.routes.source == node)
        left = self.away[self.routes.target[paths], taker]
        return tuple(
            (int(w), self.slowest[w], float(self.routes.arrive[w] + rest), float(rest))
            for w, rest in zip(paths, left, strict=True)
            if rest < here
        )

    @functools.cache  # noqa: B019
    def _leg(self, path: int, size: float) -> _Leg:
        return _Leg(self.topology, self.links[path], size)

    def _join(self, block: int, node: int, now: float) -> None:
        choices = self._choices(node, int(self.requests.taker[block]))
        path, link, _, rest = min(
            choices,
            key=lambda c: (max(self.backlog[c[1]], now) + c[2]) * self.any(),
        )
        size = float(self.requests.size[block])
        self.backlog[link] = max(self.backlog[link], now) + size / self.rate[link]
        heapq.heappush(self.queue[link], (-rest, self.turn[block], block, path))
        if self.asleep[link]:
            self.asleep[link] = False
            self._wake(link, self._leg(path, size), now)

    def _wake(self, link: int, leg: _Leg, now: float) -> None:
        """Looks again when a block can set out that comes to `link` as it gets free."""
        at = max(now, self.free[link] - leg.offset[leg.links.index(link)])
        heapq.heappush(self.events, (at, len(self.turn), link, -1))

    def _serve(self, link: int, now: float) -> None:
        """Send the first in the queue of `link` as soon as its whole path is free."""
        if not self.queue[link]:
            self.asleep[link] = True
            return
        _, turn, block, path = self._pick(link, now)
        leg = self._leg(path, float(self.requests.size[block]))
        end = self.send(block, leg, max(now, self.when(leg)))
        target = int(self.routes.target[path])
        heapq.heappush(self.events, (end, turn, block, target))
        # The next can set out while this one still leaves the relay before the link.
        self._wake(link, leg, now)

    def _pick(self, link: int, now: float) -> tuple[float, int, int, int]:
        """The first in the queue whose path through relays is free, else the first."""
        queue = self.queue[link]
        if len(self.links[queue[0][3]]) > 1:
            for request in sorted(queue):
                leg = self._leg(request[3], float(self.requests.size[request[2]]))
                if self.when(leg) <= now + self.soon:
                    queue.remove(request)
                    heapq.heapify(queue)
                    return request
        return heapq.heappop(queue)


class Planned(_Traffic):
    """Links, blocks on their `paths`, and the events to come."""

    def __init__(
        self,
        topology: Topology,
        requests: Requests,
        paths: list[list[int]],
        rng: np.random.Generator,
        give_up: float,
    ):
        super().__init__(topology, requests)
        self.give_up = give_up
        self.legs = [
            _legs(topology, path, float(size))
            for path, size in zip(paths, requests.size, strict=True)
        ]
        self.left = [0.0] * len(topology.links)
        for leg in itertools.chain(*self.legs):
            for link, time in zip(leg.links, leg.took, strict=True):
                self.left[link] += time
        self.rest = [_rests(legs) for legs in self.legs]
        self.at = [0] * len(paths)
        self.waiting: dict[int, set[int]] = {}
        self.noise = rng.random(len(paths)).tolist()
        self.jitter = float(rng.choice([0.0, 0.02, 0.2])) * max(self.left, default=0.0)
        longest = (sum(leg.took) for leg in itertools.chain(*self.legs))
        self.soon = _SAME * max(longest, default=0.0)

    def run(self) -> Plan:
        """Sends of all blocks; the finish is infinite if it would be after `give_up`.
        Works off all events: blocks that come (0, block) and links to look at (1, first
        link)."""
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
                    first = self.legs[what][self.at[what]].links[0]
                    self.waiting.setdefault(first, set()).add(what)
                    look.add(first)
                else:
                    look.add(what)
            self._start(now, look, events)
        return self.plan()

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
                self._set_out(block, now, events)
        for first in look:
            waiting = self.waiting[first]
            if waiting:
                again = self.free[first]
                if again <= late:
                    again = min(self._when(block) for block in waiting)
                heapq.heappush(events, (again, 1, first))

    def _when(self, block: int) -> float:
        return self.when(self.legs[block][self.at[block]])

    def _press(self, block: int) -> float:
        left = self.left
        most = max([left[n] + rest for n, rest in self.rest[block][self.at[block]]])
        return most + self.noise[block] * self.jitter

    def _set_out(
        self, block: int, now: float, events: list[tuple[float, int, int]]
    ) -> None:
        leg = self.legs[block][self.at[block]]
        self.waiting[leg.links[0]].discard(block)
        for link, time in zip(leg.links, leg.took, strict=True):
            self.left[link] -= time
        end = self.send(block, leg, now)
        self.at[block] += 1
        if self.at[block] < len(self.legs[block]):
            heapq.heappush(events, (end, 0, block))
        else:
            self.finish = max(self.finish, end)


def _legs(topology: Topology, path: list[int], size: float) -> list[_Leg]:
    """The path cut at GPUs."""
    ends = [
        n + 1 for n, link in enumerate(path) if topology.stores[topology.targets[link]]
    ]
    cuts = itertools.pairwise([0, *ends])
    return [_Leg(topology, path[low:high], size) for low, high in cuts]


def _rests(legs: list[_Leg]) -> list[list[tuple[int, float]]]:
    """For each leg: the links still to pass, each with the time to the taker."""
    found: list[list[tuple[int, float]]] = []
    rest, after = 0.0, list[tuple[int, float]]()
    for leg in reversed(legs):
        rest = leg.there(0.0) + rest
        after = [
            (n, rest - o) for n, o in zip(leg.links, leg.offset, strict=True)
        ] + after
        found.append(after)
    return found[::-1]


# --- `balanced_paths`: a path for every block with one taker that fills no link too
# much.
#
# Blocks choose the cheapest path one after the other, and again in later rounds with
# all others where they are. A link costs its time for the block, times how full it is
# to a high power, so that the fullest link counts most (the p-norm of the links' work).

_POWER: Final = 7
"""Of how full a link is, in its price."""
_FLAT: Final = 0.02
"""Price of a link's time where nothing else passes it."""
_ROUNDS: Final = 8
"""How often each block chooses."""


def balanced_paths(
    topology: Topology,
    requests: Requests,
    rng: np.random.Generator,
    wobble: float = 0.0,
) -> list[list[int]]:
    """Links along the path of each block. `wobble`: most by which prices are off in the
    first round, as a share, so that calls end at different paths."""
    rates, latencies = topology.rates.tolist(), topology.latencies.tolist()
    ahead: list[list[tuple[int, int]]] = [[] for _ in topology.nodes]
    for number, link in enumerate(topology.links):
        ahead[link.source].append((link.target, number))
    work = np.zeros(len(rates)).tolist()
    source, taker, size = requests.source, requests.taker, requests.size
    least = _least_work(topology, requests)
    paths: list[list[int]] = [[] for _ in source]
    for turn in range(_ROUNDS):
        off = wobble * max(0.0, 1 - 2 * turn / _ROUNDS)
        slow = (topology.rates / (1 + off * rng.random(len(rates)))).tolist()

        def toll(
            link: int, mine: float, slow: list[float] = slow, begin: float = least
        ) -> float:
            took = mine / slow[link]
            full = (work[link] + took) / begin
            return latencies[link] + took * (_FLAT + full**_POWER)

        changed, priced, price = False, -1.0, list[float]()
        for block in rng.permutation(len(source)).tolist():
            old, mine = paths[block], float(size[block])
            for link in old:
                work[link] -= mine / rates[link]
            if mine != priced:
                price, priced = [toll(n, mine) for n in range(len(rates))], mine
            for link in old:
                price[link] = toll(link, mine)
            path = _cheapest(ahead, price, int(source[block]), int(taker[block]))
            changed |= path != old
            paths[block] = path
            for link in path:
                work[link] += mine / rates[link]
                price[link] = toll(link, mine)
        if not changed:
            break
        least = max(least, 0.95 * max(work))
    return paths


def _least_work(topology: Topology, requests: Requests) -> float:
    """s that the busiest GPU's links need at least for what leaves or comes: where
    prices begin to rise."""
    nodes = len(topology.nodes)
    out = np.bincount(topology.sources, topology.rates, nodes)
    into = np.bincount(topology.targets, topology.rates, nodes)
    source, taker, size = requests.source, requests.taker, requests.size
    gone = np.bincount(source, size, nodes)[source] / out[source]
    come = np.bincount(taker, size, nodes)[taker] / into[taker]
    return float(max(gone.max(), come.max()))


def _cheapest(
    ahead: list[list[tuple[int, int]]], price: list[float], start: int, end: int
) -> list[int]:
    """Links of the cheapest path."""
    best = {start: 0.0}
    came: dict[int, tuple[int, int]] = {}
    queue = [(0.0, start)]
    done: set[int] = set()
    while queue:
        cost, node = heapq.heappop(queue)
        if node == end:
            break
        if node in done:
            continue
        done.add(node)
        for target, link in ahead[node]:
            reach = cost + price[link]
            if reach < best.get(target, np.inf):
                best[target] = reach
                came[target] = (node, link)
                heapq.heappush(queue, (reach, target))
    path: list[int] = []
    while end != start:
        end, link = came[end]
        path.append(link)
    return path[::-1]
