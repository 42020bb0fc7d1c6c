"""Sums on their way in: every summand once."""

import heapq

import numpy as np
from jaxtyping import Float

from .._schedule.schedule import Schedule
from .verify_switches import summed
from .violation import Fault, block_name, describe

_Switched = tuple[dict[int, list[int]], set[int]]
"""What sends out of switches take, and the sends into switches that none takes."""


def sums(
    schedule: Schedule, slack: float
) -> tuple[Float[np.ndarray, " block"], Float[np.ndarray, "block node"], list[Fault]]:
    """When the source of each block has the whole sum (s, inf: never), when any node
    has it, and what is wrong.

    A send carries all summands that its sender holds when it starts; the sender keeps
    them, so that what it sends twice counts twice.
    """
    demand = schedule.demand
    present = np.full(demand.wanted.shape, np.inf)
    begin = np.zeros(len(demand.size))
    faults: list[Fault] = []
    ways_in = schedule.sends.phase == 0
    ways_in &= (np.count_nonzero(demand.parts, axis=1) > 0)[schedule.sends.block]
    switched = summed(schedule, ways_in, slack)
    chosen = np.flatnonzero(ways_in)
    order = chosen[
        np.lexsort((schedule.sends.start[chosen], schedule.sends.block[chosen]))
    ]
    blocks = np.arange(len(demand.size) + 1)
    bounds = np.searchsorted(schedule.sends.block[order], blocks)
    for block in np.flatnonzero(demand.parts.any(axis=1)).tolist():
        mine = order[bounds[block] : bounds[block + 1]].tolist()
        faults += _Sum(schedule, block, slack, switched).run(mine, present)
        begin[block] = present[block, demand.source[block]]
    return begin, present, faults


class _Sum:
    """Replay of one block; sets of summands are bits of an integer."""

    def __init__(
        self, schedule: Schedule, block: int, slack: float, switched: _Switched
    ) -> None:
        self.schedule, self.block, self.slack = schedule, block, slack
        self.feeds, self.lost = switched
        nodes = np.flatnonzero(schedule.demand.parts[block]).tolist()
        self.held = {node: 1 << n for n, node in enumerate(nodes)}
        self.names = [schedule.topology.nodes[node].name for node in nodes]
        self.full = (1 << len(nodes)) - 1

    def run(
        self, mine: list[int], present: Float[np.ndarray, "block node"]
    ) -> list[Fault]:
        """What is wrong first with the sends `mine`, in order of their starts."""
        sends, topology = self.schedule.sends, self.schedule.topology
        if self.full == 1:
            present[self.block, list(self.held)] = 0.0
        faults = self._switched(mine)
        carried: dict[int, int] = {}
        flying: list[tuple[float, int]] = []
        for send in mine:
            faults += self._land(float(sends.start[send]), flying, carried, present)
            if faults:
                return faults
            faults += self._load(send, carried)
            if not carried[send]:
                faults.append(self._fault(send, "carries no summand at all."))
            if sends.bytes[send] < self.schedule.demand.size[self.block] * (1 - 1e-6):
                faults.append(self._fault(send, "carries a part; sums move whole."))
            if topology.stores[topology.targets[sends.link[send]]]:
                heapq.heappush(flying, (float(sends.end[send]), send))
        return faults + self._land(np.inf, flying, carried, present) + self._missing()

    def _load(self, send: int, carried: dict[int, int]) -> list[Fault]:
        """Notes what a send carries; what feeds it may start at the same moment and
        come later in the list."""
        topology, link = self.schedule.topology, self.schedule.sends.link[send]
        source = int(topology.sources[link])
        if send in carried:
            return []
        if topology.stores[source]:
            carried[send] = self.held.get(source, 0)
            return []
        faults: list[Fault] = []
        carried[send] = 0
        for feed in self.feeds[send]:
            faults += self._load(feed, carried)
            faults += self._added(send, carried[send], carried[feed])
            carried[send] |= carried[feed]
        return faults

    def _land(
        self,
        now: float,
        flying: list[tuple[float, int]],
        carried: dict[int, int],
        present: Float[np.ndarray, "block node"],
    ) -> list[Fault]:
        """Adds up what has arrived by `now`."""
        topology = self.schedule.topology
        while flying and flying[0][0] <= now + self.slack:
            time, send = heapq.heappop(flying)
            node = int(topology.targets[self.schedule.sends.link[send]])
            held = self.held.get(node, 0)
            faults = self._added(send, held, carried[send])
            if faults:
                return faults
            self.held[node] = held | carried[send]
            if self.held[node] == self.full:
                present[self.block, node] = time
        return []

    def _added(self, send: int, held: int, new: int) -> list[Fault]:
        twice = held & new
        if not twice:
            return []
        name = self.names[twice.bit_length() - 1]
        return [self._fault(send, f"adds the summand of {name} a second time.")]

    def _switched(self, mine: list[int]) -> list[Fault]:
        """Sends in and out of switches without the other half."""
        faults: list[Fault] = []
        for send in mine:
            link = self.schedule.topology.links[self.schedule.sends.link[send]]
            if send in self.lost:
                text = "comes into a switch that cannot pass it on or add it up then."
                faults.append(self._fault(send, text))
            if self.feeds.get(send) == []:
                name = self.schedule.topology.nodes[link.source].name
                text = f"leaves {name} when nothing comes in: it cannot store."
                faults.append(self._fault(send, text))
        return faults

    def _missing(self) -> list[Fault]:
        node = int(self.schedule.demand.source[self.block])
        lost = self.full & ~self.held.get(node, 0)
        if not lost:
            return []
        return [
            Fault(
                np.inf,
                f"the summand of {self.names[lost.bit_length() - 1]} never reaches "
                f"the sum in {block_name(self.schedule, self.block)}.",
            )
        ]

    def _fault(self, send: int, text: str) -> Fault:
        start = float(self.schedule.sends.start[send])
        return Fault(start, f"{describe(self.schedule, send)} {text}")
