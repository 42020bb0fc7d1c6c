"""`Forest`: who brought each block to each GPU, and when links are free.

Per block the deliveries to GPUs form a tree that begins at the block's source. A
delivery is the chain of sends from one GPU to the next, through switches or not; chains
share sends where a switch copies. One delivery can be taken out, with the sends that
nobody else needs, and another put in.
"""

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Float

from .hops import through_switches
from .schedule import Schedule, Sends

_SLACK: Final = 1e-9
"""Share of a send by which times may be off."""
Step = tuple[int, float, int]
"""Link, start in s, and the send that is there already (-1: a new one)."""


@dataclasses.dataclass(frozen=True)
class Delivery:
    """Sends `chain` from the GPU `origin`; the block is there from `at` s on."""

    origin: int
    chain: tuple[int, ...]
    at: float


class Forest:
    """Deliveries of whole blocks, changed one by one. Blocks of which parts are sent,
    or that come through a switch by several ways at once, are `fixed`."""

    def __init__(
        self,
        schedule: Schedule,
        release: Float[np.ndarray, " block"],
        busy: Sends | None = None,
    ) -> None:
        sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
        self.schedule, self.release = schedule, release
        self.block: list[int] = sends.block.tolist()
        self.link: list[int] = sends.link.tolist()
        self.start: list[float] = sends.start.tolist()
        self.end: list[float] = sends.end.tolist()
        self.rates: list[float] = topology.rates.tolist()
        self.latencies: list[float] = topology.latencies.tolist()
        self.size: list[float] = demand.size.tolist()
        self.source: list[int] = demand.source.tolist()
        self.uses: dict[int, int] = {}
        self.trees: dict[int, dict[int, Delivery]] = {}
        self.fixed: set[int] = set()
        self.lanes: list[list[tuple[float, float, int]]] = [[] for _ in topology.links]
        self._plant()
        for send in range(len(self.block)):
            if self.block[send] in self.fixed or self.uses.get(send):
                self._occupy(send)
        if busy is not None:
            self._keep_clear(busy)

    def wants(self, block: int, node: int) -> bool:
        """Whether a GPU is a taker."""
        return bool(self.schedule.demand.wanted[block, node])

    def _plant(self) -> None:
        """Trees of the schedule as it is: of each block the first arrivals that lead to
        takers."""
        schedule = self.schedule
        topology, demand, sends = schedule.topology, schedule.demand, schedule.sends
        stores, begin = topology.stores.tolist(), topology.sources.tolist()
        parts = sends.bytes < demand.size[sends.block] * (1 - 1e-9)
        self.fixed = set(sends.block[parts].tolist())
        everything, nobody = np.ones(len(sends), bool), np.zeros(len(demand.size), bool)
        slack = 1e-9 * float(sends.end.max(initial=0.0))
        feeds, faults = through_switches(schedule, everything, slack, nobody)
        self.fixed |= {self.block[send] for send, _ in faults}
        self.fixed |= {self.block[s] for s, parts in feeds.items() if len(parts) != 1}
        first: dict[int, dict[int, Delivery]] = {}
        for send in np.argsort(sends.end, kind="stable").tolist():
            block, node = self.block[send], int(topology.targets[self.link[send]])
            tree = first.setdefault(block, {})
            known = node in tree or node == self.source[block]
            if block in self.fixed or known or not stores[node]:
                continue
            chain = [send]
            while not stores[begin[self.link[chain[0]]]]:
                chain.insert(0, feeds[chain[0]][0].send)
            origin = begin[self.link[chain[0]]]
            tree[node] = Delivery(origin, tuple(chain), self.end[send])
        for block, tree in first.items():
            if block not in self.fixed:
                self._grow(block, tree)

    def _grow(self, block: int, tree: dict[int, Delivery]) -> None:
        """Keep what leads to takers."""
        kept: dict[int, Delivery] = {}
        for taker in np.flatnonzero(self.schedule.demand.wanted[block]).tolist():
            node = taker
            while node != self.source[block] and node not in kept and node in tree:
                kept[node] = tree[node]
                node = tree[node].origin
            if node != self.source[block] and node not in kept:  # never comes
                self.fixed.add(block)
                return
        self.trees[block] = kept
        for delivery in kept.values():
            for send in delivery.chain:
                self.uses[send] = self.uses.get(send, 0) + 1

    # --- links

    def _occupy(self, send: int) -> None:
        link = self.link[send]
        stop = self.end[send] - self.latencies[link]
        bisect.insort(self.lanes[link], (self.start[send], stop, send))

    def _clear(self, send: int) -> None:
        link = self.link[send]
        stop = self.end[send] - self.latencies[link]
        self.lanes[link].remove((self.start[send], stop, send))

    def _keep_clear(self, busy: Sends) -> None:
        """Other sends that stay as they are."""
        for link, start, end in zip(
            busy.link.tolist(), busy.start.tolist(), busy.end.tolist(), strict=True
        ):
            item = (start, end - self.latencies[link], -1)
            bisect.insort(self.lanes[link], item)

    def takes(self, link: int, size: float) -> float:
        """s from the start on a link until `size` B are there."""
        return size / self.rates[link] + self.latencies[link]

    def free_from(self, link: int, size: float, ready: float) -> float:
        """Earliest start from `ready` on at which a link is free for `size` B."""
        lane, took = self.lanes[link], size / self.rates[link]
        slack, start = _SLACK * took, ready
        while True:
            near = bisect.bisect_left(lane, (start + took - slack,)) - 1
            if near < 0 or lane[near][1] <= start + slack:
                return start
            start = lane[near][1]

    def fit(
        self, links: Sequence[int], size: float, ready: float, latest: float
    ) -> list[float] | None:
        """Starts of `size` B on the links of a way, the first as early as it can be
        from `ready` on; None if the last would be after `latest`."""
        start = ready
        while True:
            start = self.free_from(links[0], size, start)
            end = start + self.takes(links[0], size)
            rest, late = self.onward(links[0], start, end, links[1:], size)
            if not late:
                starts = [start, *rest]
                return None if starts[-1] > latest else starts
            start += late
            if start > latest:
                return None

    def onward(
        self, before: int, start: float, end: float, links: Sequence[int], size: float
    ) -> tuple[list[float], float]:
        """Starts on the links after `before`, where `size` B enter from `start` on and
        have come by `end`: a relay begins when it has a first byte and no later than it
        has the last, and ends no sooner. And by how many s the first that finds no room
        would be too late (0: all do)."""
        starts: list[float] = []
        for link in links:
            took = size / self.rates[link]
            first = max(start + self.latencies[before], end - took)
            start = self.free_from(link, size, first)
            if start > end + _SLACK * took:
                return starts, start - end
            starts.append(start)
            before, end = link, start + took + self.latencies[link]
        return starts, 0.0

    # --- deliveries

    def freed(self, block: int, node: int) -> tuple[list[int], list[int]]:
        """Sends that only the delivery to `node` needs, and the GPUs that lose the
        block with it: `node`, and those before it that only pass it on."""
        tree, lost, sends = self.trees[block], [node], []
        while True:
            delivery = tree[lost[-1]]
            sends += [send for send in delivery.chain if self.uses[send] == 1]
            before = delivery.origin
            if before == self.source[block] or self.wants(block, before):
                return sends, lost
            if any(d.origin == before for n, d in tree.items() if n not in lost):
                return sends, lost
            lost.append(before)

    def beyond(self, block: int, node: int) -> set[int]:
        """GPUs that have the block by way of `node`, itself included."""
        tree, found = self.trees[block], {node}
        while True:
            more = {n for n, d in tree.items() if d.origin in found} - found
            if not more:
                return found
            found |= more

    def needed_at(self, block: int, node: int, limit: float) -> float:
        """When `node` must have the block: before it sends it on, or at `limit`."""
        starts = (
            self.start[d.chain[0]]
            for d in self.trees[block].values()
            if d.origin == node
        )
        return min(starts, default=limit)

    def ready_at(self, block: int, node: int) -> float:
        """When a GPU of the tree has the block."""
        if node == self.source[block]:
            return float(self.release[block])
        return self.trees[block][node].at

    def take_out(self, block: int, lost: list[int], sends: list[int]) -> list[Delivery]:
        """Remove the deliveries to `lost` and the sends that only they need."""
        out = [self.trees[block].pop(node) for node in lost]
        for delivery in out:
            for send in delivery.chain:
                self.uses[send] -= 1
        for send in sends:
            self._clear(send)
        return out

    def put_back(
        self, block: int, lost: list[int], sends: list[int], out: list[Delivery]
    ) -> None:
        """Undo `take_out`."""
        for send in sends:
            self._occupy(send)
        for node, delivery in zip(lost, out, strict=True):
            self.trees[block][node] = delivery
            for send in delivery.chain:
                self.uses[send] += 1

    def uproot(self, block: int) -> tuple[list[int], list[int], list[Delivery]]:
        """Remove the whole tree; GPUs, sends and deliveries, for `put_back`."""
        lost = list(self.trees[block])
        chains = (delivery.chain for delivery in self.trees[block].values())
        sends = sorted({send for chain in chains for send in chain})
        return lost, sends, self.take_out(block, lost, sends)

    def put_in(
        self, block: int, origin: int, node: int, steps: list[Step]
    ) -> tuple[int, ...]:
        """A delivery along `steps`; its sends."""
        chain = []
        for link, start, there in steps:
            send = there
            if send < 0:
                send = len(self.block)
                took = self.takes(link, self.size[block])
                self.block.append(block)
                self.link.append(link)
                self.start.append(start)
                self.end.append(start + took)
                self._occupy(send)
            self.uses[send] = self.uses.get(send, 0) + 1
            chain.append(send)
        last = self.end[chain[-1]]
        self.trees[block][node] = Delivery(origin, tuple(chain), last)
        return tuple(chain)

    def sends(self) -> Sends:
        """All sends that are needed now."""
        given = self.schedule.sends.bytes
        kept = [
            send
            for send, block in enumerate(self.block)
            if self.uses.get(send) or block in self.fixed
        ]
        rows = np.array(kept, int)
        block = np.array(self.block, int)[rows]
        size = self.schedule.demand.size[block].astype(float)
        old = rows < len(given)
        size[old] = given[rows[old]]
        return Sends(
            block,
            np.array(self.link, int)[rows],
            np.array(self.start, float)[rows],
            np.array(self.end, float)[rows],
            size,
            np.zeros(len(rows), int),
        )
