"""From flows of sources to sends of parts of blocks."""

import collections
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .._demand.demand import Demand
from .._machine.epochs import EpochModel
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends

_DUST: Final = 1e-7
"""Chunks below which an amount is rounding."""
_LOOSE: Final = (
    "`solver` leaves {missing:.3g} chunks of a wish unserved, so loosely does it keep "
    "equations; take glop."
)


@dataclasses.dataclass(frozen=True)
class Flow:
    """Amounts, in chunks, of what began at a source that enter links in epochs;
    `source` counts in `sources`."""

    sources: Int[np.ndarray, " source"]
    source: Int[np.ndarray, " flow"]
    link: Int[np.ndarray, " flow"]
    epoch: Int[np.ndarray, " flow"]
    amount: Float[np.ndarray, " flow"]


def part_sends(
    topology: Topology, demand: Demand, model: EpochModel, flow: Flow
) -> Schedule:
    """A schedule whose sends carry parts of blocks along the flow.

    Per source the flow is walked back from each taker, along what came last, into
    paths; each path serves the taker's blocks in order.
    """
    hop = 1 + model.delay
    carried: dict[tuple[int, int, int], float] = collections.defaultdict(float)
    for number, source in enumerate(flow.sources.tolist()):
        mine = (flow.source == number) & (flow.amount > _DUST)
        walk = _Walk(
            topology, hop, flow.link[mine], flow.epoch[mine], flow.amount[mine]
        )
        for block in np.flatnonzero(demand.source == source).tolist():
            takers = np.flatnonzero(demand.wanted[block])
            if not len(takers) or takers[0] == source:
                continue
            taker = int(takers[0])
            wish = float(demand.size[block]) / model.chunk
            for path, amount in walk.paths(source, taker, wish):
                for link, epoch in path:
                    carried[epoch, link, block] += amount
    keys = np.array(sorted(carried), int).reshape(-1, 3)
    share = np.array([carried[key] for key in sorted(carried)])
    return _timed(topology, demand, model, keys, share)


class _Walk:
    """What is left of one source's flow: for each node the arrivals, latest first."""

    def __init__(
        self,
        topology: Topology,
        hop: Int[np.ndarray, " link"],
        link: Int[np.ndarray, " flow"],
        epoch: Int[np.ndarray, " flow"],
        amount: Float[np.ndarray, " flow"],
    ) -> None:
        self._from = topology.sources
        self._stores = topology.stores
        self._arrivals: dict[int, list[tuple[int, int, int]]] = {}
        self._left: dict[tuple[int, int], float] = {}
        arrive = epoch + hop[link]
        for n in np.argsort(-arrive, kind="stable").tolist():
            at, one, k = int(arrive[n]), int(link[n]), int(epoch[n])
            node = int(topology.targets[one])
            self._arrivals.setdefault(node, []).append((at, one, k))
            self._left[one, k] = float(amount[n])

    def paths(
        self, source: int, taker: int, wish: float
    ) -> list[tuple[list[tuple[int, int]], float]]:
        """Paths of (link, epoch) from `source` to `taker` that carry `wish` in all."""
        found: list[tuple[list[tuple[int, int]], float]] = []
        while wish > _DUST:
            path = self._back(source, taker)
            if path is None:
                break
            amount = min(wish, *(self._left[step] for step in path))
            for step in path:
                self._left[step] -= amount
            found.append((path, amount))
            wish -= amount
        return _made_up(found, wish)

    def _back(self, source: int, taker: int) -> list[tuple[int, int]] | None:
        """One path, from its end: out of a store after any arrival, out of a switch at
        the arrival."""
        node, before, path = taker, None, []
        while node != source:
            for at, link, epoch in self._arrivals.get(node, []):
                late = before is not None and at > before
                missed = before is not None and not self._stores[node] and at != before
                if not late and not missed and self._left[link, epoch] > _DUST:
                    break
            else:
                return None
            path.append((link, epoch))
            node, before = int(self._from[link]), epoch
        return path[::-1]


def _made_up(
    found: list[tuple[list[tuple[int, int]], float]], missing: float
) -> list[tuple[list[tuple[int, int]], float]]:
    """The paths with what rounding lost put on the largest.

    Raises:
        ValueError: more is missing than rounding explains.
    """
    if missing <= 0 or not found:
        if missing > 1e-4:
            raise ValueError(_LOOSE.format(missing=missing))
        return found
    if missing > 1e-4:
        raise ValueError(_LOOSE.format(missing=missing))
    largest = max(range(len(found)), key=lambda n: found[n][1])
    path, amount = found[largest]
    found[largest] = (path, amount + missing)
    return found


def _timed(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    keys: Int[np.ndarray, "send 3"],
    share: Float[np.ndarray, " send"],
) -> Schedule:
    """Sends (epoch, link, block) that begin with their epoch."""
    epoch, link, block = keys.T
    size = share * model.chunk
    start = epoch * model.tau
    end = start + size / topology.rates[link] + topology.latencies[link]
    sends = Sends(block, link, start, end, size, np.zeros(len(block), int))
    epochs = int((epoch + 1 + model.delay[link]).max(initial=0))
    return Schedule(topology, demand, sends, model.tau, epochs)
