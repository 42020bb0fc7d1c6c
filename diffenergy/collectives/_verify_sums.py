"""Sums on their way in: every summand once."""

import heapq

import numpy as np
from jaxtyping import Float

from ._schedule import Schedule
from ._verify_switches import grouped, summed
from ._violation import Fault, block_name, fault


def sums(
    schedule: Schedule, slack: float
) -> tuple[Float[np.ndarray, " block"], Float[np.ndarray, "block node"], list[Fault]]:
    """When the source of each block has the whole sum (s, inf: never), when any node
    has it, and what is wrong.

    A send carries all summands that its sender holds when it starts; the sender keeps
    them, so that what it sends twice counts twice.
    """
    sends, demand = schedule.sends, schedule.demand
    present = np.full(demand.wanted.shape, np.inf)
    begin = np.zeros(len(demand.size))
    faults: list[Fault] = []
    is_sum = np.any(demand.parts, axis=1)
    ways_in = (sends.phase == 0) & is_sum[sends.block]
    switched = summed(schedule, ways_in, slack)
    chosen = np.flatnonzero(ways_in)
    chosen = chosen[np.argsort(sends.start[chosen], kind="stable")]
    moved = grouped(chosen, sends.block)
    for block in np.flatnonzero(is_sum).tolist():
        replay = _Sum(schedule, block, slack, switched, present[block])
        faults += replay.run(moved[block,])
        begin[block] = present[block, demand.source[block]]
    return begin, present, faults


class _Sum:
    """Replay of one block; sets of summands are bits of an integer."""

    def __init__(
        self,
        schedule: Schedule,
        block: int,
        slack: float,
        switched: tuple[dict[int, list[int]], set[int]],
        present: Float[np.ndarray, " node"],
    ) -> None:
        self.schedule, self.block, self.slack = schedule, block, slack
        self.feeds, self.lost = switched
        self.present = present
        nodes = np.flatnonzero(schedule.demand.parts[block]).tolist()
        self.held = {node: 1 << n for n, node in enumerate(nodes)}
        self.names = [schedule.topology.nodes[node].name for node in nodes]
        self.full = (1 << len(nodes)) - 1
        self.carried: dict[int, int] = {}
        self.flying: list[tuple[float, int]] = []
        self.faults: list[Fault] = []

    def run(self, mine: list[int]) -> list[Fault]:
        """What is wrong first with the sends `mine`, in order of their starts."""
        sends, topology = self.schedule.sends, self.schedule.topology
        size = self.schedule.demand.size[self.block]
        if self.full == 1:
            self.present[list(self.held)] = 0.0
        for send in mine:
            self._check_switch(send)
        for send in mine:
            self._land(float(sends.start[send]))
            if self.faults:
                return self.faults
            self._load(send)
            if not self.carried[send]:
                self._wrong(send, "carries no summand at all.")
            if sends.bytes[send] < size * (1 - 1e-6):
                self._wrong(send, "carries a part; sums move whole.")
            if topology.stores[self.schedule.targets[send]]:
                heapq.heappush(self.flying, (float(sends.end[send]), send))
        self._land(np.inf)
        self._check_whole()
        return self.faults

    def _load(self, send: int) -> None:
        """Notes what a send carries; what feeds it may start at the same moment and
        come later in the list."""
        source = int(self.schedule.sources[send])
        if send in self.carried:
            return
        self.carried[send] = 0
        if self.schedule.topology.stores[source]:
            self.carried[send] = self.held.get(source, 0)
            return
        for feed in self.feeds[send]:
            self._load(feed)
            self.carried[send] = self._added(send, self.carried[send], feed)

    def _land(self, now: float) -> None:
        """Adds up what has arrived by `now`, up to the first fault."""
        before = len(self.faults)
        while self.flying and self.flying[0][0] <= now + self.slack:
            time, send = heapq.heappop(self.flying)
            node = int(self.schedule.targets[send])
            total = self._added(send, self.held.get(node, 0), send)
            if len(self.faults) > before:
                return
            self.held[node] = total
            if total == self.full:
                self.present[node] = time

    def _added(self, send: int, summands: int, came: int) -> int:
        """Summands held and those that `came` carries, each once."""
        if twice := summands & self.carried[came]:
            name = self.names[twice.bit_length() - 1]
            self._wrong(send, f"adds the summand of {name} a second time.")
        return summands | self.carried[came]

    def _check_switch(self, send: int) -> None:
        """A send in or out of a switch has the other half."""
        if send in self.lost:
            text = "comes into a switch that cannot pass it on or add it up then."
            self._wrong(send, text)
        if self.feeds.get(send) == []:
            name = self.schedule.topology.names[self.schedule.sources[send]]
            self._wrong(send, f"leaves {name} when nothing comes in: it cannot store.")

    def _check_whole(self) -> None:
        """The sum has every summand in the end."""
        node = int(self.schedule.demand.source[self.block])
        if lost := self.full & ~self.held.get(node, 0):
            name = self.names[lost.bit_length() - 1]
            where = block_name(self.schedule, self.block)
            text = f"the summand of {name} never reaches the sum in {where}."
            self.faults.append(Fault(np.inf, text))

    def _wrong(self, send: int, text: str) -> None:
        self.faults.append(fault(self.schedule, send, text))
