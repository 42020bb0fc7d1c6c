"""`replant`: a block's whole tree made anew, cheapest deliveries first.

Where a switch copies, one send into it can serve many takers, but only if the ways out
are free together; exchanging deliveries one by one finds that only by chance. Here all
sends of one block are taken out. Then, until every taker has it, from the GPUs that
have the block the send is chosen that costs least for each taker it reaches (with all
ways out of the switches that it passes), and among equals the one that arrives first.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from .forest import Forest
from .passages import Passage

_BETTER: Final = 1e-9
"""Least relative gain that counts."""
_BUMPS: Final = 16
"""Most starts tried until all ways out of a switch are free."""


@dataclasses.dataclass(frozen=True)
class _Fan:
    """Sends that begin with one: starts by link, in order, and the ways they serve."""

    origin: int
    ways: tuple[Passage, ...]
    starts: Mapping[int, float]
    cost: float
    there: float

    @property
    def key(self) -> tuple[float, float, int]:
        """What is best: J a taker, then s."""
        return self.cost / len(self.ways), self.there, self.origin


def replant(
    forest: Forest,
    block: int,
    ways: Sequence[Sequence[Passage]],
    prices: Sequence[float],
    limit: float,
) -> bool:
    """Whether a cheaper tree of the block was put in. `ways` out of each GPU for blocks
    of its size; `prices`: J/B of each link; `limit`: s."""
    lost, sends, out = forest.uproot(block)
    size = forest.size[block]
    most = size * sum(prices[forest.link[send]] for send in sends) * (1 - _BETTER)
    missing = {node for node in lost if forest.wants(block, node)}
    spent = 0.0
    while missing:
        fan = _best(forest, block, ways, prices, limit, missing)
        if fan is None or spent + fan.cost >= most:
            forest.uproot(block)
            forest.put_back(block, lost, sends, out)
            return False
        _plant(forest, block, fan)
        spent += fan.cost
        missing -= {way.target for way in fan.ways}
    return True


def _best(
    forest: Forest,
    block: int,
    ways: Sequence[Sequence[Passage]],
    prices: Sequence[float],
    limit: float,
    missing: set[int],
) -> _Fan | None:
    best: _Fan | None = None
    for origin in sorted({*forest.trees[block], forest.source[block]}):
        ready = forest.ready_at(block, origin)
        open_ = [way for way in ways[origin] if way.target in missing]
        open_.sort(key=lambda way: way.links[0])
        for _, alike in itertools.groupby(open_, key=lambda way: way.links[0]):
            for fan in _fans(forest, block, origin, ready, list(alike), prices, limit):
                if best is None or fan.key < best.key:
                    best = fan
    return best


def _fans(
    forest: Forest,
    block: int,
    origin: int,
    ready: float,
    ways: list[Passage],
    prices: Sequence[float],
    limit: float,
) -> list[_Fan]:
    """Ways with one first link: all together as soon as all are free, and those that
    are free as soon as the first link is; one by one where a relay cannot copy."""
    if len(ways) == 1 or not all(way.fans for way in ways):
        single = (_fan(forest, block, origin, ready, [way], prices) for way in ways)
        return [fan for fan, _ in single if fan is not None and fan.there <= limit]
    found: list[_Fan] = []
    start = ready
    for _ in range(_BUMPS):
        fan, late = _fan(forest, block, origin, start, ways, prices)
        if fan is not None and fan.there <= limit:
            found.append(fan)
        if not late or start > limit:
            break
        start = late
    return found


def _fan(
    forest: Forest,
    block: int,
    origin: int,
    ready: float,
    ways: list[Passage],
    prices: Sequence[float],
) -> tuple[_Fan | None, float]:
    """As many of the ways as are free when the first link is, from `ready` on; and the
    start at which another may be (0: all are)."""
    size, first = forest.size[block], ways[0].links[0]
    start = forest.free_from(first, size, ready)
    end = start + forest.takes(first, size)
    starts, served, there, later = {first: start}, [], 0.0, 0.0
    for way in ways:
        known = len(list(itertools.takewhile(starts.__contains__, way.links)))
        before = way.links[known - 1]
        begun = starts[before]
        arrived = end if before == first else begun + forest.takes(before, size)
        rest, late = forest.onward(before, begun, arrived, way.links[known:], size)
        if late:
            later = start + late if not later else min(later, start + late)
            continue
        starts |= dict(zip(way.links[known:], rest, strict=True))
        served.append(way)
        there = max(there, starts[way.links[-1]] + way.last)
    if not served:
        return None, later
    used = {link for way in served for link in way.links}
    kept = {link: begin for link, begin in starts.items() if link in used}
    cost = size * sum(prices[link] for link in used)
    return _Fan(origin, tuple(served), kept, cost, there), later


def _plant(forest: Forest, block: int, fan: _Fan) -> None:
    """Put the fan's deliveries in."""
    there: dict[int, int] = {}
    for way in fan.ways:
        steps = [(link, fan.starts[link], there.get(link, -1)) for link in way.links]
        chain = forest.put_in(block, fan.origin, way.target, steps)
        there |= dict(zip(way.links, chain, strict=True))
