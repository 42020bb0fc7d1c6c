"""Which send into a switch feeds which send out of it."""

import collections
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .schedule import Schedule

SAME: Final = 1e-9
"""Times this near each other, as a share of the last end, are the same."""
_BYTES: Final = 1e-6
"""Parts of a block that miss this share of it make it whole."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Bytes `begin` to `stop` of what `send` carries."""

    send: int
    begin: float
    stop: float


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """When a send can be sent on: a switch may begin between `first` and `last`, when
    its first and last byte have come in, and must not end before it has; s, (send,)."""

    first: Float[np.ndarray, " send"]
    last: Float[np.ndarray, " send"]
    leaves: Float[np.ndarray, " send"]
    """When the last byte of a send has left its sender."""


Dependencies = dict[int, list[Part]]
"""What each send out of a switch passes on or adds up."""


def slack_of(schedule: Schedule) -> float:
    """s within which times are the same."""
    return SAME * schedule.last_end


def stated(schedule: Schedule) -> Arrivals:
    """When sends can be sent on by their own times, also where epochs round those: the
    last byte comes no sooner than the first and leaves no sooner than the rate says."""
    sends, topology = schedule.sends, schedule.topology
    latency = topology.latencies[sends.link]
    busy = sends.bytes / topology.rates[sends.link]
    return Arrivals(
        np.minimum(sends.start + latency, sends.end),
        sends.end,
        np.maximum(sends.end - latency, sends.start + busy),
    )


def ways_in(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Sends of summands."""
    summed = np.count_nonzero(schedule.demand.parts, axis=1) > 0
    return (schedule.sends.phase == 0) & summed[schedule.sends.block]


def whole(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Sends of blocks of which no send is a part."""
    sends, demand = schedule.sends, schedule.demand
    part = sends.bytes < demand.size[sends.block] * (1 - _BYTES)
    split = np.bincount(sends.block[part], minlength=len(demand.size)) > 0
    return ~split[sends.block]


def exits(schedule: Schedule) -> Int[np.ndarray, " send"]:
    """The link of each send out of a switch that copies, which sends on what came in
    once over each link; -1 where it goes on once in all: of sums, and of blocks with
    one taker."""
    sends = schedule.sends
    many = np.count_nonzero(schedule.demand.wanted, axis=1) > 1
    copied = schedule.topology.copies[schedule.sources] & many[sends.block]
    return np.where(copied & ~ways_in(schedule), sends.link, -1)


@dataclasses.dataclass(frozen=True)
class Switched:
    """What switches pass on, and the sends without the other half: those out that find
    nothing, summands that none takes. `into`, `out`: sends among which was a choice."""

    feeds: Dependencies
    odd: list[int]
    into: Bool[np.ndarray, " send"]
    out: Bool[np.ndarray, " send"]


def switched(schedule: Schedule, when: Arrivals) -> Switched:
    """What each send out of a switch takes of those into it.

    The one send that brings a whole block goes on by all that take it, and all summands
    by the one that takes them, whatever their times; elsewhere the times `when` choose.
    """
    sends, topology = schedule.sends, schedule.topology
    sums, intact, link = ways_in(schedule), whole(schedule), exits(schedule)
    source, target = schedule.sources, schedule.targets
    base = sends.block * len(topology.nodes)
    coming: dict[tuple[int, bool], list[int]] = collections.defaultdict(list)
    rows = np.flatnonzero(~topology.stores[target])
    rows = rows[np.argsort(when.last[rows], kind="stable")]
    for *place, send in zip(*_columns(rows, base + target, sums), strict=True):
        coming[tuple(place)].append(send)
    leaving: dict[tuple[int, bool, int], list[int]] = collections.defaultdict(list)
    rows = np.flatnonzero(~topology.stores[source])
    for *place, send in zip(*_columns(rows, base + source, sums, link), strict=True):
        leaving[tuple(place)].append(send)
    feeds: Dependencies = {}
    choice = _Choice(schedule, when, slack_of(schedule), feeds)
    odd = [
        send
        for place, come in coming.items()
        if place[1] and (*place, -1) not in leaving
        for send in come
    ]
    into, out = np.zeros((2, len(sends)), bool)
    into[odd] = True
    for place, goes in leaving.items():
        come, summands = coming.get(place[:2], []), place[1]
        feeds |= {send: [] for send in goes}
        if len(goes if summands else come) == 1 and (summands or intact[come[0]]):
            for send in goes:
                feeds[send] = [_all_of(schedule, n) for n in sorted(come)]
            continue
        into[come], out[goes] = True, True
        goes = sorted(goes, key=lambda s: float(sends.start[s]))
        least = sends.bytes[[*come, *goes]].min()
        alike = least >= schedule.demand.size[sends.block[goes[0]]] * (1 - _BYTES)
        rule = choice.add if summands else choice.pair if alike else choice.match
        odd += rule(come, goes)
    return Switched(feeds, odd, into, out)


def _columns(rows: Int[np.ndarray, " row"], *columns: np.ndarray) -> list[list]:
    """The rows of the columns, and their numbers."""
    return [*(column[rows].tolist() for column in columns), rows.tolist()]


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Who passes on what where times choose; each rule fills `feeds` and gives the
    sends without the other half. `slack`: s within which times are the same."""

    schedule: Schedule
    when: Arrivals
    slack: float
    feeds: Dependencies

    def fits(self, came: int, goes: int) -> bool:
        """Whether `goes` can pass on the whole of `came` without a store."""
        when, start = self.when, self.schedule.sends.start[goes]
        return bool(
            when.first[came] - self.slack <= start <= when.last[came] + self.slack
            and when.last[came] <= when.leaves[goes] + self.slack
        )

    def pair(self, coming: list[int], leaving: list[int]) -> list[int]:
        """Gives every leaving send of a whole block one that has come in, what must go
        first before others, as long as all find one."""
        may = {s: [came for came in coming if self.fits(came, s)] for s in leaving}
        owner: dict[int, int] = {}
        lost = [send for send in leaving if not _chooses(send, may, owner)]
        for came, send in owner.items():
            self.feeds[send] = [_all_of(self.schedule, came)]
        return lost

    def match(self, coming: list[int], leaving: list[int]) -> list[int]:
        """Gives every leaving send what has come in and must go first."""
        sends, when, slack = self.schedule.sends, self.when, self.slack
        block = sends.block[leaving[0]]
        crumb = _BYTES * float(self.schedule.demand.size[block])
        used = dict.fromkeys(coming, 0.0)
        for send in leaving:
            start, left = float(sends.start[send]), float(sends.bytes[send])
            parts: list[Part] = []
            for source, begin in used.items():
                stop = min(float(sends.bytes[source]), begin + left)
                if stop - begin <= crumb or when.last[source] < start - slack:
                    continue
                pace = (when.last[source] - when.first[source]) / sends.bytes[source]
                if when.first[source] + begin * pace > start + slack:
                    continue
                if when.first[source] + stop * pace > when.leaves[send] + slack:
                    continue
                parts.append(Part(source, begin, stop))
                left -= stop - begin
                if left <= crumb:
                    break
            for part in parts:
                used[part.send] = part.stop
            self.feeds[send] = parts
            if left > crumb:
                return [send]
        return []

    def add(self, coming: list[int], leaving: list[int]) -> list[int]:
        """Gives every summand that comes in a leaving sum, several one only where the
        switch reduces.

        Those whose last byte comes first choose first, the earliest that may take them
        and has nothing yet; who finds none makes others choose again, so that as many
        as can have one of their own. What is left joins others in switches that reduce.
        Nothing goes back at once.
        """
        topology = self.schedule.topology
        source, target = self.schedule.sources, self.schedule.targets
        may = {
            send: [
                goes
                for goes in leaving
                if target[goes] != source[send] and self.fits(send, goes)
            ]
            for send in coming
        }
        owner: dict[int, int] = {}
        left = [send for send in coming if not _chooses(send, may, owner)]
        adds = [s for s in left if topology.nodes[int(target[s])].reduces and may[s]]
        for goes, send in [*owner.items(), *((may[s][0], s) for s in adds)]:
            self.feeds[goes].append(_all_of(self.schedule, send))
        lost = [send for send in left if send not in adds]
        return lost + [goes for goes in leaving if not self.feeds[goes]]


def _all_of(schedule: Schedule, send: int) -> Part:
    return Part(send, 0.0, float(schedule.sends.bytes[send]))


def _chooses(send: int, may: dict[int, list[int]], owner: dict[int, int]) -> bool:
    """Whether `send` comes to own one of those that it `may` have, if need be by others
    that choose again: a shortest chain of moves."""
    asked: dict[int, int] = {}
    queue = [send]
    for mover in queue:
        for other in may[mover]:
            if other in asked:
                continue
            asked[other] = mover
            if other in owner:
                queue.append(owner[other])
                continue
            last = other
            while last is not None:  # back along the chain
                mover = asked[last]
                left = next((o for o in may[mover] if owner.get(o) == mover), None)
                owner[last] = mover
                last = left
            return True
    return False
