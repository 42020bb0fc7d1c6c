"""What a switch may send on, as the verifier sees it: nothing waits there.

Written for `verify` alone, so that it shares nothing with what makes schedules. A
switch begins to send on between the first and the last byte of what comes in, and its
own last byte leaves no earlier than that came in.
"""

import collections
from typing import Final

import numpy as np
from jaxtyping import Bool, Int

from ._schedule import Schedule
from ._violation import Fault, fault

_CRUMB: Final = 1e-6
"""Share of a block below which bytes do not count."""


def grouped(
    chosen: Int[np.ndarray, " some"], *keys: Int[np.ndarray, " send"]
) -> dict[tuple[int, ...], list[int]]:
    """The chosen sends, in order, by what they have as keys; none by any other key."""
    groups: dict[tuple[int, ...], list[int]] = collections.defaultdict(list)
    columns = (key[chosen].tolist() for key in keys)
    for send, *key in zip(chosen.tolist(), *columns, strict=True):
        groups[tuple(key)].append(send)
    return groups


def unfed(
    schedule: Schedule,
    chosen: Bool[np.ndarray, " send"],
    once: Bool[np.ndarray, " block"],
    slack: float,
) -> list[Fault]:
    """Of the `chosen` sends, those out of switches that pass on what they cannot, with
    what is wrong: the first of each block at each switch.

    What came in goes out once over each link if the switch copies, else once in all;
    blocks that leave `once` do so also where it copies.
    """
    sends, topology, times = schedule.sends, schedule.topology, _Times(schedule, slack)
    source, target = schedule.sources, schedule.targets
    into = np.flatnonzero(chosen & ~topology.stores[target])
    coming = grouped(into, sends.block, target)
    copied = topology.copies[source] & ~once[sends.block]
    way = np.where(copied, sends.link, -1)
    onward = np.flatnonzero(chosen & ~topology.stores[source])
    leaving = grouped(onward, sends.block, source, way)
    faults: list[Fault] = []
    for (block, node, _), out in leaving.items():
        size = float(schedule.demand.size[block])
        here = sorted(coming[block, node], key=lambda s: times.last[s])
        out = sorted(out, key=lambda s: times.start[s])
        whole = sends.bytes[[*here, *out]].min() >= size * (1 - _CRUMB)
        rule = _unpaired if whole else _overdrawn
        send = rule(times, here, out, _CRUMB * size)
        if send is not None:
            text = _reason(schedule, times, here, send)
            faults.append(fault(schedule, send, text))
    return faults


def summed(
    schedule: Schedule, ways_in: Bool[np.ndarray, " send"], slack: float
) -> tuple[dict[int, list[int]], set[int]]:
    """For each send of a sum out of a switch, the sends whose summands it carries, and
    the sends into switches whose summands nothing carries on.

    A summand goes on once. First every send in gets one out of its own, as far as
    possible; the ends of the sends in tell who chooses first, the starts of the sends
    out what is taken first. What is left joins the first that it can in a switch that
    reduces. Nothing goes back where it came from at once.
    """
    sends, topology, times = schedule.sends, schedule.topology, _Times(schedule, slack)
    source, target = schedule.sources, schedule.targets
    out = np.flatnonzero(ways_in & ~topology.stores[source])
    out = out[np.argsort(sends.start[out], kind="stable")]
    leaving = grouped(out, sends.block, source)
    into = np.flatnonzero(ways_in & ~topology.stores[target])
    into = into[np.argsort(times.last[into], kind="stable")].tolist()
    options: dict[int, list[int]] = {
        send: [
            other
            for other in leaving[int(sends.block[send]), int(target[send])]
            if target[other] != source[send] and times.passes(send, other)
        ]
        for send in into
    }
    owner: dict[int, int] = {}
    left = [send for send in into if not _settle(send, options, owner)]
    carries: dict[int, list[int]] = {send: [] for send in out.tolist()}
    for other, send in owner.items():
        carries[other].append(send)
    lost: set[int] = set()
    for send in left:
        if options[send] and topology.nodes[int(target[send])].reduces:
            carries[options[send][0]].append(send)
        else:
            lost.add(send)
    return carries, lost


class _Times:
    """Of each send, s: its start; when its first and last byte arrive; when its last
    byte has left. `slack`: s within which times are the same."""

    def __init__(self, schedule: Schedule, slack: float) -> None:
        sends = schedule.sends
        latency = schedule.topology.latencies[sends.link]
        self.start, self.first = sends.start, sends.start + latency
        self.last, self.leaves = sends.end, sends.end - latency
        self.bytes, self.slack = sends.bytes, slack

    def passes(self, came: int, goes: int, low: float = 0.0, high: float = 1.0) -> bool:
        """Whether `goes` can pass on the share `low` to `high` of `came` without a
        store: none of it left behind when it starts, each byte there at its turn."""
        start, took = self.start[goes], self.last[came] - self.first[came]
        return bool(
            self.first[came] + low * took <= start + self.slack
            and start <= self.last[came] + self.slack
            and self.first[came] + high * took <= self.leaves[goes] + self.slack
        )


def _unpaired(
    times: _Times, coming: list[int], leaving: list[int], crumb: float
) -> int | None:
    """First send of a whole block that finds none of its own that came in."""
    options = {out: [s for s in coming if times.passes(s, out)] for out in leaving}
    owner: dict[int, int] = {}
    return next((out for out in leaving if not _settle(out, options, owner)), None)


def _overdrawn(
    times: _Times, coming: list[int], leaving: list[int], crumb: float
) -> int | None:
    """First send of a part of a block that finds fewer bytes than it carries, each send
    taking first what must go first."""
    used = dict.fromkeys(coming, 0.0)
    for out in leaving:
        left = float(times.bytes[out])
        for came, low in used.items():
            size = float(times.bytes[came])
            high = min(size, low + left)
            if left <= crumb or high - low <= crumb:
                continue
            if times.passes(came, out, low / size, high / size):
                used[came] = high
                left -= high - low
        if left > crumb:
            return out
    return None


def _settle(send: int, options: dict[int, list[int]], owner: dict[int, int]) -> bool:
    """Whether `send` could get one of its `options`, which `owner` then notes.

    If all are taken, their takers change to others of theirs: the shortest chain of
    changes (breadth first) that ends at one that is free.
    """
    reached: dict[int, tuple[int, int | None]] = {}
    waiting: collections.deque[tuple[int, int | None]] = collections.deque()
    waiting.append((send, None))
    while waiting:
        taker, gives_up = waiting.popleft()
        for option in options[taker]:
            if option in reached:
                continue
            reached[option] = taker, gives_up
            if option in owner:
                waiting.append((owner[option], option))
                continue
            free: int | None = option
            while free is not None:
                owner[free], free = reached[free]
            return True
    return False


def _reason(schedule: Schedule, times: _Times, coming: list[int], send: int) -> str:
    """Why a send out of a switch has nothing to pass on."""
    node = schedule.topology.nodes[schedule.sources[send]]
    start, slack = times.start[send], times.slack
    gone = [s for s in coming if times.last[s] < start - slack]
    begun = [s for s in coming if times.first[s] <= start + slack and s not in gone]
    if any(times.last[s] > times.leaves[send] + slack for s in begun):
        return f"leaves {node.name} before its last byte has come in."
    if begun and not node.copy:
        return f"is a second way out of {node.name}, which cannot copy."
    if begun:
        return f"carries again what {node.name} has sent on over this link."
    if gone:
        return f"waits in {node.name}, which cannot store."
    return f"carries what {node.name} does not hold yet."
