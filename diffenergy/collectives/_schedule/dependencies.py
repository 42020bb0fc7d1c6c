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
    sends, sums, found = schedule.sends, ways_in(schedule), switched(schedule, when)
    if found.odd:
        raise ValueError(_unfed(schedule, found.odd[0]))
    pairs = [(part, send) for send, parts in found.feeds.items() for part in parts]
    into = np.array([part.send for part, _ in pairs], int)
    source, target = _keys(schedule)
    return Passed(
        into,
        np.array([send for _, send in pairs], int),
        np.array([part.begin for part, _ in pairs]) / sends.bytes[into],
        np.array([part.stop for part, _ in pairs]) / sends.bytes[into],
        bool(found.out.any()),
        _row(found.into, [when.last, sums, target]),
        _row(found.out, [sends.start, exits(schedule), sums, source]),
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


def _unfed(schedule: Schedule, send: int) -> str:
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
