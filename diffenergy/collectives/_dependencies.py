"""Which sends wait for the data of which: at GPUs, and through switches."""

import collections
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ._schedule import Schedule

# --- Which send into a switch feeds which send out of it.

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
    """Tolerance within which times are the same (s)."""
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
    """Which sends carry summands."""
    summed = np.count_nonzero(schedule.demand.parts, axis=1) > 0
    return (schedule.sends.phase == 0) & summed[schedule.sends.block]


def whole(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Which sends belong to blocks that always move whole."""
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
        lost = [send for send in leaving if not _assign(send, may, owner)]
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
        left = [send for send in coming if not _assign(send, may, owner)]
        adds = [s for s in left if topology.nodes[int(target[s])].reduces and may[s]]
        for goes, send in [*owner.items(), *((may[s][0], s) for s in adds)]:
            self.feeds[goes].append(_all_of(self.schedule, send))
        lost = [send for send in left if send not in adds]
        return lost + [goes for goes in leaving if not self.feeds[goes]]


def _all_of(schedule: Schedule, send: int) -> Part:
    return Part(send, 0.0, float(schedule.sends.bytes[send]))


def _assign(send: int, may: dict[int, list[int]], owner: dict[int, int]) -> bool:
    """Whether `send` comes to own one of those that it `may` have, if need be by others
    that choose again: a shortest chain of moves."""
    mover_to: dict[int, int] = {}
    queue = [send]
    for mover in queue:
        for other in may[mover]:
            if other in mover_to:
                continue
            mover_to[other] = mover
            if other in owner:
                queue.append(owner[other])
                continue
            last = other
            while last is not None:  # back along the chain
                mover = mover_to[last]
                left = next((o for o in may[mover] if owner.get(o) == mover), None)
                owner[last] = mover
                last = left
            return True
    return False


# --- Which sends wait for the data of which


@dataclasses.dataclass(frozen=True)
class Passed:
    """Sends `into` a switch that it passes on by `out`: the bytes from share `low` to
    share `high` of what `into` carries.

    Where there was a `choice`, it fell by who ends and who starts first: pairs of
    `ends` and `starts` (first, second) are in that order.
    """

    into: Int[np.ndarray, " pair"]
    out: Int[np.ndarray, " pair"]
    low: Float[np.ndarray, " pair"]
    high: Float[np.ndarray, " pair"]
    choice: bool
    ends: Int[np.ndarray, "2 end"]
    starts: Int[np.ndarray, "2 start"]


def passed_on(schedule: Schedule, when: Arrivals) -> Passed:
    """What every send out of a switch passes on.

    Raises:
        ValueError: a send out of a switch that nothing feeds, or a summand that no
            send takes out of one.
    """
    sends, sums, choice = schedule.sends, ways_in(schedule), switched(schedule, when)
    if choice.odd:
        raise ValueError(_unfed_message(schedule, choice.odd[0]))
    pairs = [(part, send) for send, parts in choice.feeds.items() for part in parts]
    into = np.array([part.send for part, _ in pairs], int)
    source, target = _keys(schedule)
    return Passed(
        into,
        np.array([send for _, send in pairs], int),
        np.array([part.begin for part, _ in pairs]) / sends.bytes[into],
        np.array([part.stop for part, _ in pairs]) / sends.bytes[into],
        bool(choice.out.any()),
        _row(choice.into, [when.last, sums, target]),
        _row(choice.out, [sends.start, exits(schedule), sums, source]),
    )


def passable(schedule: Schedule, passed: Passed) -> bool:
    """Whether what was passed on by choice can be by the schedule's own times."""
    return not (passed.choice and switched(schedule, stated(schedule)).odd)


def _row(
    chosen: Bool[np.ndarray, " send"], keys: list[np.ndarray]
) -> Int[np.ndarray, "2 next"]:
    """Neighbours in order of the first key among sends alike in the others."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    before, after = rows[:-1], rows[1:]
    alike = np.ones(len(before), bool)
    for key in keys[1:]:
        alike &= key[before] == key[after]
    return np.stack([before[alike], after[alike]])


def _keys(
    schedule: Schedule,
) -> tuple[Int[np.ndarray, " send"], Int[np.ndarray, " send"]]:
    """One number for each (block, sender) and (block, receiver)."""
    base = schedule.sends.block * len(schedule.topology.nodes)
    return base + schedule.sources, base + schedule.targets


def _unfed_message(schedule: Schedule, send: int) -> str:
    sends, topology = schedule.sends, schedule.topology
    link = topology.link_name(int(sends.link[send]))
    return (
        f"`schedule` has a send of block {sends.block[send]} over {link} at "
        f"{sends.start[send]:.9g} s that the switch cannot pass on; "
        "give a schedule that `verify` finds right."
    )


def stored(schedule: Schedule, when: Arrivals) -> Int[np.ndarray, "2 pair"]:
    """Pairs (send into a GPU, send out of it) of the same data.

    Plain whole blocks wait for the first arrival, sums for all that have come, parts
    for those with the bytes that they carry, first come first sent.
    """
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    source, target = _keys(schedule)
    sums = ways_in(schedule)
    storing = topology.stores[schedule.sources]
    home = schedule.sources == demand.source[sends.block]
    intact = whole(schedule)
    first = np.full(len(demand.size) * len(topology.nodes), -1)
    easy = np.flatnonzero(~sums & intact)
    latest = easy[np.argsort(-when.last[easy], kind="stable")]
    first[target[latest]] = latest
    out = np.flatnonzero(~sums & intact & storing & ~home)
    out = out[first[source[out]] >= 0]
    pairs = [np.stack([first[source[out]], out])]
    if sums.any():
        summed = np.count_nonzero(demand.parts, axis=1) > 0
        adds = storing & (sums | home) & summed[sends.block]
        pairs.append(_all_before(schedule, when.last - slack_of(schedule), sums, adds))
    parted = ~sums & ~intact
    if parted.any():
        pairs.append(_by_parts(schedule, when, parted, storing))
    return np.concatenate(pairs, axis=1)


def _all_before(
    schedule: Schedule,
    last: Float[np.ndarray, " send"],
    into: Bool[np.ndarray, " send"],
    out: Bool[np.ndarray, " send"],
) -> Int[np.ndarray, "2 pair"]:
    """Each send `out` of a node with all of `into` that have come there by then."""
    source, target = _keys(schedule)
    coming = np.flatnonzero(into)
    coming = coming[np.argsort(target[coming], kind="stable")]
    leaving = np.flatnonzero(out)
    each = np.bincount(target[coming], minlength=int(source.max()) + 1)
    low = (np.cumsum(each) - each)[source[leaving]]
    count = each[source[leaving]]
    first = np.repeat(low - np.cumsum(count) + count, count)
    coming = coming[first + np.arange(int(count.sum()))]
    leaving = np.repeat(leaving, count)
    there = last[coming] <= schedule.sends.start[leaving]
    return np.stack([coming[there], leaving[there]])


def _by_parts(
    schedule: Schedule,
    when: Arrivals,
    parted: Bool[np.ndarray, " send"],
    storing: Bool[np.ndarray, " send"],
) -> Int[np.ndarray, "2 pair"]:
    """`stored` for blocks that move in parts."""
    sends, demand = schedule.sends, schedule.demand
    source, target = _keys(schedule)
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for send in np.flatnonzero(parted).tolist():
        into.setdefault(int(target[send]), []).append(send)
        if storing[send]:
            out.setdefault(int(source[send]), []).append(send)
    pairs: list[tuple[int, int]] = []
    for key, leaving in out.items():
        block, node = divmod(key, len(schedule.topology.nodes))
        coming = sorted(into.get(key, []), key=lambda s: float(when.last[s]))
        leaving.sort(key=lambda s: float(sends.start[s]))
        if demand.source[block] == node:
            continue
        if demand.wanted[block].sum() <= 1:
            pairs += _first_come(sends.bytes, coming, leaving)
        else:
            for link in dict.fromkeys(sends.link[leaving].tolist()):
                ahead = [send for send in leaving if sends.link[send] == link]
                pairs += _first_come(sends.bytes, _one_link(schedule, coming), ahead)
    return np.array(pairs, int).reshape(-1, 2).T


def _one_link(schedule: Schedule, coming: list[int]) -> list[int]:
    """Those of the `coming` sends, in order, whose link is the first to have brought
    the whole block."""
    sends = schedule.sends
    come: dict[int, float] = {}
    for send in coming:
        link = int(sends.link[send])
        come[link] = come.get(link, 0.0) + float(sends.bytes[send])
        if come[link] >= schedule.demand.size[sends.block[send]] * (1 - _BYTES):
            return [s for s in coming if sends.link[s] == link]
    return coming


def _first_come(
    size: Float[np.ndarray, " send"], coming: list[int], leaving: list[int]
) -> list[tuple[int, int]]:
    """Leaving sends with those whose bytes they carry, first come first sent."""
    pairs: list[tuple[int, int]] = []
    stock = [(send, float(size[send])) for send in reversed(coming)]
    for send in leaving:
        need = float(size[send])
        while stock and need > _BYTES * size[send]:
            there, left = stock.pop()
            pairs.append((there, send))
            if left > need * (1 + _BYTES):
                stock.append((there, left - need))
            need -= left
    return pairs
