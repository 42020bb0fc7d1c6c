"""What a switch may send on, as the verifier sees it: nothing waits there.

Written for `verify` alone, so that it shares nothing with what makes schedules. A
switch begins to send on between the first and the last byte of what comes in, and its
own last byte leaves no earlier than that came in.
"""

import collections
import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from .._schedule.schedule import Schedule

_CRUMB: Final = 1e-6
"""Share of a block below which bytes do not count."""


def unfed(
    schedule: Schedule,
    chosen: Bool[np.ndarray, " send"],
    once: Bool[np.ndarray, " block"],
    slack: float,
) -> list[tuple[int, str]]:
    """Of the `chosen` sends, those out of switches that pass on what they cannot, with
    what is wrong: the first of each block at each switch.

    What came in goes out once over each link if the switch copies, else once in all;
    blocks that leave `once` do so also where it copies.
    """
    sends, topology, times = schedule.sends, schedule.topology, _times(schedule, slack)
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    coming: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
    for send in np.flatnonzero(chosen & ~topology.stores[target]).tolist():
        coming[int(sends.block[send]), int(target[send])].append(send)
    leaving: dict[tuple[int, int, int], list[int]] = collections.defaultdict(list)
    for send in np.flatnonzero(chosen & ~topology.stores[source]).tolist():
        block, node = int(sends.block[send]), int(source[send])
        copied = topology.nodes[node].copy and not once[block]
        leaving[block, node, int(sends.link[send]) if copied else -1].append(send)
    faults: list[tuple[int, str]] = []
    for (block, node, _), out in leaving.items():
        size = float(schedule.demand.size[block])
        here = sorted(coming.get((block, node), []), key=lambda s: times.last[s])
        out = sorted(out, key=lambda s: times.start[s])
        whole = sends.bytes[[*here, *out]].min() >= size * (1 - _CRUMB)
        rule = _unpaired if whole else _overdrawn
        send = rule(times, here, out, _CRUMB * size)
        if send is not None:
            faults.append((send, _reason(schedule, times, here, send)))
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
    sends, topology, times = schedule.sends, schedule.topology, _times(schedule, slack)
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    out = np.flatnonzero(ways_in & ~topology.stores[source])
    leaving: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
    for send in out[np.argsort(sends.start[out], kind="stable")].tolist():
        leaving[int(sends.block[send]), int(source[send])].append(send)
    into = np.flatnonzero(ways_in & ~topology.stores[target])
    into = into[np.argsort(times.last[into], kind="stable")].tolist()
    options: dict[int, list[int]] = {
        send: [
            other
            for other in leaving.get((int(sends.block[send]), int(target[send])), [])
            if target[other] != source[send] and times.passes(send, other)
        ]
        for send in into
    }
    taken: dict[int, int] = {}
    left = [send for send in into if not _settle(send, options, taken)]
    carries: dict[int, list[int]] = {send: [] for send in out.tolist()}
    for other, send in taken.items():
        carries[other].append(send)
    lost: set[int] = set()
    for send in left:
        if options[send] and topology.nodes[int(target[send])].reduces:
            carries[options[send][0]].append(send)
        else:
            lost.add(send)
    return carries, lost


@dataclasses.dataclass(frozen=True)
class _Times:
    """Of each send, s: its start; when its first and last byte arrive; when its last
    byte has left. `slack`: s within which times are the same."""

    start: Float[np.ndarray, " send"]
    first: Float[np.ndarray, " send"]
    last: Float[np.ndarray, " send"]
    leaves: Float[np.ndarray, " send"]
    bytes: Float[np.ndarray, " send"]
    slack: float

    def passes(self, came: int, goes: int) -> bool:
        """Whether `goes` can pass on the whole of `came` without a store."""
        start = self.start[goes]
        return bool(
            self.first[came] <= start + self.slack
            and start <= self.last[came] + self.slack
            and self.last[came] <= self.leaves[goes] + self.slack
        )

    def passes_bytes(self, came: int, goes: int, low: float, high: float) -> bool:
        """Whether `goes` can pass on bytes `low` to `high` of `came`: none of it left
        behind when it starts, each there when its turn comes."""
        start, pace = self.start[goes], self.last[came] - self.first[came]
        pace = pace / self.bytes[came]
        return bool(
            self.last[came] >= start - self.slack
            and self.first[came] + low * pace <= start + self.slack
            and self.first[came] + high * pace <= self.leaves[goes] + self.slack
        )


def _times(schedule: Schedule, slack: float) -> _Times:
    sends = schedule.sends
    latency = schedule.topology.latencies[sends.link]
    return _Times(
        sends.start,
        sends.start + latency,
        sends.end,
        sends.end - latency,
        sends.bytes,
        slack,
    )


def _unpaired(
    times: _Times, coming: list[int], leaving: list[int], crumb: float
) -> int | None:
    """First send of a whole block that finds none of its own that came in."""
    options = {out: [s for s in coming if times.passes(s, out)] for out in leaving}
    taken: dict[int, int] = {}
    return next((out for out in leaving if not _settle(out, options, taken)), None)


def _overdrawn(
    times: _Times, coming: list[int], leaving: list[int], crumb: float
) -> int | None:
    """First send of a part of a block that finds fewer bytes than it carries, each send
    taking first what must go first."""
    used = dict.fromkeys(coming, 0.0)
    for out in leaving:
        left = float(times.bytes[out])
        for came, low in used.items():
            high = min(float(times.bytes[came]), low + left)
            if left <= crumb or high - low <= crumb:
                continue
            if times.passes_bytes(came, out, low, high):
                used[came] = high
                left -= high - low
        if left > crumb:
            return out
    return None


def _settle(send: int, options: dict[int, list[int]], taken: dict[int, int]) -> bool:
    """Whether `send` could get one of its `options`, which `taken` then notes.

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
            if option in taken:
                waiting.append((taken[option], option))
                continue
            free: int | None = option
            while free is not None:
                taken[free], free = reached[free]
            return True
    return False


def _reason(schedule: Schedule, times: _Times, coming: list[int], send: int) -> str:
    """Why a send out of a switch has nothing to pass on."""
    node = schedule.topology.nodes[schedule.topology.sources[schedule.sends.link[send]]]
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
