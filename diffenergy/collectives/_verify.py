"""`verify`: replay of a schedule that trusts nothing but topology and demand."""

import dataclasses
import heapq
import itertools
from typing import Final

import numpy as np
from jaxtyping import Bool, Float

from ._schedule import Schedule, Sends
from ._verify_sums import sums
from ._verify_switches import grouped, unfed
from ._violation import Fault, Violation, block_name, fault, raise_first

_TIME: Final = 1e-9
"""Times this near each other, as a share of the last end, are the same."""
_BYTES: Final = 1e-6
"""Parts of a block that miss this share of it make it whole."""


def verify(schedule: Schedule) -> float:
    """When the last wanted block arrives, s, as the sends state it: replays every send
    and raises the first `Violation` in time order.

    Checked: links and blocks exist; a sender that stores holds what it sends when it
    starts; a switch sends on no later than the last byte came in, no byte before it
    came in, and on one link unless it copies; `end` is at least start + bytes / rate +
    latency; the bytes that a link must carry within any span of time fit; every
    summand is in each sum once; every demand is met.

    Blocks sent in parts: of one that a single node wants, no node sends on more than
    has come in; of one that several want, the parts over a link are the block's bytes
    in order, from the first. Sums move whole.
    """
    raise_first(_malformed(schedule))
    slack = _TIME * schedule.last_end
    faults = _too_short(schedule, slack)
    begin = np.zeros(len(schedule.demand.size))
    present = np.full(schedule.demand.wanted.shape, np.inf)
    if schedule.demand.reduces:
        begin, present, wrong = sums(schedule, slack)
        faults += wrong
    faults += _plain(schedule, begin, present, slack)
    faults += [*_overloaded(schedule, slack), *_unmet(schedule, present)]
    raise_first(faults)
    return float(present[schedule.demand.wanted].max(initial=0.0))


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
    rows = np.flatnonzero(wrong)
    first = rows[np.argsort(schedule.sends.start[rows], kind="stable")[:1]]
    return [fault(schedule, send, text) for send in first.tolist()]


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
            text = "is over the capacity of its link: the sends there do not fit."
            faults.append(fault(schedule, int(order[span][late]), text))
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
    is_sum = np.any(demand.parts, axis=1)
    plain = (sends.phase == 1) | ~is_sum[sends.block]
    whole = sends.bytes >= demand.size[sends.block] * (1 - _BYTES)
    split = np.zeros(len(demand.size), bool)
    split[sends.block[plain & ~whole]] = True
    target, source = schedule.targets, schedule.sources
    easy = plain & ~split[sends.block]
    into = easy & topology.stores[target]
    np.minimum.at(present, (sends.block[into], target[into]), sends.end[into])
    out = easy & topology.stores[source]
    early = out & (sends.start < present[sends.block, source] - slack)
    faults = _first(schedule, early, "carries what its sender does not hold yet.")
    fluid = split & (np.count_nonzero(demand.wanted, axis=1) <= 1)
    parts = plain & split[sends.block]
    leaving, landing = (
        grouped(np.flatnonzero(parts & topology.stores[node]), sends.block, node)
        for node in (source, target)
    )
    for block, node in sorted({*leaving, *landing}):
        at_home = demand.source[block] == node
        stock = _Stock(
            sends,
            float(demand.size[block]),
            [float(begin[block])] if at_home else [],
            landing[block, node],
            leaving[block, node],
        )
        rule = stock.conserved if fluid[block] else stock.in_order
        there, wrong, text = rule(slack)
        present[block, node] = min(there, begin[block] if at_home else np.inf)
        faults += [fault(schedule, send, text) for send in wrong[:1]]
    return faults + unfed(schedule, plain, fluid, slack)


@dataclasses.dataclass(frozen=True)
class _Stock:
    """A block of `size` B that moves in parts through a node that stores: sends into it
    and out of it, and when the source has it all (s; nowhere else)."""

    sends: Sends
    size: float
    begin: list[float]
    into: list[int]
    out: list[int]

    def conserved(self, slack: float) -> tuple[float, list[int], str]:
        """Of a block for one node nobody sends on more bytes than have come in: when
        the node has it whole and keeps it, and the sends that carry too much."""
        sends, crumb = self.sends, _BYTES * self.size
        into, out = np.array(self.into, int), np.array(self.out, int)
        out = out[np.argsort(sends.start[out], kind="stable")]
        times = np.append(self.begin, sends.end[into])
        order = np.argsort(times, kind="stable")
        amount = np.append([self.size] * len(self.begin), sends.bytes[into])[order]
        come, gone = np.cumsum(amount), np.cumsum(sends.bytes[out])
        whole_by = come - sends.bytes[out].sum() >= self.size - crumb
        arrived = np.searchsorted(times[order], sends.start[out] + slack, "right")
        wrong = out[np.append(0.0, come)[arrived] - gone < -crumb].tolist()
        whole = times[order][whole_by].min(initial=np.inf)
        return whole, wrong, "carries more of its block than its sender holds yet."

    def in_order(self, slack: float) -> tuple[float, list[int], str]:
        """Of a block for several nodes the parts over a link are its bytes in order:
        when the node has it whole, and the sends that carry what is not there yet."""
        sends = self.sends
        reached = [(time, self.size) for time in self.begin]
        for send, stop in self._counted(self.into, sends.end):
            reached.append((float(sends.end[send]), stop))

        def there(stop: float) -> float:
            least = stop - _BYTES * self.size
            return min((time for time, n in reached if n >= least), default=np.inf)

        wrong = [
            send
            for send, stop in self._counted(self.out, sends.start)
            if sends.start[send] < there(stop) - slack
        ]
        text = "carries a part of its block that its sender does not hold yet."
        return there(self.size), wrong, text

    def _counted(
        self, chosen: list[int], time: Float[np.ndarray, " send"]
    ) -> list[tuple[int, float]]:
        """Sends in order of `time`, and up to which byte of the block each reaches,
        counted along its link."""
        reach: dict[int, float] = {}
        stops: list[tuple[int, float]] = []
        for send in sorted(chosen, key=lambda s: float(time[s])):
            link, amount = int(self.sends.link[send]), float(self.sends.bytes[send])
            low = reach.get(link, 0.0)
            if max(amount, low) >= self.size * (1 - _BYTES):
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


__all__ = ["Violation", "verify"]
