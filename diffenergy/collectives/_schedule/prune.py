"""Leave out sends that nobody needs."""

import dataclasses

import numpy as np
from jaxtyping import Bool

from .feeds import passed_on
from .hops import stated, whole
from .schedule import Schedule


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
        rest = dataclasses.replace(schedule, sends=sends.take(rows))
        needed[rows] = _needed(rest)
    return dataclasses.replace(schedule, sends=sends.take(np.flatnonzero(needed)))


def _needed(schedule: Schedule) -> Bool[np.ndarray, " send"]:
    """Sends on the way of a block to a taker, found from the takers back."""
    sends, topology, demand = schedule.sends, schedule.topology, schedule.demand
    nodes, blocks = len(topology.nodes), len(demand.source)
    source, target = topology.sources[sends.link], topology.targets[sends.link]
    key = sends.block * nodes + target
    order = np.lexsort((sends.end, key))
    first = np.full(blocks * nodes, -1)
    first[key[order][::-1]] = order[::-1]
    first[np.arange(blocks) * nodes + demand.source] = -1  # nothing new at home
    feeder = first[sends.block * nodes + source]
    passed = passed_on(schedule, stated(schedule))
    feeder[passed.out] = passed.into  # what leaves a switch came in for it
    wanted = demand.wanted & topology.stores
    needed = np.zeros(len(sends), bool)
    last = first[wanted.ravel()]
    reached = last[last >= 0]
    while len(reached):
        needed[reached] = True
        before = feeder[reached]
        before = np.unique(before[before >= 0])
        reached = before[~needed[before]]
    return needed
