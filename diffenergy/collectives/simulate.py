"""A schedule run as early as it can: same order on every link, real rates."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .hops import Arrivals, arrivals, into_sums, through_switches
from .schedule import Schedule
from .verify import verify

_TIME: Final = 1e-9
"""Times this near each other, as a share of the last end, are the same."""
_BYTES: Final = 1e-6
"""Parts of a block that miss this share of it make it whole."""


@dataclasses.dataclass(frozen=True)
class Waits:
    """Differences between starts: x[after] >= x[before] + gap, gap in s."""

    before: Int[np.ndarray, " wait"]
    after: Int[np.ndarray, " wait"]
    gap: Float[np.ndarray, " wait"]


def finish(schedule: Schedule) -> float:
    """s until the last demand is met if every send starts as early as it can."""
    return verify(retime(schedule)).finish


def retime(schedule: Schedule, when: Arrivals | None = None) -> Schedule:
    """The schedule with every send as early as order and data allow.

    Sends that start together on a link stay together and share it; all others keep
    their order. What a send waits for is what has arrived when it starts now, by the
    stated ends, or by `when`, s (schedules in epochs round latencies, so that their
    ends as stated may lie after the sends that pass the data on). The starts x are the
    least that fulfil x_after >= x_before + gap: bytes / rate along a link, that and
    the latency from a GPU on; at a switch also the way back, so that nothing comes in
    that cannot leave at once.
    """
    sends, topology = schedule.sends, schedule.topology
    if not len(sends):
        return schedule
    when = arrivals(schedule) if when is None else when
    slack = _TIME * float(sends.end.max())
    group, link, order = _groups(schedule, slack)
    work = np.bincount(group, sends.bytes / topology.rates[sends.link])
    waits = [_order(link, order, work)]
    waits += _data(schedule, when, slack, group, work)
    start = _least(_joined(waits), len(work))
    latency = topology.latencies[sends.link]
    moved = dataclasses.replace(
        sends, start=start[group], end=(start + work)[group] + latency
    )
    return dataclasses.replace(schedule, sends=moved)


def _groups(
    schedule: Schedule, slack: float
) -> tuple[
    Int[np.ndarray, " send"], Int[np.ndarray, " group"], Int[np.ndarray, " group"]
]:
    """Sends that start together on a link: group of each, its link, groups in order."""
    sends = schedule.sends
    order = np.lexsort((sends.start, sends.link))
    link, start = sends.link[order], sends.start[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(link) != 0) | (np.diff(start) > slack)
    group = np.empty(len(order), int)
    group[order] = np.cumsum(fresh) - 1
    return group, link[fresh], np.arange(int(fresh.sum()))


def _order(
    link: Int[np.ndarray, " group"],
    order: Int[np.ndarray, " group"],
    work: Float[np.ndarray, " group"],
) -> Waits:
    """The next on a link waits for the last."""
    same = np.flatnonzero(link[1:] == link[:-1])
    return Waits(order[same], order[same + 1], work[same])


def _data(
    schedule: Schedule,
    when: Arrivals,
    slack: float,
    group: Int[np.ndarray, " send"],
    work: Float[np.ndarray, " group"],
) -> list[Waits]:
    """Sends wait for what they carry."""
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    latency = topology.latencies[sends.link]
    single = np.count_nonzero(demand.wanted, axis=1) <= 1
    found = _stored(schedule, when, slack)
    before, after = found[:, 0], found[:, 1]
    gap = work[group[before]] + latency[before]
    waits = [Waits(group[before], group[after], gap)]
    ways_in = (sends.phase == 0) & (np.count_nonzero(demand.parts, axis=1) > 0)[
        sends.block
    ]
    feeds, _ = through_switches(schedule, ~ways_in, slack, single, when)
    feeds |= into_sums(schedule, ways_in, slack, when)[0]
    pairs = [(part, send) for send, parts in feeds.items() for part in parts]
    if pairs:
        into = np.array([part.send for part, _ in pairs])
        out = np.array([send for _, send in pairs])
        low = np.array([part.begin for part, _ in pairs]) / sends.bytes[into]
        high = np.array([part.stop for part, _ in pairs]) / sends.bytes[into]
        span, lag = work[group[into]], latency[into]
        gap = lag + np.maximum(low * span, high * span - work[group[out]])
        waits.append(Waits(group[into], group[out], gap))
        waits.append(Waits(group[out], group[into], -(span + lag)))
    return waits


def _stored(
    schedule: Schedule, when: Arrivals, slack: float
) -> Int[np.ndarray, "pair 2"]:
    """Pairs (send into a GPU, send out of it) of the same data.

    Plain whole blocks wait for the first arrival, sums for all that have come, parts
    for those with the bytes that they carry, first come first sent.
    """
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    nodes = len(topology.nodes)
    source = sends.block * nodes + topology.sources[sends.link]
    target = sends.block * nodes + topology.targets[sends.link]
    summed = (np.count_nonzero(demand.parts, axis=1) > 0)[sends.block]
    way_in = summed & (sends.phase == 0)
    whole = sends.bytes >= demand.size[sends.block] * (1 - _BYTES)
    split = np.zeros(len(demand.size), bool)
    split[sends.block[~whole]] = True
    easy = ~way_in & ~split[sends.block]
    first = np.full(len(demand.size) * nodes, -1)
    latest = np.flatnonzero(easy)[np.argsort(-when.last[easy], kind="stable")]
    first[target[latest]] = latest
    begun = topology.stores[topology.sources[sends.link]]
    begun &= topology.sources[sends.link] != demand.source[sends.block]
    out = np.flatnonzero(easy & begun & (first[source] >= 0))
    pairs = [np.stack([first[source[out]], out], axis=1)]
    adds = summed & topology.stores[topology.sources[sends.link]]
    into = np.flatnonzero(way_in)
    pairs.append(_all_before(schedule, when.last - slack, (source, target), into, adds))
    pairs.append(
        _by_parts(schedule, when, ~way_in & split[sends.block], source, target)
    )
    return np.concatenate(pairs)


def _all_before(
    schedule: Schedule,
    last: Float[np.ndarray, " send"],
    keys: tuple[Int[np.ndarray, " send"], Int[np.ndarray, " send"]],
    into: Int[np.ndarray, " some"],
    out: Bool[np.ndarray, " send"],
) -> Int[np.ndarray, "pair 2"]:
    """Each send `out` of a node with all of `into` that have come there by then."""
    source, target = keys
    into = into[np.argsort(target[into], kind="stable")]
    leaving = np.flatnonzero(out)
    low = np.searchsorted(target[into], source[leaving], "left")
    count = np.searchsorted(target[into], source[leaving], "right") - low
    first = np.repeat(low - np.cumsum(count) + count, count)
    coming = into[first + np.arange(int(count.sum()))]
    leaving = np.repeat(leaving, count)
    there = last[coming] <= schedule.sends.start[leaving]
    return np.stack([coming[there], leaving[there]], axis=1)


def _by_parts(
    schedule: Schedule,
    when: Arrivals,
    parted: Bool[np.ndarray, " send"],
    source: Int[np.ndarray, " send"],
    target: Int[np.ndarray, " send"],
) -> Int[np.ndarray, "pair 2"]:
    """`_stored` for blocks that move in parts."""
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    storing = topology.stores[topology.sources[sends.link]]
    for send in np.flatnonzero(parted).tolist():
        into.setdefault(int(target[send]), []).append(send)
        if storing[send]:
            out.setdefault(int(source[send]), []).append(send)
    pairs: list[tuple[int, int]] = []
    for key, leaving in out.items():
        block, node = divmod(key, len(topology.nodes))
        coming = sorted(into.get(key, []), key=lambda s: float(when.last[s]))
        leaving.sort(key=lambda s: float(sends.start[s]))
        if demand.source[block] == node:
            continue
        if demand.wanted[block].sum() <= 1:
            pairs += _first_come(sends.bytes, coming, leaving)
        else:
            for ahead in _each_link(sends.link, leaving):
                pairs += _first_come(sends.bytes, _one_link(schedule, coming), ahead)
    return np.array(pairs, int).reshape(-1, 2)


def _each_link(link: Int[np.ndarray, " send"], chosen: list[int]) -> list[list[int]]:
    """The chosen sends apart by link."""
    apart: dict[int, list[int]] = {}
    for send in chosen:
        apart.setdefault(int(link[send]), []).append(send)
    return list(apart.values())


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


def _joined(waits: list[Waits]) -> Waits:
    return Waits(
        np.concatenate([wait.before for wait in waits]),
        np.concatenate([wait.after for wait in waits]),
        np.concatenate([wait.gap for wait in waits]),
    )


def _least(waits: Waits, count: int) -> Float[np.ndarray, " group"]:
    """Least starts from 0 on; longest paths by relaxing what has changed."""
    order = np.argsort(waits.after, kind="stable")
    before, after, gap = waits.before[order], waits.after[order], waits.gap[order]
    heads = np.flatnonzero(np.diff(after, prepend=-1))
    goal = after[heads]
    start = np.zeros(count)
    for _ in range(count + 1):
        if not len(heads):
            return start
        best = np.maximum.reduceat(start[before] + gap, heads)
        later = best > start[goal] + 1e-15
        if not later.any():
            return start
        start[goal[later]] = best[later]
    raise ValueError(
        "the order of the sends cannot be kept: switches would have to hold data."
    )
