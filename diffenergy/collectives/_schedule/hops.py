"""Which send into a switch feeds which send out of it."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from .schedule import Schedule

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


def arrivals(schedule: Schedule) -> Arrivals:
    """Those that the sends state."""
    sends = schedule.sends
    latency = schedule.topology.latencies[sends.link]
    return Arrivals(sends.start + latency, sends.end, sends.end - latency)


def through_switches(
    schedule: Schedule,
    chosen: Bool[np.ndarray, " send"],
    slack: float,
    conserved: Bool[np.ndarray, " block"],
    when: Arrivals | None = None,
) -> tuple[dict[int, list[Part]], list[tuple[int, str]]]:
    """The parts of sends into a switch that each send out of it passes on, and the
    sends out of switches that have none, with what is wrong.

    `conserved` blocks leave a switch once, also where it copies.
    """
    sends, topology = schedule.sends, schedule.topology
    when = arrivals(schedule) if when is None else when
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    into: dict[tuple[int, int], list[int]] = {}
    out: dict[tuple[int, int, int], list[int]] = {}
    for send in np.flatnonzero(chosen & ~topology.stores[target]).tolist():
        key = int(sends.block[send]), int(target[send])
        into.setdefault(key, []).append(send)
    for send in np.flatnonzero(chosen & ~topology.stores[source]).tolist():
        block, node = int(sends.block[send]), int(source[send])
        spreads = topology.nodes[node].copy and not conserved[block]
        key = block, node, int(sends.link[send]) if spreads else -1
        out.setdefault(key, []).append(send)
    feeds: dict[int, list[Part]] = {}
    faults: list[tuple[int, str]] = []
    for (block, node, _), leaving in out.items():
        size = float(schedule.demand.size[block])
        coming = into.get((block, node), [])
        if sends.bytes[[*coming, *leaving]].min() >= size * (1 - _BYTES):
            faults += _pair(schedule, coming, leaving, when, slack, feeds)
            continue
        faults += _match(schedule, coming, leaving, when, slack, _BYTES * size, feeds)
    return feeds, faults


def _pair(
    schedule: Schedule,
    coming: list[int],
    leaving: list[int],
    when: Arrivals,
    slack: float,
    feeds: dict[int, list[Part]],
) -> list[tuple[int, str]]:
    """Gives every leaving send of a whole block one that has come in, what must go
    first before others, as long as all find one."""
    sends = schedule.sends
    first, last = when.first, when.last
    coming = sorted(coming, key=lambda s: float(last[s]))
    leaving = sorted(leaving, key=lambda s: float(sends.start[s]))
    may = {
        send: [
            source
            for source in coming
            if first[source] - slack <= sends.start[send] <= last[source] + slack
            and last[source] <= when.leaves[send] + slack
        ]
        for send in leaving
    }
    owner: dict[int, int] = {}
    lost = [send for send in leaving if not _chooses(send, may, owner)]
    for source, send in owner.items():
        feeds[send] = [Part(source, 0.0, float(sends.bytes[source]))]
    for send in lost:
        feeds[send] = []
    return [(n, _reason(schedule, coming, n, when, slack)) for n in lost[:1]]


def _match(
    schedule: Schedule,
    coming: list[int],
    leaving: list[int],
    when: Arrivals,
    slack: float,
    crumb: float,
    feeds: dict[int, list[Part]],
) -> list[tuple[int, str]]:
    """Gives every leaving send what has come in and must go first."""
    sends = schedule.sends
    used = dict.fromkeys(sorted(coming, key=lambda s: float(when.last[s])), 0.0)
    for send in sorted(leaving, key=lambda s: float(sends.start[s])):
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
        feeds[send] = parts
        if left > crumb:
            return [(send, _reason(schedule, coming, send, when, slack))]
    return []


def _reason(
    schedule: Schedule, coming: list[int], send: int, when: Arrivals, slack: float
) -> str:
    """Why a send out of a switch has nothing to pass on."""
    sends = schedule.sends
    node = schedule.topology.nodes[schedule.topology.sources[sends.link[send]]]
    gone = [s for s in coming if when.last[s] < sends.start[send] - slack]
    here = [
        s
        for s in coming
        if s not in gone and when.first[s] <= sends.start[send] + slack
    ]
    if here and any(when.last[s] > when.leaves[send] + slack for s in here):
        return f"leaves {node.name} before its last byte has come in."
    if here and not node.copy:
        return f"is a second way out of {node.name}, which cannot copy."
    if here:
        return f"carries again what {node.name} has sent on over this link."
    if gone:
        return f"waits in {node.name}, which cannot store."
    return f"carries what {node.name} does not hold yet."


def into_sums(
    schedule: Schedule,
    ways_in: Bool[np.ndarray, " send"],
    slack: float,
    when: Arrivals | None = None,
) -> tuple[dict[int, list[Part]], list[int]]:
    """What each send of a sum out of a switch takes, several sends only where the
    switch reduces; and the sends into switches that none takes.

    Those whose last byte comes first choose first, the earliest that may take them and
    has nothing yet; who finds none makes others choose again, so that as many as can
    have one of their own. What is left joins others in switches that reduce. Nothing
    goes back at once.
    """
    sends, topology = schedule.sends, schedule.topology
    when = arrivals(schedule) if when is None else when
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    out = np.flatnonzero(ways_in & ~topology.stores[source])
    leaving: dict[tuple[int, int], list[int]] = {}
    for send in out[np.argsort(sends.start[out], kind="stable")].tolist():
        leaving.setdefault((int(sends.block[send]), int(source[send])), []).append(send)

    def takers(send: int) -> list[int]:
        here = leaving.get((int(sends.block[send]), int(target[send])), [])
        return [
            other
            for other in here
            if target[other] != source[send]
            and when.first[send] - slack <= sends.start[other]
            and sends.start[other] <= when.last[send] + slack
            and when.last[send] <= when.leaves[other] + slack
        ]

    into = np.flatnonzero(ways_in & ~topology.stores[target])
    into = into[np.argsort(when.last[into], kind="stable")].tolist()
    may = {send: takers(send) for send in into}
    owner: dict[int, int] = {}
    left = [send for send in into if not _chooses(send, may, owner)]
    adds = [n for n in left if topology.nodes[int(target[n])].reduces and may[n]]
    feeds: dict[int, list[Part]] = {int(send): [] for send in out}
    for send, other in [(n, o) for o, n in owner.items()] + [
        (n, may[n][0]) for n in adds
    ]:
        feeds[other].append(Part(send, 0.0, float(sends.bytes[send])))
    return feeds, [send for send in left if send not in adds]


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
