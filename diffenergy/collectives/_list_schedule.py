"""Randomised list scheduling of chunks that can be copied, many restarts at once.

At every moment at which something changes, each free link takes a chunk that its
sender has and its receiver has not been promised: links with the fewest such chunks
choose first, and they choose chunks that no GPU of the receiver's island (GPUs joined
by fast links) has, then chunks that few GPUs have, ties broken at random. A send into
a switch starts only with its ways out free at the right moments.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ._routes import Clock, Routes, distances, islands, routes
from ._topology import Topology

# --- What list scheduling of chunks that can be copied is asked, and what it gives.

_DEADLINES: Final = 4
"""Different deadlines among restarts."""
_SOONER: Final = 1e-6
"""Least gain that counts, as a share of the finish."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """What has to go where. `release`: when a node holds a block at the start, else
    infinite; `free`: when each lane of each link is first free (infinite: no lane)."""

    topology: Topology
    clock: Clock
    release: Float[np.ndarray, "node block"]
    wanted: Bool[np.ndarray, "node block"]
    useful: Bool[np.ndarray, "node block"]
    """Where a block may be brought at all."""
    free: Float[np.ndarray, "link lane"]

    @functools.cached_property
    def routes(self) -> Routes:
        """Paths from GPU to GPU."""
        return routes(self.topology, self.clock)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sends of whole blocks in the clock's unit, and the finish."""

    link: Int[np.ndarray, " send"]
    block: Int[np.ndarray, " send"]
    start: Float[np.ndarray, " send"]
    end: Float[np.ndarray, " send"]
    finish: float


@dataclasses.dataclass(frozen=True)
class Aim:
    """How to search: restarts from a seed, for a finish below `limit` and at best at
    `least`, in the clock's unit."""

    restarts: int
    seed: int
    limit: float = np.inf
    least: float = 0.0

    @property
    def deadlines(self) -> Float[np.ndarray, " restart"]:
        """When everything must be there in each restart: without a limit, never; then
        from just below it down towards the least, so that slow links stand still
        rather than bring something too late."""
        if np.isinf(self.limit):
            return np.full(self.restarts, np.inf)
        share = (np.arange(self.restarts) % _DEADLINES) / _DEADLINES
        below = self.limit * (1 - _SOONER)
        return np.maximum(self.least, below - share * max(0.0, below - self.least))


def lanes(clock: Clock, most: int) -> Float[np.ndarray, "link lane"]:
    """Zero for every lane that a link has, infinite beyond; at most `most` lanes."""
    count = np.minimum(clock.lanes, most)
    return np.where(np.arange(count.max()) < count[:, None], 0.0, np.inf)


# --- Randomised list scheduling of chunks that can be copied

_SAME: Final = 1e-9
"""Times this near each other, relative to a link's time, are one moment."""
_SMALL: Final = 100
"""Nodes up to which the paths still to go are weighed."""
_ISLAND: Final = 1e4
"""Weight of a chunk that is new to an island, in GPUs that lack a chunk."""


def list_schedule(problem: Problem, aim: Aim) -> Plan | None:
    """The restart that finishes first; None if none finishes below the limit."""
    state = _State(problem, aim)
    while state.advance():
        state.send()
    return state.best()


def island_levels(topology: Topology) -> Int[np.ndarray, "level node"]:
    """Number of the island of each node, at one level or more: GPUs that links of at
    least half the greatest rate join, then those that slower links join too, as long
    as that makes fewer islands and not one."""
    half = 0.5 * topology.rates.max()
    slower = np.unique(topology.rates[topology.rates < half])[::-1]
    levels: list[np.ndarray] = []
    for rate in [half, *slower.tolist()]:
        label = islands(topology, rate)
        inside = len(np.unique(label[topology.gpus]))
        if not levels:
            levels.append(label)
        elif 1 < inside < len(np.unique(levels[-1][topology.gpus])):
            levels.append(label)
    return np.stack(levels)


def _remaining(problem: Problem) -> Float[np.ndarray, "node block"]:
    """Longest path that a block has still to go on quickest paths through each node, as
    a share of the greatest distance; zero on machines where rarity matters more."""
    count, blocks = problem.release.shape
    if count > _SMALL:
        return np.zeros((count, blocks))
    away = distances(problem.topology, problem.clock)
    here = (problem.release[:, None, :] + away[:, :, None]).min(0)  # earliest arrival
    via = here[:, None, :] + away[:, :, None]
    on = (via <= here[None] * (1 + _SAME)) & problem.wanted[None]
    tail = np.where(on, away[:, :, None], 0.0).max(1)
    return tail / away[np.isfinite(away)].max()


class _State:
    """State of all restarts; the leading axis of all arrays is the restart."""

    def __init__(self, problem: Problem, aim: Aim):
        rng, restarts = np.random.default_rng(aim.seed), aim.restarts
        self.problem, self.rng = problem, rng
        self.limit, self.deadline = aim.limit, aim.deadlines
        shape = (restarts, 1, 1)
        self.ready = np.tile(problem.release, shape)
        self.free = np.tile(problem.free, shape)
        self.time = np.full(restarts, -np.inf)
        self.noise = rng.choice([0.5, 0.5, 2.0, 8.0], restarts)
        self.haste = rng.choice([0.0, 2.0, 50.0, 50 * _ISLAND], restarts)
        self.switches_first = bool(rng.integers(2))
        self.remaining = _remaining(problem)
        self.step = _SAME * float(problem.clock.arrive.max())
        self.log: list[tuple[np.ndarray, ...]] = []
        routes = problem.routes
        single = np.flatnonzero(routes.direct)
        lane = np.isfinite(problem.free[routes.links[single, 0]])
        row, self.lane = np.nonzero(lane)
        self.port = single[row]
        relayed = routes.links[:, 1:] >= 0
        pairs = np.stack([routes.links[:, 1:][relayed], routes.offset[:, 1:][relayed]])
        pairs = np.unique(pairs, axis=1)
        self.exits, self.lead = pairs[0].astype(int), pairs[1]
        label = island_levels(problem.topology)
        self.nodes = label.shape[1]
        self.level, self.levels = np.arange(restarts) // 2 % len(label), label
        self.island = label[self.level]
        # Every other restart brings each block into an island only once.
        self.sparing = (np.arange(restarts) % 2 == 1) & (label.max() > 0)
        self.spread = np.zeros((restarts, label.max() + 1, problem.release.shape[1]))
        self.holders = np.zeros((restarts, problem.release.shape[1]))
        where = np.nonzero(np.isfinite(self.ready))
        self._note(where[0], where[1], where[2])

    def _note(self, restart: np.ndarray, node: np.ndarray, block: np.ndarray) -> None:
        np.add.at(self.holders, (restart, block), 1)
        np.add.at(self.spread, (restart, self.island[restart, node], block), 1)

    def advance(self) -> bool:
        """Move each unfinished restart to its next moment; False at the end of all."""
        problem = self.problem
        unmet = np.isinf(self.ready) & problem.wanted
        open_ = unmet.any((1, 2)) & np.isfinite(np.maximum(self.time, 0))
        moment = np.minimum(
            self._next(self.ready.reshape(len(self.time), -1)),
            self._next(self.free.reshape(len(self.time), -1)),
        )
        if len(self.exits):
            # A way in can be taken before its way out is free.
            begin = self.free[:, self.exits].min(-1) - self.lead
            moment = np.minimum(moment, self._next(begin))
        self.time = np.where(open_ & (moment <= self.deadline), moment, np.inf)
        live = np.isfinite(self.time)[:, None, None]
        self.have = (self.ready <= self.time[:, None, None] + self.step) & live
        self.lack = np.isinf(self.ready) & problem.useful
        return bool(live.any())

    def _next(self, times: np.ndarray) -> np.ndarray:
        """First of `times` (restart, any) after each restart's moment."""
        later = times > (self.time + self.step)[:, None]
        return np.where(later, times, np.inf).min(1)

    def _score(
        self, restart: np.ndarray, node: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Score of sending each block to `node`; axes (..., block)."""
        fresh = self.spread[restart, self.island[restart, node]] == 0
        rare = -self.holders[restart]
        noise = self.rng.random(shape) * self.noise[restart][..., None]
        far = self.remaining[node] * self.haste[restart][..., None]
        return _ISLAND * fresh + rare + noise + far

    def _worthwhile(
        self, restart: np.ndarray, source: np.ndarray, node: np.ndarray
    ) -> np.ndarray:
        """Blocks that are new to the island of `node`, all if it is the source's or the
        restart does not spare."""
        if not self.sparing.any():
            return np.ones(1, bool)
        into = self.island[restart, node]
        free = ~self.sparing[restart] | (into == self.island[restart, source])
        return free[..., None] | (self.spread[restart, into] == 0)

    def _once(
        self, restart: np.ndarray, can: np.ndarray, source: int, node: np.ndarray
    ) -> np.ndarray:
        """`can` (restart, path, block) with one path into each other island where the
        restart spares."""
        spares = self.sparing[restart][:, None, None]
        for level, label in enumerate(self.levels):
            rows = np.flatnonzero(self.level[restart] == level)
            for island in np.unique(label[node]):
                if island != label[source]:
                    paths = self.rng.permutation(np.flatnonzero(label[node] == island))
                    mine = np.ix_(rows, paths)
                    some = can[mine]
                    can[mine] = some & (~spares[rows] | (some.cumsum(1) == 1))
        return can

    def send(self) -> None:
        """Starts all sends of this moment."""
        steps = [self.direct_sends, self.sends_through_switches]
        for step in reversed(steps) if self.switches_first else steps:
            step()

    def direct_sends(self) -> None:
        """Links between GPUs: those with the fewest choices first, one per receiver at
        a time."""
        routes = self.problem.routes
        link = routes.links[self.port, 0]
        idle = self.free[:, link, self.lane] <= (self.time + self.step)[:, None]
        restart, port = np.nonzero(idle)
        source, target = routes.source[self.port], routes.target[self.port]
        for rows in self._ranks(restart, port, source, target):
            while len(rows):
                rows = self._choose(restart[rows], port[rows], rows)

    def _choose(self, r: np.ndarray, p: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """One send on each idle port that has any; the rows left to choose again,
        since another link takes the same block into the same island."""
        routes, clock = self.problem.routes, self.problem.clock
        path = self.port[p]
        source, node = routes.source[path], routes.target[path]
        can = self.have[r, source] & self.lack[r, node]
        can &= self._worthwhile(r, source, node)
        there = self.time[r] + routes.arrive[path]
        some = can.any(1) & (there <= self.deadline[r] + self.step)
        r, p, path, source, node, can, rows = (
            column[some] for column in (r, p, path, source, node, can, rows)
        )
        if not len(r):
            return rows
        score = np.where(can, self._score(r, node, can.shape), -np.inf)
        block = score.argmax(1)
        into = self.island[r, node]
        shared = (into != self.island[r, source]) & (self.spread[r, into, block] == 0)
        key = np.stack([r, into, block, np.where(shared, -1, np.arange(len(r)))], 1)
        first = np.zeros(len(r), bool)
        first[np.unique(key, axis=0, return_index=True)[1]] = True
        start, link = self.time[r], routes.links[path, 0]
        self.free[r[first], link[first], self.lane[p[first]]] = (
            start[first] + clock.busy[link[first]]
        )
        self._deliver(r[first], path[first], block[first], start[first])
        return rows[~first]

    def _ranks(
        self,
        restart: np.ndarray,
        port: np.ndarray,
        source: np.ndarray,
        target: np.ndarray,
    ) -> Iterator[np.ndarray]:
        """Rows of idle ports, cut so that no receiver appears twice in a piece."""
        if not len(restart):
            return
        can = self.have[restart, source[port]] & self.lack[restart, target[port]]
        choices = can.sum(1)
        rows = np.flatnonzero(choices)
        group = restart[rows] * self.nodes + target[port[rows]]
        key = choices[rows] + self.rng.random(len(rows)) * self.noise[restart[rows]]
        order = np.lexsort((key, group))
        rows, group = rows[order], group[order]
        first = np.flatnonzero(np.diff(group, prepend=-1))
        rank = np.arange(len(rows)) - np.repeat(
            first, np.diff(np.append(first, len(rows)))
        )
        for place in range(int(rank.max(initial=-1)) + 1):
            yield rows[rank == place]

    def sends_through_switches(self) -> None:
        """First links into switches, one after the other in random order."""
        routes = self.problem.routes
        relayed = np.flatnonzero(~routes.direct)
        if not len(relayed):
            return
        entries = np.unique(routes.links[relayed, 0])
        for entry in self.rng.permutation(entries):
            paths = relayed[routes.links[relayed, 0] == entry]
            count = np.isfinite(self.problem.free[entry]).sum()
            for _ in range(count):
                if not self._send_through(paths):
                    break

    def _send_through(self, paths: np.ndarray) -> bool:
        """One send on the first link of `paths`, to all its ends that can take it (to
        one where the relays cannot copy); False if no restart had any."""
        routes, clock = self.problem.routes, self.problem.clock
        now = self.time[:, None] + self.step
        link_of, used = routes.links[paths], routes.links[paths] >= 0
        soonest = self.free[:, link_of].min(-1)  # (restart, path, hop)
        late = soonest > now[..., None] + routes.offset[paths]
        there = self.time[:, None] + routes.arrive[paths]
        clear = ~(late & used).any(-1) & (there <= (self.deadline + self.step)[:, None])
        restart = np.flatnonzero(clear.any(1))
        if not len(restart):
            return False
        node = routes.target[paths]
        can = (
            clear[restart][..., None]
            & self.have[restart, routes.source[paths[0]]][:, None]
            & self.lack[restart[:, None], node]
        )
        source = routes.source[paths]
        can &= self._worthwhile(restart[:, None], source, node)
        can = self._once(restart, can, int(source[0]), node)
        score = self._score(restart[:, None], node, can.shape)
        worth = np.where(can, score + self.nodes + 1, 0.0)
        if routes.fans[paths[0]]:
            block = worth.sum(1).argmax(1)
            chosen = can[np.arange(len(restart)), :, block]
        else:
            best = worth.reshape(len(restart), -1).argmax(1)
            path, block = np.divmod(best, can.shape[2])
            chosen = np.zeros(can.shape[:2], bool)
            rows = np.arange(len(restart))
            chosen[rows, path] = can[rows, path, block]
        row, path = np.nonzero(chosen)
        if not len(row):
            return False
        r = restart[row]
        self._deliver(r, paths[path], block[row], self.time[r])
        # Each link of the tree is taken once, however many paths share it.
        wheres, hops = np.nonzero(used[path])
        key = np.unique(
            np.stack([r[wheres], link_of[path[wheres], hops]], 1),
            axis=0,
            return_index=True,
        )
        for (one, link), at in zip(key[0], key[1], strict=True):
            start = self.time[one] + routes.offset[paths[path[wheres[at]]], hops[at]]
            lane = self.free[one, link].argmin()
            self.free[one, link, lane] = start + clock.busy[link]
        return True

    def _deliver(
        self,
        restart: np.ndarray,
        path: np.ndarray,
        block: np.ndarray,
        start: np.ndarray,
    ) -> None:
        routes = self.problem.routes
        node = routes.target[path]
        self.ready[restart, node, block] = start + routes.arrive[path]
        self.lack[restart, node, block] = False
        self._note(restart, node, block)
        self.log.append((restart, path, block, start))

    def best(self) -> Plan | None:
        """The sends of the restart that ends first: trips of a block that begin
        together on one link share what their routes share, if the relays on them
        copy."""
        wanted = np.where(self.problem.wanted, self.ready, 0.0)
        finish = wanted.max((1, 2))
        winner = int(finish.argmin())
        if not finish[winner] <= self.limit + self.step or np.isinf(finish[winner]):
            return None
        log = self.log or [(np.zeros(0, int),) * 4]
        restart, *trips = (np.concatenate(c) for c in zip(*log, strict=True))
        path, block, start = (column[restart == winner] for column in trips)
        routes = self.problem.routes
        trip, hop = np.nonzero(routes.links[path] >= 0)
        link = routes.links[path[trip], hop]
        at = start[trip] + routes.offset[path[trip], hop]
        apart = np.where(routes.fans[path[trip]], -1, trip)
        rows = np.unique(np.stack([at, link, block[trip], apart], 1), axis=0)
        link, start = rows[:, 1].astype(int), rows[:, 0]
        end = start + self.problem.clock.arrive[link]
        return Plan(link, rows[:, 2].astype(int), start, end, float(finish[winner]))
