"""From flows of sources to sends of parts of blocks."""

import collections
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from ...search import LinearModel
from .._demand.demand import Demand
from .._machine.routes import EpochModel
from .._machine.topology import Topology
from .._schedule.schedule import Schedule, Sends

_DUST: Final = 1e-7
"""Chunks below which an amount is rounding."""
_LOST: Final = 1e-4
"""Chunks that rounding can lose of a wish."""


@dataclasses.dataclass(frozen=True)
class FlowModel:
    """The linear model at one horizon; axes (flow,) of its first columns say what they
    are: number of the source in `sources`, link, epoch."""

    linear: LinearModel
    sources: Int[np.ndarray, " source"]
    source: Int[np.ndarray, " flow"]
    link: Int[np.ndarray, " flow"]
    epoch: Int[np.ndarray, " flow"]


def part_sends(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    flows: FlowModel,
    values: Float[np.ndarray, " column"],
) -> Schedule:
    """A schedule whose sends carry parts of blocks along an answer, in chunks.

    Per source the flow is walked back from each taker, along what came last, into
    paths; each path serves the taker's blocks in order.
    """
    amount = values[: len(flows.link)]
    carried: dict[tuple[int, int, int], float] = collections.defaultdict(float)
    for number, source in enumerate(flows.sources.tolist()):
        mine = (flows.source == number) & (amount > _DUST)
        link, epoch = flows.link[mine], flows.epoch[mine]
        walk = _Walk(topology, epoch + 1 + model.delay[link], link, epoch, amount[mine])
        for block in np.flatnonzero(demand.source == source).tolist():
            takers = np.flatnonzero(demand.wanted[block])
            if not len(takers) or takers[0] == source:
                continue
            wish = float(demand.size[block]) / model.chunk
            for path, share in walk.paths(source, int(takers[0]), wish):
                for flow in path:
                    carried[walk.epoch[flow], walk.link[flow], block] += share
    keys = sorted(carried)
    epoch, link, block = np.array(keys, int).reshape(-1, 3).T
    size = np.array([carried[key] for key in keys]) * model.chunk
    start = epoch * model.tau
    end = start + size / topology.rates[link] + topology.latencies[link]
    sends = Sends(block, link, start, end, size, np.zeros(len(block), int))
    epochs = int((epoch + 1 + model.delay[link]).max(initial=0))
    return Schedule(topology, demand, sends, model.tau, epochs)


class _Walk:
    """What is left of one source's flow: for each node the arrivals, latest first."""

    def __init__(
        self,
        topology: Topology,
        arrive: Int[np.ndarray, " flow"],
        link: Int[np.ndarray, " flow"],
        epoch: Int[np.ndarray, " flow"],
        amount: Float[np.ndarray, " flow"],
    ) -> None:
        self._stores = topology.stores
        self._from: list[int] = topology.sources[link].tolist()
        self._arrive: list[int] = arrive.tolist()
        self.link: list[int] = link.tolist()
        self.epoch: list[int] = epoch.tolist()
        self._left: list[float] = amount.tolist()
        self._into: dict[int, list[int]] = collections.defaultdict(list)
        for flow in np.argsort(-arrive, kind="stable").tolist():
            self._into[int(topology.targets[link[flow]])].append(flow)

    def paths(
        self, source: int, taker: int, wish: float
    ) -> list[tuple[list[int], float]]:
        """Paths of flows from `source` to `taker`, and what each carries: `wish` in
        all, what rounding lost on the largest.

        Raises:
            ValueError: more is missing than rounding explains.
        """
        found: list[tuple[list[int], float]] = []
        while wish > _DUST:
            path = self._back(source, taker)
            if path is None:
                break
            share = min(wish, *(self._left[flow] for flow in path))
            for flow in path:
                self._left[flow] -= share
            found.append((path, share))
            wish -= share
        if wish > _LOST:
            raise ValueError(
                f"`solver` leaves {wish:.3g} chunks of a wish unserved, so loosely "
                "does it keep equations; take glop."
            )
        if wish > 0 and found:
            largest = max(range(len(found)), key=lambda n: found[n][1])
            path, share = found[largest]
            found[largest] = path, share + wish
        return found

    def _back(self, source: int, taker: int) -> list[int] | None:
        """One path, from its end: out of a store after any arrival, out of a switch at
        the arrival."""
        node, before, path = taker, None, []
        while node != source:
            for flow in self._into[node]:
                at = self._arrive[flow]
                late = before is not None and at > before
                missed = before is not None and not self._stores[node] and at != before
                if not late and not missed and self._left[flow] > _DUST:
                    break
            else:
                return None
            path.append(flow)
            node, before = self._from[flow], self.epoch[flow]
        return path[::-1]
