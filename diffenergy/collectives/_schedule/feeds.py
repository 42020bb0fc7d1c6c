"""Which sends wait for the data of which: at GPUs, and through switches."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .hops import Arrivals, Part, into_sums, through_switches
from .schedule import Schedule

_BYTES: Final = 1e-6
"""Parts of a block that miss this share of it make it whole."""


@dataclasses.dataclass(frozen=True)
class Passed:
    """Sends `into` a switch that it passes on by `out`: the bytes from share `low` to
    share `high` of what `into` carries.

    The first `lone` pairs leave no choice. Where there was one, among sends marked
    `choice`, it fell by who ends and who starts first: pairs of `ends` and `starts`
    (first, second) are in that order.
    """

    into: Int[np.ndarray, " pair"]
    out: Int[np.ndarray, " pair"]
    low: Float[np.ndarray, " pair"]
    high: Float[np.ndarray, " pair"]
    lone: int
    choice: Bool[np.ndarray, " send"]
    ends: Int[np.ndarray, "2 end"]
    starts: Int[np.ndarray, "2 start"]


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


def passed_on(schedule: Schedule, when: Arrivals, slack: float) -> Passed:
    """What every send out of a switch passes on.

    Raises:
        ValueError: a send out of a switch that nothing feeds, or a summand that no
            send takes out of one.
    """
    topology, sends = schedule.topology, schedule.sends
    into = ~topology.stores[topology.targets[sends.link]]
    out = ~topology.stores[topology.sources[sends.link]]
    if not (into.any() or out.any()):
        none, no_pair = np.zeros(0), np.zeros((2, 0), int)
        return Passed(no_pair[0], no_pair[1], none, none, 0, into, no_pair, no_pair)
    sums = ways_in(schedule)
    found = [
        _lone(schedule, into & ~sums & _whole(schedule), out & ~sums, sums_up=False),
        _lone(schedule, into & sums, out & sums, sums_up=True),
    ]
    pairs = np.concatenate(found, axis=1)
    left = _left(schedule, into, out, sums, pairs)
    rest, odd = _searched(schedule, when, slack, left, pairs)
    if odd:
        raise ValueError(_unfed(schedule, odd[0]))
    first = np.array([part.send for part, _ in rest], int)
    second = np.array([send for _, send in rest], int)
    low = np.array([part.begin for part, _ in rest]) / sends.bytes[first]
    high = np.array([part.stop for part, _ in rest]) / sends.bytes[first]
    source, target = _keys(schedule)
    spreads = topology.copies[topology.sources[sends.link]] & ~_conserved(schedule)
    links = np.where(spreads & ~sums, sends.link, -1)
    return Passed(
        np.append(pairs[0], first),
        np.append(pairs[1], second),
        np.append(np.zeros(pairs.shape[1]), low),
        np.append(np.ones(pairs.shape[1]), high),
        pairs.shape[1],
        left,
        _row(left & into, [when.last, sums, target]),
        _row(left & out, [sends.start, links, sums, source]),
    )


def passable(schedule: Schedule, passed: Passed, slack: float) -> bool:
    """Whether what was passed on by choice can be by the schedule's own times."""
    when = stated(schedule)
    pairs = np.stack([passed.into, passed.out])[:, : passed.lone]
    return not _searched(schedule, when, slack, passed.choice, pairs)[1]


def _conserved(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Sends of blocks that leave a switch once, also where it copies."""
    one = np.count_nonzero(schedule.demand.wanted, axis=1) <= 1
    return one[schedule.sends.block]


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


def _whole(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Sends of blocks of which no plain send is a part."""
    return ~_split(schedule)[schedule.sends.block]


def _split(schedule: Schedule) -> Bool[np.ndarray, " block"]:
    """Blocks of which parts are sent."""
    sends, demand = schedule.sends, schedule.demand
    part = sends.bytes < demand.size[sends.block] * (1 - _BYTES)
    return np.bincount(sends.block[part], minlength=len(demand.size)) > 0


def _keys(
    schedule: Schedule,
) -> tuple[Int[np.ndarray, " send"], Int[np.ndarray, " send"]]:
    """One number for each (block, sender) and (block, receiver)."""
    sends, topology = schedule.sends, schedule.topology
    base = sends.block * len(topology.nodes)
    return base + topology.sources[sends.link], base + topology.targets[sends.link]


def _lone(
    schedule: Schedule,
    into: Bool[np.ndarray, " send"],
    out: Bool[np.ndarray, " send"],
    sums_up: bool,
) -> Int[np.ndarray, "2 pair"]:
    """Pairs that leave no choice: the one send that brings a block to a switch with all
    that take it on; of a sum all that bring it with the one that takes it on."""
    source, target = _keys(schedule)
    one, many = (out, into) if sums_up else (into, out)
    one_key, many_key = (source, target) if sums_up else (target, source)
    size = len(schedule.demand.size) * len(schedule.topology.nodes)
    only = np.flatnonzero(one)
    count = np.bincount(one_key[only], minlength=size)
    which = np.zeros(size, int)
    which[one_key[only]] = only
    rows = np.flatnonzero(many)
    rows = rows[count[many_key[rows]] == 1]
    partner = which[many_key[rows]]
    return np.stack([rows, partner] if sums_up else [partner, rows])


def _left(
    schedule: Schedule,
    into: Bool[np.ndarray, " send"],
    out: Bool[np.ndarray, " send"],
    sums: Bool[np.ndarray, " send"],
    pairs: Int[np.ndarray, "2 pair"],
) -> Bool[np.ndarray, " send"]:
    """Sends at switches where, of a block and sum or not, some have no pair yet."""
    source, target = _keys(schedule)
    size = len(schedule.demand.size) * len(schedule.topology.nodes)
    open_ = np.zeros(2 * size, bool)
    mine = np.where(sums, into, out)
    mine[np.where(sums[pairs[1]], pairs[0], pairs[1])] = False
    key = np.where(sums, target + size, source)
    open_[key[mine]] = True
    shift = np.where(sums, size, 0)
    return (into & open_[target + shift]) | (out & open_[source + shift])


def _searched(
    schedule: Schedule,
    when: Arrivals,
    slack: float,
    left: Bool[np.ndarray, " send"],
    pairs: Int[np.ndarray, "2 pair"],
) -> tuple[list[tuple[Part, int]], list[int]]:
    """(part, send that takes it on) where there is a choice, and sends without."""
    if not left.any():
        return [], []
    sums = ways_in(schedule)
    conserved = np.count_nonzero(schedule.demand.wanted, axis=1) <= 1
    feeds, faults = through_switches(schedule, left & ~sums, slack, conserved, when)
    summed, lost = into_sums(schedule, left & sums, slack, when)
    known_in = set(pairs[0].tolist())
    known_out = set(pairs[1].tolist())
    odd = [send for send, _ in faults if send not in known_out]
    odd += [send for send in lost if send not in known_in]
    odd += [s for s, parts in summed.items() if not parts and s not in known_out]
    found = [
        (part, send)
        for send, parts in (feeds | summed).items()
        for part in parts
        if (part.send not in known_in if sums[send] else send not in known_out)
    ]
    return found, odd


def _unfed(schedule: Schedule, send: int) -> str:
    sends, topology = schedule.sends, schedule.topology
    link = topology.links[sends.link[send]]
    names = topology.nodes[link.source].name, topology.nodes[link.target].name
    return (
        f"`schedule` has a send of block {sends.block[send]} over {names[0]}->"
        f"{names[1]} at {sends.start[send]:.9g} s that the switch cannot pass on; "
        "give a schedule that `verify` finds right."
    )


def stored(
    schedule: Schedule, when: Arrivals, slack: float
) -> Int[np.ndarray, "2 pair"]:
    """Pairs (send into a GPU, send out of it) of the same data.

    Plain whole blocks wait for the first arrival, sums for all that have come, parts
    for those with the bytes that they carry, first come first sent.
    """
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    source, target = _keys(schedule)
    sums = ways_in(schedule)
    storing = topology.stores[topology.sources[sends.link]]
    home = topology.sources[sends.link] == demand.source[sends.block]
    whole = _whole(schedule)
    first = np.full(len(demand.size) * len(topology.nodes), -1)
    easy = np.flatnonzero(~sums & whole)
    latest = easy[np.argsort(-when.last[easy], kind="stable")]
    first[target[latest]] = latest
    out = np.flatnonzero(~sums & whole & storing & ~home)
    out = out[first[source[out]] >= 0]
    pairs = [np.stack([first[source[out]], out])]
    if sums.any():
        summed = np.count_nonzero(demand.parts, axis=1) > 0
        adds = storing & (sums | home) & summed[sends.block]
        pairs.append(_all_before(schedule, when.last - slack, sums, adds))
    parted = ~sums & ~whole
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
            for ahead in _each_link(sends.link, leaving):
                pairs += _first_come(sends.bytes, _one_link(schedule, coming), ahead)
    return np.array(pairs, int).reshape(-1, 2).T


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
