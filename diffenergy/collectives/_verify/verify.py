"""`verify`: replay of a schedule that trusts nothing but topology and demand."""

import dataclasses
import heapq
import itertools
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .._schedule.schedule import Schedule, Sends
from .verify_sums import sums
from .verify_switches import unfed
from .violation import Fault, Violation, block_name, describe, earliest

_TIME: Final = 1e-9
"""Times this near each other, as a share of the last end, are the same."""
_BYTES: Final = 1e-6
"""Parts of a block that miss this share of it make it whole."""


@dataclasses.dataclass(frozen=True)
class Verified:
    """A right schedule: when its last wanted block arrives (s, as its sends state it),
    how many sends it has, and when each block is where it is wanted (s, block)."""

    finish: float
    sends: int
    met: Float[np.ndarray, " block"]


def verify(schedule: Schedule) -> Verified:
    """Replays every send; raises the first `Violation` in time order.

    Checked: links and blocks exist; a sender that stores holds what it sends when it
    starts; a switch sends on no later than the last byte came in, no byte before it
    came in, and on one link unless it copies; `end` is at least start + bytes / rate +
    latency; the bytes that a link must carry within any span of time fit; every
    summand is in each sum once; every demand is met.

    Blocks sent in parts: of one that a single node wants, no node sends on more than
    has come in; of one that several want, the parts over a link are the block's bytes
    in order, from the first. Sums move whole.
    """
    faults = _malformed(schedule)
    if faults:
        raise earliest(faults).error
    slack = _TIME * float(schedule.sends.end.max(initial=0.0))
    faults = _too_short(schedule, slack)
    begin = np.zeros(len(schedule.demand.size))
    present = np.full(schedule.demand.wanted.shape, np.inf)
    if schedule.demand.reduces:
        begin, present, wrong = sums(schedule, slack)
        faults += wrong
    faults += _plain(schedule, begin, present, slack)
    met = np.where(schedule.demand.wanted, present, 0.0).max(axis=1, initial=0.0)
    faults += [*_overloaded(schedule, slack), *_unmet(schedule, present)]
    if faults:
        raise earliest(faults).error
    return Verified(float(met.max(initial=0.0)), len(schedule.sends), met)


def _malformed(schedule: Schedule) -> list[Fault]:
    """Sends that cannot be read: no such link or block, no time, no bytes."""
    sends, demand = schedule.sends, schedule.demand
    links, blocks = len(schedule.topology.links), len(demand.size)
    block = np.clip(sends.block, 0, blocks - 1)
    size = demand.size[block] if blocks else np.zeros(len(sends))
    checks: tuple[tuple[Bool[np.ndarray, " send"], str], ...] = (
        (
            (sends.link < 0) | (sends.link >= links),
            f"uses an unknown link; {schedule.topology.name} has {links}.",
        ),
        (
            (sends.block < 0) | (sends.block >= blocks),
            f"carries an unknown block; the demand has {blocks}.",
        ),
        (
            ~(np.isfinite(sends.start) & np.isfinite(sends.end) & (sends.start >= 0)),
            "has no proper times; start and end are s from 0 on.",
        ),
        (
            ~((sends.bytes > 0) & (sends.bytes <= size * (1 + _BYTES))),
            "carries no bytes or more than its block has.",
        ),
    )
    return [
        Fault(float(np.nan_to_num(sends.start[s])), f"send {s} {text}")
        for wrong, text in checks
        for s in np.flatnonzero(wrong)[:1]
    ]


def _first(
    schedule: Schedule, wrong: Bool[np.ndarray, " send"], text: str
) -> list[Fault]:
    """The earliest of the sends that are `wrong`."""
    found = np.flatnonzero(wrong)
    if not len(found):
        return []
    send = int(found[np.argmin(schedule.sends.start[found])])
    return [
        Fault(float(schedule.sends.start[send]), f"{describe(schedule, send)} {text}")
    ]


def _too_short(schedule: Schedule, slack: float) -> list[Fault]:
    sends, topology = schedule.sends, schedule.topology
    least = sends.bytes / topology.rates[sends.link] + topology.latencies[sends.link]
    return _first(
        schedule,
        sends.end < sends.start + least - slack,
        "ends before its bytes and the latency of the link allow.",
    )


def _overloaded(schedule: Schedule, slack: float) -> list[Fault]:
    """Links that cannot carry what they must: sends may share a link in time, each
    between its start and its end less the latency (earliest end first is best)."""
    sends, topology = schedule.sends, schedule.topology
    order = np.lexsort((sends.end, sends.start, sends.link))
    link, start = sends.link[order], sends.start[order]
    work = sends.bytes[order] / topology.rates[link]
    last = sends.end[order] - topology.latencies[link]
    faults: list[Fault] = []
    bounds = np.flatnonzero(np.diff(link, prepend=-1, append=-1))
    for low, high in itertools.pairwise(bounds):
        span = slice(int(low), int(high))
        total = np.cumsum(work[span])
        free = np.maximum.accumulate(start[span] - total + work[span])
        if np.all(free + total <= last[span] + slack):
            continue
        late = _late(start[span], last[span], work[span], slack)
        if late is not None:
            send = int(order[span][late])
            text = "is over the capacity of its link: the sends there do not fit."
            faults.append(
                Fault(float(sends.start[send]), f"{describe(schedule, send)} {text}")
            )
    return faults


def _late(
    start: Float[np.ndarray, " send"],
    last: Float[np.ndarray, " send"],
    work: Float[np.ndarray, " send"],
    slack: float,
) -> int | None:
    """First send that misses its end although the nearest end always goes first."""
    queue: list[tuple[float, int, float]] = []
    now, upcoming = 0.0, 0
    while queue or upcoming < len(start):
        if not queue:
            now = max(now, float(start[upcoming]))
        while upcoming < len(start) and start[upcoming] <= now + slack:
            item = (float(last[upcoming]), upcoming, float(work[upcoming]))
            heapq.heappush(queue, item)
            upcoming += 1
        end, send, left = heapq.heappop(queue)
        until = float(start[upcoming]) if upcoming < len(start) else np.inf
        done = min(left, max(until - now, 0.0))
        now += done
        if done < left:
            heapq.heappush(queue, (end, send, left - done))
        elif now > end + slack:
            return send
    return None


def _plain(
    schedule: Schedule,
    begin: Float[np.ndarray, " block"],
    present: Float[np.ndarray, "block node"],
    slack: float,
) -> list[Fault]:
    """Blocks that move as they are: all but the way in of a sum.

    `begin`: when the source of a block has it; `present` is filled with when each node
    that stores has the whole block.
    """
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    blocks = np.arange(len(demand.size))
    present[blocks, demand.source] = np.minimum(present[blocks, demand.source], begin)
    plain = (sends.phase == 1) | ~(np.count_nonzero(demand.parts, axis=1) > 0)[
        sends.block
    ]
    whole = sends.bytes >= demand.size[sends.block] * (1 - _BYTES)
    split = np.zeros(len(demand.size), bool)
    split[sends.block[plain & ~whole]] = True
    target, source = topology.targets[sends.link], topology.sources[sends.link]
    easy = plain & ~split[sends.block]
    into = easy & topology.stores[target]
    np.minimum.at(present, (sends.block[into], target[into]), sends.end[into])
    out = easy & topology.stores[source]
    early = out & (sends.start < present[sends.block, source] - slack)
    faults = _first(schedule, early, "carries what its sender does not hold yet.")
    fluid = split & (np.count_nonzero(demand.wanted, axis=1) <= 1)
    parts = np.flatnonzero(plain & split[sends.block])
    parted, landed = _by_node(sends, parts, source), _by_node(sends, parts, target)
    for key in sorted({*parted, *landed}):
        if topology.stores[key[1]]:
            rule = _conserved if fluid[key[0]] else _in_order
            faults += rule(
                schedule,
                key,
                landed.get(key, []),
                parted.get(key, []),
                float(begin[key[0]]),
                present,
                slack,
            )
    wrong = unfed(schedule, plain, fluid, slack)
    return faults + [
        Fault(float(sends.start[s]), f"{describe(schedule, s)} {text}")
        for s, text in wrong
    ]


def _by_node(
    sends: Sends, chosen: Int[np.ndarray, " some"], node: Int[np.ndarray, " send"]
) -> dict[tuple[int, int], list[int]]:
    """Sends by (block, node)."""
    groups: dict[tuple[int, int], list[int]] = {}
    for send in chosen.tolist():
        groups.setdefault((int(sends.block[send]), int(node[send])), []).append(send)
    return groups


def _conserved(
    schedule: Schedule,
    key: tuple[int, int],
    into: list[int],
    out: list[int],
    begin: float,
    present: Float[np.ndarray, "block node"],
    slack: float,
) -> list[Fault]:
    """A block for one node: nobody sends on more bytes than have come in."""
    sends, (block, node) = schedule.sends, key
    size = float(schedule.demand.size[block])
    own = schedule.demand.source[block] == node
    arrivals = sorted((float(sends.end[s]), float(sends.bytes[s])) for s in into)
    if own:
        arrivals.insert(0, (begin, size))
    gone = sum(float(sends.bytes[s]) for s in out)
    if not own:
        kept = np.cumsum([amount for _, amount in arrivals]) - gone
        enough = np.flatnonzero(kept >= size * (1 - _BYTES))
        if len(enough):
            present[block, node] = arrivals[enough[0]][0]
    held, taken = 0.0, 0
    for send in sorted(out, key=lambda s: float(sends.start[s])):
        while taken < len(arrivals) and arrivals[taken][0] <= sends.start[send] + slack:
            held += arrivals[taken][1]
            taken += 1
        held -= float(sends.bytes[send])
        if held < -_BYTES * size:
            text = "carries more of its block than its sender holds yet."
            return [
                Fault(float(sends.start[send]), f"{describe(schedule, send)} {text}")
            ]
    return []


def _in_order(
    schedule: Schedule,
    key: tuple[int, int],
    into: list[int],
    out: list[int],
    begin: float,
    present: Float[np.ndarray, "block node"],
    slack: float,
) -> list[Fault]:
    """A block for several nodes: parts over a link are its bytes in order."""
    sends, (block, node) = schedule.sends, key
    size = float(schedule.demand.size[block])
    steps: list[tuple[float, float]] = []
    if schedule.demand.source[block] == node:
        steps.append((begin, size))
    for send, stop in _counted(schedule, into, sends.end, size):
        steps.append((float(sends.end[send]), stop))
    whole = [time for time, reach in steps if reach >= size * (1 - _BYTES)]
    present[block, node] = min(whole, default=np.inf)
    faults: list[Fault] = []
    for send, stop in _counted(schedule, out, sends.start, size):
        have = [time for time, reach in steps if reach >= stop - _BYTES * size]
        if sends.start[send] < min(have, default=np.inf) - slack:
            text = "carries a part of its block that its sender does not hold yet."
            start = float(sends.start[send])
            faults.append(Fault(start, f"{describe(schedule, send)} {text}"))
    return faults


def _counted(
    schedule: Schedule, chosen: list[int], time: Float[np.ndarray, " send"], size: float
) -> list[tuple[int, float]]:
    """Sends in order of `time`, and up to which byte of the block each reaches,
    counted along its link."""
    sends = schedule.sends
    reach: dict[int, float] = {}
    stops: list[tuple[int, float]] = []
    for send in sorted(chosen, key=lambda s: float(time[s])):
        link, amount = int(sends.link[send]), float(sends.bytes[send])
        low = reach.get(link, 0.0)
        if amount >= size * (1 - _BYTES) or low >= size * (1 - _BYTES):
            low = 0.0
        reach[link] = low + amount
        stops.append((send, low + amount))
    return stops


def _unmet(schedule: Schedule, present: Float[np.ndarray, "block node"]) -> list[Fault]:
    missing = np.argwhere(schedule.demand.wanted & ~np.isfinite(present))
    return [
        Fault(
            np.inf,
            f"{block_name(schedule, int(block))} never comes whole to "
            f"{schedule.topology.nodes[node].name}, which wants it "
            f"({len(missing)} demands are not met).",
        )
        for block, node in missing[:1]
    ]


__all__ = ["Verified", "Violation", "verify"]
