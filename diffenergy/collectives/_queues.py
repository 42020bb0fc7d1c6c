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

from ._list_schedule import Plan
from ._routes import Routes, distances, routes, second_clock
from ._topology import Topology
from ._traffic import Leg, Traffic, leg_over

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


class _Blocks(Traffic):
    """Blocks with one taker, a hop of each at a time; its number is the block's."""

    def __init__(self, topology: Topology, requests: Requests, soon: float) -> None:
        super().__init__(topology, soon)
        self.requests = requests

    def plan(self, give_up: float = np.inf) -> Plan:
        """Plays all blocks and returns their sends."""
        self.run(give_up)
        block, link, start, end = self.passed()
        return Plan(link, block, start, end, float(self.finish))


class Queues(_Blocks):
    """Blocks that choose paths as they go; ties are broken at random."""

    def __init__(self, topology: Topology, requests: Requests, seed: int):
        rng = np.random.default_rng(seed)
        clock = second_clock(topology, float(requests.size.mean()))
        super().__init__(topology, requests, _SAME * float(clock.arrive.max()))
        self.routes: Routes = routes(topology, clock)
        self.away = distances(topology, clock)
        self.rate = topology.rates.tolist()
        self.backlog = [0.0] * len(self.rate)
        self.links = [[int(n) for n in row if n >= 0] for row in self.routes.links]
        self.slowest = [min(row, key=self.rate.__getitem__) for row in self.links]
        self.turn = _turns(topology, requests, seed, rng)
        self.any = lambda: rng.uniform(1, 1 + _ALIKE)
        self.at = requests.source.tolist()
        self.rest = [0.0] * len(self.turn)
        for block, turn in enumerate(self.turn):
            self.bring(block, 0.0, turn)

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
    def _leg(self, path: int, size: float) -> Leg:
        return leg_over(self.topology, self.links[path], size)

    def leg_of(self, hop: int, now: float) -> Leg:
        """The path that gets a block home soonest, counting what already waits for its
        slowest link."""
        choices = self._choices(self.at[hop], int(self.requests.taker[hop]))
        path, link, _, rest = min(
            choices,
            key=lambda c: (max(self.backlog[c[1]], now) + c[2]) * self.any(),
        )
        size = float(self.requests.size[hop])
        self.backlog[link] = max(self.backlog[link], now) + size / self.rate[link]
        self.rest[hop], self.at[hop] = rest, int(self.routes.target[path])
        return self._leg(path, size)

    def rank(self, hop: int) -> tuple[float, int]:
        return -self.rest[hop], self.turn[hop]

    def sent(self, hop: int, leg: Leg, there: float) -> None:
        if self.at[hop] != self.requests.taker[hop]:
            self.bring(hop, there, self.turn[hop])


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


class Planned(_Blocks):
    """Blocks on given `paths`; those with the most work ahead go first."""

    def __init__(
        self,
        topology: Topology,
        requests: Requests,
        paths: list[list[int]],
        rng: np.random.Generator,
    ):
        self.legs = [
            _legs(topology, path, float(size))
            for path, size in zip(paths, requests.size, strict=True)
        ]
        every = list(itertools.chain(*self.legs))
        super().__init__(topology, requests, _SAME * max(leg.lag for leg in every))
        self.left = [0.0] * len(topology.links)
        for leg in every:
            for link, low, high in leg.use:
                self.left[link] += high - low
        self.rest = [_rests(legs) for legs in self.legs]
        self.at = [0] * len(paths)
        self.noise = rng.random(len(paths)).tolist()
        self.jitter = float(rng.choice([0.0, 0.02, 0.2])) * max(self.left, default=0.0)
        for block in range(len(paths)):
            self.bring(block, 0.0)

    def leg_of(self, hop: int, now: float) -> Leg:
        return self.legs[hop][self.at[hop]]

    def rank(self, hop: int) -> float:
        left = self.left
        most = max([left[n] + rest for n, rest in self.rest[hop][self.at[hop]]])
        return -(most + self.noise[hop] * self.jitter)

    def sent(self, hop: int, leg: Leg, there: float) -> None:
        for link, low, high in leg.use:
            self.left[link] -= high - low
        self.at[hop] += 1
        if self.at[hop] < len(self.legs[hop]):
            self.bring(hop, there)


def _legs(topology: Topology, path: list[int], size: float) -> list[Leg]:
    """Legs of a path, cut at GPUs."""
    ends = [
        n + 1 for n, link in enumerate(path) if topology.stores[topology.targets[link]]
    ]
    cuts = itertools.pairwise([0, *ends])
    return [leg_over(topology, path[low:high], size) for low, high in cuts]


def _rests(legs: list[Leg]) -> list[list[tuple[int, float]]]:
    """For each leg: the links still to pass, each with the time to the taker."""
    rests: list[list[tuple[int, float]]] = []
    rest, after = 0.0, list[tuple[int, float]]()
    for leg in reversed(legs):
        rest = leg.lag + rest
        after = [(n, rest - low) for n, low, _ in leg.use] + after
        rests.append(after)
    return rests[::-1]


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
            # Prices follow the size of a block: equal sizes share them, but for links
            # whose work has changed since.
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
        # `_least_work` may be out of reach: prices rise near the fullest link so far.
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
