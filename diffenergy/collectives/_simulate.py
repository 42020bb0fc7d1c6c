"""A schedule run as early as it can, same order on every link, real rates (`retime`);
and without the sends that nobody needs (`prune`)."""

import dataclasses

import numpy as np
from jaxtyping import Bool

from ._dependencies import SAME, Arrivals, passable, passed_on, stated, whole
from ._order import Order, groups_of, least_starts, order_by, pairs_of
from ._routes import EpochModel
from ._schedule import Schedule


def retime(schedule: Schedule, when: Arrivals | None = None) -> Schedule:
    """The schedule with every send as early as order and data allow, real rates and
    latencies; its finish is never later than that of a right `schedule`.

    The starts are the least that fulfil the waits of `order_of`. What a send waits for
    is what has arrived when it starts now, by the stated ends, or by `when`, s
    (schedules in epochs round latencies, so that their ends as stated may lie after
    the sends that pass the data on).

    Raises:
        ValueError: switches would have to hold data, or pass on what does not come in.
    """
    return _find_order(schedule, when)[1] if len(schedule.sends) else schedule


def run_epochs(schedule: Schedule, model: EpochModel, parts: bool = False) -> Schedule:
    """The schedule in continuous time: order and data as in its epochs, true rates and
    latencies. `parts`: of a linear program, where a send is there an epoch (and its
    latency) later on every link."""
    hop = model.part_hop if parts else model.hop
    there = schedule.sends.start + hop[schedule.sends.link] * model.tau
    never = np.full(len(there), np.inf)
    return retime(schedule, Arrivals(there, there, never))


def order_of(schedule: Schedule, when: Arrivals | None = None) -> Order:
    """What must follow what in `schedule`, read off its times as `retime` does.

    Sends on a link follow each other by start, end and block. If that cannot be kept
    at switches, or sends that overlap on a link end sooner sharing it, they share it.

    Raises:
        ValueError: as `retime`; or no sends at all.
    """
    if not len(schedule.sends):
        raise ValueError("`schedule` has no sends; give one with at least one.")
    return _find_order(schedule, when)[0]


def _find_order(schedule: Schedule, when: Arrivals | None) -> tuple[Order, Schedule]:
    """The order of a schedule, and the schedule with the least starts."""
    pairs, passed = pairs_of(schedule, when)
    limit = np.inf if when is not None else schedule.last_end * (1 + SAME)
    candidates: list[tuple[Order, Schedule]] = []
    for sharing in (False, True):
        groups, overlap = groups_of(schedule, when, sharing)
        for keeping in (False, True):
            order = order_by(schedule, groups, pairs, passed, keeping)
            moved = _earliest(schedule, order)
            if moved is not None and passable(moved, passed):
                candidates.append((order, moved))
                break
            if not passed.choice:
                break
        if candidates and not overlap and candidates[0][1].last_end <= limit:
            break
    if not candidates:
        raise ValueError(
            "the order of the sends in `schedule` cannot be kept: switches would have "
            "to hold data; give one that `verify` finds right."
        )
    sooner = len(candidates) > 1 and candidates[1][1].last_end < candidates[0][
        1
    ].last_end * (1 - SAME)
    return candidates[1] if sooner else candidates[0]


def _earliest(schedule: Schedule, order: Order) -> Schedule | None:
    """The schedule from the least starts; None if groups wait in a circle."""
    sends, topology, groups = schedule.sends, schedule.topology, order.groups
    begin = least_starts(order, topology.rates, topology.latencies)
    if begin is None:
        return None
    spell = (groups.bytes / topology.rates[groups.link])[groups.group]
    start = begin[groups.group] + groups.first * spell
    leaves = begin[groups.group] + groups.until * spell
    moved = dataclasses.replace(
        sends, start=start, end=leaves + topology.latencies[sends.link]
    )
    return schedule.with_sends(moved)


def prune(schedule: Schedule) -> Schedule:
    """The schedule with only those sends of whole blocks that bring a block first to
    where it is wanted or sent on from. Sums, and blocks of which parts are sent, stay
    as they are: every summand counts."""
    sends, demand = schedule.sends, schedule.demand
    if not len(sends):
        return schedule
    phase = 1 if demand.reduces else 0
    needed = (sends.phase != phase) | ~whole(schedule)
    rows = np.flatnonzero(~needed)
    if len(rows):
        needed[rows] = _needed_sends(schedule.with_sends(sends.take(rows)))
    return schedule.with_sends(sends.take(np.flatnonzero(needed)))


def _needed_sends(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Sends on the way of a block to a taker, found from the takers back."""
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    nodes, blocks = len(topology.nodes), len(demand.source)
    key = sends.block * nodes + schedule.targets
    order = np.lexsort((sends.end, key))
    first = np.full(blocks * nodes, -1)
    first[key[order][::-1]] = order[::-1]
    first[np.arange(blocks) * nodes + demand.source] = -1  # nothing new at home
    feeder = first[sends.block * nodes + schedule.sources]
    passed = passed_on(schedule, stated(schedule))
    feeder[passed.out] = passed.into  # what leaves a switch came in for it
    last = first[(demand.wanted & topology.stores).ravel()]
    reached = last[last >= 0]
    needed = np.zeros(len(sends), bool)
    while len(reached):
        needed[reached] = True
        before = feeder[reached]
        before = np.unique(before[before >= 0])
        reached = before[~needed[before]]
    return needed
