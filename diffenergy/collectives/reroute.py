"""`reroute`: cheaper ways for single deliveries, without a later finish.

For blocks one after the other, each delivery to a GPU is taken out of the block's tree,
with the sends that nobody else needs, and the cheapest way from the rest of the tree is
put in: along links while they are free, there before the GPU sends the block on (or by
the limit), sharing sends into switches that copy. Nothing else moves, so the finish is
never later; it ends when a round changes nothing.
"""

import dataclasses
import heapq
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Float

from .energy_floor import block_floors, cheapest_ways
from .forest import Forest, Step
from .passages import Passage, passages
from .replant import replant
from .schedule import Schedule, Sends

_BETTER: Final = 1e-9
"""Least relative gain that counts."""


@dataclasses.dataclass(frozen=True)
class _Leg:
    """A delivery to be."""

    origin: int
    target: int
    steps: tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class _Label:
    """A block at `node` from `there` (s) on, for `cost` J more, by `legs`."""

    cost: float
    there: float
    node: int
    legs: tuple[_Leg, ...]

    def on(
        self, way: Passage, steps: list[Step], price: float, there: float
    ) -> "_Label":
        """One way further."""
        leg = _Leg(self.node, way.target, tuple(steps))
        return _Label(self.cost + price, there, way.target, (*self.legs, leg))


def reroute(
    schedule: Schedule,
    prices: Float[np.ndarray, " link"],
    limit: float,
    *,
    release: Float[np.ndarray, " block"] | None = None,
    busy: Sends | None = None,
    time_limit: float = 10.0,
) -> Schedule:
    """The schedule with sends that cost less at `prices` (J/B of each link) and end by
    `limit`, s. No sums: `turning.spread_of` makes a spread of them.

    `release`: when the source of each block has it, s; `busy`: sends of others that
    keep their links. Within `time_limit` s; the order of trials is fixed.
    """
    ends = time.monotonic() + time_limit
    blocks = len(schedule.demand.size)
    begun = np.zeros(blocks) if release is None else release
    forest = Forest(schedule, begun, busy)
    search = _Search(forest, prices, limit)
    floor = block_floors(schedule.topology, schedule.demand, prices).tolist()
    left = [block for block in forest.trees if not search.least(block, floor[block])]
    while left and time.monotonic() < ends:
        changed = [block for block in left if search.improve(block, ends)]
        left = [block for block in left if not search.least(block, floor[block])]
        for block in left:
            if time.monotonic() < ends and search.replant(block):
                changed.append(block)
        left = [block for block in left if changed]
    return dataclasses.replace(schedule, sends=forest.sends())


class _Search:
    """Cheapest ways within what the forest leaves free."""

    def __init__(
        self, forest: Forest, prices: Float[np.ndarray, " link"], limit: float
    ) -> None:
        self.forest, self.prices, self.limit = forest, prices.tolist(), limit
        self.away = cheapest_ways(forest.schedule.topology, prices)
        self._ways: dict[float, list[list[Passage]]] = {}

    def least(self, block: int, floor: float) -> bool:
        """Whether no tree can be cheaper."""
        price = sum(
            self.prices[self.forest.link[send]] * self.forest.size[block]
            for send in {
                send for d in self.forest.trees[block].values() for send in d.chain
            }
        )
        return price <= floor * (1 + _BETTER)

    def improve(self, block: int, ends: float) -> bool:
        """Exchange deliveries of a block, those that come last first."""
        forest, changed = self.forest, False
        tree = forest.trees[block]
        for node in sorted(tree, key=lambda n: (-tree[n].at, n)):
            if node in tree and time.monotonic() < ends:
                changed |= self._exchange(block, node)
        return changed

    def replant(self, block: int) -> bool:
        """Make the block's tree anew if that is cheaper."""
        ways = self._from(self.forest.size[block])
        return replant(self.forest, block, ways, self.prices, self.limit)

    def _exchange(self, block: int, node: int) -> bool:
        forest, size = self.forest, self.forest.size[block]
        sends, lost = forest.freed(block, node)
        gain = size * sum(self.prices[forest.link[send]] for send in sends)
        apart = forest.beyond(block, node) | set(lost)
        due = forest.needed_at(block, node, self.limit)
        out = forest.take_out(block, lost, sends)
        found = self._cheapest(block, node, apart, due, gain * (1 - _BETTER))
        if found is None:
            forest.put_back(block, lost, sends, out)
            return False
        for leg in found:
            forest.put_in(block, leg.origin, leg.target, list(leg.steps))
        return True

    def _cheapest(
        self, block: int, node: int, apart: set[int], due: float, most: float
    ) -> list[_Leg] | None:
        """The cheapest way below `most` J to `node` by `due`, from GPUs that have the
        block and are not `apart`."""
        forest, size = self.forest, self.forest.size[block]
        tree, away = forest.trees[block], (self.away[:, node] * size).tolist()
        have = {*tree, forest.source[block]}
        queue: list[tuple[float, int, _Label]] = []
        for holder in sorted(have - apart):
            label = _Label(0.0, forest.ready_at(block, holder), holder, ())
            heapq.heappush(queue, (0.0, len(queue), label))
        count, best = len(queue), dict[int, list[_Label]]()
        while queue:
            label = heapq.heappop(queue)[2]
            if label.node == node:
                return list(label.legs)
            for way in self._from(size)[label.node]:
                if way.target in have:
                    continue
                for step in self._tries(block, way, label, due):
                    bound = step.cost + away[way.target]
                    known = best.setdefault(way.target, [])
                    if bound >= most or any(
                        k.cost <= step.cost and k.there <= step.there for k in known
                    ):
                        continue
                    known.append(step)
                    heapq.heappush(queue, (bound, count, step))
                    count += 1
        return None

    def _tries(
        self, block: int, way: Passage, label: _Label, due: float
    ) -> Iterator[_Label]:
        """The way begun as soon as it is free, and along with sends of the block that
        have begun it already and that a relay can copy."""
        forest, size = self.forest, self.forest.size[block]
        late = due - way.last + _BETTER * abs(due)
        starts = forest.fit(way.links, size, label.there, late)
        if starts is not None:
            steps = [(*step, -1) for step in zip(way.links, starts, strict=True)]
            yield label.on(way, steps, way.price, starts[-1] + way.last)
        if label.legs or not way.fans:
            return
        for begun in self._begun(block, label.node, way.links):
            rest, last = way.links[len(begun) :], begun[-1]
            starts, missed = forest.onward(
                forest.link[last], forest.start[last], forest.end[last], rest, size
            )
            if missed or starts[-1] > late:
                continue
            steps = [(forest.link[s], forest.start[s], s) for s in begun]
            steps += [(*step, -1) for step in zip(rest, starts, strict=True)]
            price = size * sum(self.prices[link] for link in rest)
            yield label.on(way, steps, price, starts[-1] + way.last)

    def _begun(
        self, block: int, node: int, links: tuple[int, ...]
    ) -> list[tuple[int, ...]]:
        """Sends of the block from `node` that go the first links of a way."""
        found: set[tuple[int, ...]] = set()
        for delivery in self.forest.trees[block].values():
            if delivery.origin != node:
                continue
            alike = 0
            for send, link in zip(delivery.chain, links, strict=False):
                if self.forest.link[send] != link:
                    break
                alike += 1
            if 0 < alike < len(links):
                found.add(delivery.chain[:alike])
        return sorted(found)

    def _from(self, size: float) -> list[list[Passage]]:
        """Ways out of each node for blocks of `size` B."""
        if size not in self._ways:
            topology = self.forest.schedule.topology
            self._ways[size] = passages(topology, np.array(self.prices), size)
        return self._ways[size]
