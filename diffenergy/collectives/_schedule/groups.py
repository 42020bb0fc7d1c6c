"""`Groups`: sends that keep a link to themselves, and the order of groups on it."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from .hops import Arrivals, slack_of
from .schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Groups:
    """Sends that share a link, and where in the group's time each runs."""

    link: Int[np.ndarray, " group"]
    bytes: Float[np.ndarray, " group"]
    group: Int[np.ndarray, " send"]
    first: Float[np.ndarray, " send"]
    """f: share of the group's T after which a send begins."""
    until: Float[np.ndarray, " send"]
    """u: share of T at which its last byte has left."""


def groups_of(
    schedule: Schedule, when: Arrivals | None, sharing: bool
) -> tuple[Groups, bool]:
    """Groups in order along each link, and whether sends overlap on one.

    Not `sharing`: each send alone, by start, then end, then block. Sharing: sends that
    overlap on a link to or from a switch keep to their shares of the time that they
    have together (so does, by its own times, one that takes longer than it needs); on
    other links only those that do not fit one after the other.
    """
    sends, topology = schedule.sends, schedule.topology
    slack = slack_of(schedule)
    last = sends.end if when is None else when.last
    rows = np.lexsort((sends.block, last, sends.start, sends.link))
    link = sends.link[rows]
    busy = sends.bytes[rows] / topology.rates[link]
    start = sends.start[rows]
    leaves = sends.end[rows] - topology.latencies[link]
    near = link[1:] == link[:-1]
    over = near & (start[1:] < start[:-1] + busy[:-1] - slack)
    fresh = np.ones(len(rows), bool)
    stores = topology.stores
    switched = ~(stores[topology.sources[link]] & stores[topology.targets[link]])
    if sharing:
        for low, high in _runs(link, over):
            if when is not None:
                alike = np.diff(start[low:high]) <= slack
                fresh[low + 1 : high] = ~alike | ~switched[low]
            else:
                fresh[low + 1 : high] = _apart(
                    start[low:high],
                    leaves[low:high],
                    busy[low:high],
                    slack,
                    bool(switched[low]),
                )
    number = np.cumsum(fresh) - 1
    first, until = np.zeros(len(rows)), np.ones(len(rows))
    if sharing and when is None:
        begin = start[fresh][number]
        total = np.bincount(number, busy)[number]
        kept = _kept(number, start, leaves, busy, slack)
        kept &= (np.bincount(number)[number] > 1) | switched
        first[kept] = ((start - begin) / total)[kept]
        until[kept] = ((leaves - begin) / total)[kept]
    back = np.empty(len(rows), int)
    back[rows] = np.arange(len(rows))
    groups = Groups(
        link[fresh],
        np.bincount(number, sends.bytes[rows]),
        number[back],
        first[back],
        until[back],
    )
    return groups, bool(over.any())


def _kept(
    number: Int[np.ndarray, " send"],
    start: Float[np.ndarray, " send"],
    leaves: Float[np.ndarray, " send"],
    busy: Float[np.ndarray, " send"],
    slack: float,
) -> Bool[np.ndarray, " send"]:
    """Sends of groups whose stated times hold them one after the other."""
    late = leaves - start < busy - slack
    for low, high in _runs(number, np.diff(number) == 0):
        free = _one_by_one(start[low:high], busy[low:high])
        late[low] |= bool((free > leaves[low:high] + slack).any())
    return np.bincount(number, late)[number] == 0


def _one_by_one(
    start: Float[np.ndarray, " send"], busy: Float[np.ndarray, " send"]
) -> Float[np.ndarray, " send"]:
    """When each of the sends of a link has left if they go one after the other."""
    total = np.cumsum(busy)
    return np.maximum.accumulate(start - total + busy) + total


def _runs(
    link: Int[np.ndarray, " send"], over: Bool[np.ndarray, " next"]
) -> list[tuple[int, int]]:
    """Rows of each link on which sends overlap."""
    cuts = np.flatnonzero(np.diff(link, prepend=-1, append=-1))
    hit = np.unique(np.searchsorted(cuts, np.flatnonzero(over), "right") - 1)
    return [(int(cuts[n]), int(cuts[n + 1])) for n in hit]


def _apart(
    start: Float[np.ndarray, " send"],
    leaves: Float[np.ndarray, " send"],
    busy: Float[np.ndarray, " send"],
    slack: float,
    switched: bool,
) -> Bool[np.ndarray, " next"]:
    """Whether each send of a link but the first begins a group, by stated times."""
    free = _one_by_one(start, busy)
    fresh = start[1:] >= free[:-1] - slack
    if switched:
        return fresh
    number = np.cumsum(np.append(True, fresh)) - 1
    late = np.bincount(number, free > leaves + slack) > 0
    return fresh | ~late[number[1:]]
