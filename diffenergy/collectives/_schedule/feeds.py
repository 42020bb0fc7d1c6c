"""Which sends wait for the data of which: at GPUs, and through switches."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .hops import Arrivals, exits, slack_of, stated, switched, ways_in, whole
from .schedule import Schedule

_BYTES: Final = 1e-6
"""Parts of a block that miss this share of it make it whole."""


@dataclasses.dataclass(frozen=True)
class Passed:
    """Sends `into` a switch that it passes on by `out`: the bytes from share `low` to
    share `high` of what `into` carries.

    Where there was a choice, among sends `coming` in and `going` out, it fell by who
    ends and who starts first: pairs of `ends` and `starts` (first, second) are in that
    order.
    """

    into: Int[np.ndarray, " pair"]
    out: Int[np.ndarray, " pair"]
    low: Float[np.ndarray, " pair"]
    high: Float[np.ndarray, " pair"]
    coming: Bool[np.ndarray, " send"]
    going: Bool[np.ndarray, " send"]
    ends: Int[np.ndarray, "2 end"]
    starts: Int[np.ndarray, "2 start"]


def passed_on(schedule: Schedule, when: Arrivals) -> Passed:
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
        return Passed(*no_pair, none, none, into, out, no_pair, no_pair)
    sums = ways_in(schedule)
    found = [
        _lone(schedule, into & ~sums & whole(schedule), out & ~sums, sums_up=False),
        _lone(schedule, into & sums, out & sums, sums_up=True),
    ]
    pairs = np.concatenate(found, axis=1)
    coming, going = _open(schedule, into, out, sums, pairs)
    feeds, odd = switched(schedule, when, coming, going)
    if odd:
        raise ValueError(_unfed(schedule, odd[0]))
    rest = [(part, send) for send, parts in feeds.items() for part in parts]
    first = np.array([part.send for part, _ in rest], int)
    low = np.array([part.begin for part, _ in rest]) / sends.bytes[first]
    high = np.array([part.stop for part, _ in rest]) / sends.bytes[first]
    source, target = _keys(schedule)
    return Passed(
        np.append(pairs[0], first),
        np.append(pairs[1], np.array([send for _, send in rest], int)),
        np.append(np.zeros(pairs.shape[1]), low),
        np.append(np.ones(pairs.shape[1]), high),
        coming,
        going,
        _row(coming, [when.last, sums, target]),
        _row(going, [sends.start, exits(schedule), sums, source]),
    )


def passable(schedule: Schedule, passed: Passed) -> bool:
    """Whether what was passed on by choice can be by the schedule's own times."""
    when, (coming, going) = stated(schedule), (passed.coming, passed.going)
    return not switched(schedule, when, coming, going)[1]


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


def _open(
    schedule: Schedule,
    into: Bool[np.ndarray, " send"],
    out: Bool[np.ndarray, " send"],
    sums: Bool[np.ndarray, " send"],
    pairs: Int[np.ndarray, "2 pair"],
) -> tuple[Bool[np.ndarray, " send"], Bool[np.ndarray, " send"]]:
    """Sends into and out of switches where, of a block and sum or not, some have no
    pair yet."""
    source, target = _keys(schedule)
    size = len(schedule.demand.size) * len(schedule.topology.nodes)
    source, target = source + size * sums, target + size * sums
    alone = np.where(sums, into, out)
    alone[np.where(sums[pairs[1]], pairs[0], pairs[1])] = False
    open_ = np.zeros(2 * size, bool)
    open_[np.where(sums, target, source)[alone]] = True
    return into & open_[target], out & open_[source]


def _unfed(schedule: Schedule, send: int) -> str:
    sends, topology = schedule.sends, schedule.topology
    link = topology.links[sends.link[send]]
    names = topology.nodes[link.source].name, topology.nodes[link.target].name
    return (
        f"`schedule` has a send of block {sends.block[send]} over {names[0]}->"
        f"{names[1]} at {sends.start[send]:.9g} s that the switch cannot pass on; "
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
    storing = topology.stores[topology.sources[sends.link]]
    home = topology.sources[sends.link] == demand.source[sends.block]
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
