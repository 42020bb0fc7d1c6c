"""`Order`: what a schedule fixes once its times are forgotten.

Sends fall into *groups* that keep the link to themselves, most often of one send each.
With x the start of a group, b its bytes, r and a its link's rate and latency, and T =
b / r, a send of it runs from x + f T to x + u T (f = 0, u = 1 if it is alone) and is
at the other end a later. Groups wait for one another:

- on a link: x' >= x + u T;
- at a GPU for data: x' + f' T' >= x + u T + a;
- at a switch (cut-through), where the share `low` to `high` of what comes in goes out:
  the first byte as for data, x' + f' T' >= x + a + (f + low (u - f)) T; the last,
  x' + u' T' >= x + a + (f + high (u - f)) T; and nothing is held, so that it goes out
  no later than the last byte is in: x + u T + a >= x' + f' T'.

If need be, what decided a switch's choice of what to pass on stays in order. All are
linear in the latencies and in 1 / rates.
"""

import dataclasses
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ._dependencies import Arrivals, Passed, passed_on, slack_of, stated, stored
from ._schedule import Columns, Schedule


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


@dataclasses.dataclass(frozen=True)
class Waits(Columns):
    """Differences between starts of groups: x[after] >= x[before] + gap, with gap =
    ahead T[before] - behind T[after] + lag a[before] - lead a[after]."""

    before: Int[np.ndarray, " wait"]
    after: Int[np.ndarray, " wait"]
    ahead: Float[np.ndarray, " wait"]
    behind: Float[np.ndarray, " wait"]
    lag: Float[np.ndarray, " wait"]
    lead: Float[np.ndarray, " wait"]

    def gaps(self, spell: Any, latency: Any) -> Any:
        """The gap of each wait, s, from T and a of each group; NumPy or JAX."""
        ahead = self.ahead * spell[self.before] + self.lag * latency[self.before]
        behind = self.behind * spell[self.after]
        return ahead - behind - self.lead * latency[self.after]


@dataclasses.dataclass(frozen=True)
class Order:
    """Groups and their waits. `forward` lies in order of `level` (no wait leads to a
    level at or below that of its `before`), then of `after`; `back` leads the other
    way, mostly: what a switch cannot hold keeps what comes in back."""

    groups: Groups
    send_link: Int[np.ndarray, " send"]
    forward: Waits
    level: Int[np.ndarray, " forward"]
    back: Waits


def order_by(
    schedule: Schedule,
    groups: Groups,
    pairs: Int[np.ndarray, "2 pair"],
    passed: Passed,
    keeping: bool,
) -> Order:
    """The order of groups (numbered along each link) whose sends wait for `pairs`;
    `keeping`: what decided choices in switches stays in order."""
    count = len(groups.link)
    forward = Waits.joined(
        [
            _on_links(groups),
            _between(groups, pairs, groups.until[pairs[0]], groups.first[pairs[1]]),
            *_cut_through(groups, passed),
        ]
    )
    back = Waits.joined(_back_waits(groups, passed)[: None if keeping else 1])
    level, tail = _levels(forward, count), forward.after
    rising = level[tail] > level[forward.before]
    if not rising.all():
        back = Waits.joined([back, forward.take(np.flatnonzero(~rising))])
    rows = np.flatnonzero(rising)
    rows = rows[np.lexsort((tail[rows], level[tail[rows]]))]
    forward = forward.take(rows)
    back = back.take(np.argsort(back.after, kind="stable"))
    sends = schedule.sends
    return Order(groups, sends.link, forward, level[forward.after], back)


def pairs_of(
    schedule: Schedule, when: Arrivals | None
) -> tuple[Int[np.ndarray, "2 pair"], Passed]:
    """What waits for what at GPUs and at switches, by the stated times or `when`."""
    when = stated(schedule) if when is None else when
    return stored(schedule, when), passed_on(schedule, when)


def _on_links(groups: Groups) -> Waits:
    """Waits of each group on a link for the one before it."""
    before = np.flatnonzero(groups.link[1:] == groups.link[:-1])
    length = np.ones(len(groups.link))
    np.maximum.at(length, groups.group, groups.until)
    zero = np.zeros(len(before))
    return Waits(before, before + 1, length[before], zero, zero, zero)


def _between(
    groups: Groups,
    pairs: Int[np.ndarray, "2 pair"],
    ahead: Float[np.ndarray, " pair"],
    behind: Float[np.ndarray, " pair"],
    lag: float = 1.0,
    lead: float = 0.0,
) -> Waits:
    """Waits of the second send of each pair for the first, latency included."""
    before, after = groups.group[pairs]
    one = np.ones(len(before))
    return Waits(before, after, ahead, behind, lag * one, lead * one)


def _cut_through(groups: Groups, passed: Passed) -> list[Waits]:
    """Waits for the first and last byte of what goes through a switch."""
    pairs = np.stack([passed.into, passed.out])
    first, until = groups.first[passed.into], groups.until[passed.into]
    low = first + passed.low * (until - first)
    high = first + passed.high * (until - first)
    return [
        _between(groups, pairs, low, groups.first[passed.out]),
        _between(groups, pairs, high, groups.until[passed.out]),
    ]


def _back_waits(groups: Groups, passed: Passed) -> list[Waits]:
    """What comes into a switch waits until it can leave; and what decided choices stays
    in order."""
    first, until = groups.first, groups.until
    pairs = np.stack([passed.out, passed.into])
    (early, late), (head, next_) = passed.ends, passed.starts
    return [
        _between(groups, pairs, first[passed.out], until[passed.into], 0.0, 1.0),
        _between(groups, passed.ends, until[early], until[late], 1.0, 1.0),
        _between(groups, passed.starts, first[head], first[next_], 0.0, 0.0),
    ]


def _levels(waits: Waits, count: int) -> Int[np.ndarray, " group"]:
    """Most waits on any path to each group; of groups that wait for each other, as far
    as they can be told apart."""
    order = np.argsort(waits.before, kind="stable")
    tail = waits.after[order]
    first = np.searchsorted(waits.before[order], np.arange(count + 1))
    waiting = np.bincount(tail, minlength=count)
    level, place = np.zeros(count, int), np.zeros(count, int)
    ready, depth, done = np.flatnonzero(waiting == 0), 0, 0
    while done < count:
        if not len(ready):  # a circle: begin with the one that waits for least
            left = np.flatnonzero(waiting > 0)
            ready = left[np.argmin(waiting[left])][None]
            waiting[ready] = 0
        level[ready] = depth
        done += len(ready)
        size = first[ready + 1] - first[ready]
        begin = np.repeat(first[ready] - np.cumsum(size) + size, size)
        next_ = tail[begin + np.arange(size.sum())]
        was = waiting[next_] > 0
        np.subtract.at(waiting, next_, 1)
        touched = next_[was & (waiting[next_] == 0)]
        place[touched] = np.arange(len(touched))
        ready = touched[place[touched] == np.arange(len(touched))]  # each once
        depth += 1
    return level


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
            mine, later = slice(low, high), slice(low + 1, high)
            if when is not None:
                fresh[later] = (np.diff(start[mine]) > slack) | ~switched[low]
            else:
                times = start[mine], leaves[mine], busy[mine]
                fresh[later] = _apart(*times, slack, bool(switched[low]))
    number = np.cumsum(fresh) - 1
    first, until = np.zeros(len(rows)), np.ones(len(rows))
    if sharing and when is None:
        begin = start[fresh][number]
        total = np.bincount(number, busy)[number]
        as_stated = _fit_as_stated(number, start, leaves, busy, slack)
        as_stated &= (np.bincount(number)[number] > 1) | switched
        first[as_stated] = ((start - begin) / total)[as_stated]
        until[as_stated] = ((leaves - begin) / total)[as_stated]
    back = np.empty(len(rows), int)
    back[rows] = np.arange(len(rows))
    size = np.bincount(number, sends.bytes[rows])
    groups = Groups(link[fresh], size, number[back], first[back], until[back])
    return groups, bool(over.any())


def _fit_as_stated(
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
    """First and last row of each run of overlapping sends on a link."""
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


# --- The finish of an order at any rates and latencies, with its derivatives.
#
# A max-plus expression: the finish is the length of the longest path through the waits
# of an `Order`, each linear in latencies and 1 / rates, so its derivative is that of
# the sum along the path; where two paths tie it is the derivative of one of them.


_NEAR: Final = 1e-14
"""Share of a start below which it is not later: rounding."""


@dataclasses.dataclass(frozen=True)
class Finish:
    """`time`, s; `by_rate`: r dT/dr, s; `by_latency`: dT/da. Infinite, and NaN, where
    the order cannot be kept: switches would have to hold data."""

    time: float
    by_rate: Float[np.ndarray, " link"]
    by_latency: Float[np.ndarray, " link"]


def finish_time(
    order: Order,
    rates: Float[np.ndarray, " link"],
    latencies: Float[np.ndarray, " link"],
) -> Finish:
    """When the last send of `order` ends with the given rates (B/s) and latencies
    (s)."""
    groups, count = order.groups, len(rates)
    cause = np.full(len(groups.link), -1)
    start = least_starts(order, rates, latencies, cause)
    if start is None:
        unknown = np.full(count, np.nan)
        return Finish(np.inf, unknown, unknown)
    spell = groups.bytes / rates[groups.link]
    busy = groups.until * spell[groups.group]
    ends = start[groups.group] + busy + latencies[order.send_link]
    last = int(np.argmax(ends >= ends.max() * (1 - _NEAR)))
    before = np.append(order.forward.before, order.back.before)
    group, passed = groups.group[last], list[int]()
    while cause[group] >= 0:
        passed.append(int(cause[group]))
        group = before[passed[-1]]
    path = Waits.joined([order.forward, order.back]).take(np.array(passed, int))
    head, tail = groups.link[path.before], groups.link[path.after]
    gained, waited = np.zeros((2, count))
    np.add.at(gained, head, path.ahead * spell[path.before])
    np.subtract.at(gained, tail, path.behind * spell[path.after])
    np.add.at(waited, head, path.lag)
    np.subtract.at(waited, tail, path.lead)
    gained[order.send_link[last]] += busy[last]
    waited[order.send_link[last]] += 1
    return Finish(float(ends[last]), -gained, waited)


def least_starts(
    order: Order,
    rates: Float[np.ndarray, " link"],
    latencies: Float[np.ndarray, " link"],
    cause: Int[np.ndarray, " group"] | None = None,
) -> Float[np.ndarray, " group"] | None:
    """Least starts from 0 on, s; None if there are none, since groups wait in a circle.

    `cause`: is set to the wait that each start is due to, numbered through `forward`,
    then `back`; -1 stays where there is none.
    """
    groups = order.groups
    spell = groups.bytes / rates[groups.link]
    latency = latencies[groups.link]
    forward = order.forward.gaps(spell, latency)
    back = order.back.gaps(spell, latency)
    most = float(spell.sum() + latency.sum()) * float(groups.until.max())
    levels = np.flatnonzero(np.diff(order.level, prepend=-1, append=-1)).tolist()
    heads = np.flatnonzero(np.diff(order.forward.after, prepend=-1))
    at = np.searchsorted(heads, levels).tolist()
    goal = order.forward.after[heads]
    back_heads = np.flatnonzero(np.diff(order.back.after, prepend=-1))
    back_goal = order.back.after[back_heads]
    start = np.zeros(len(groups.link))

    def note(first: int, tail: np.ndarray, reach: np.ndarray, was: np.ndarray):
        """The waits from number `first` on that have made starts at `tail` later."""
        if cause is not None:
            moved = (reach * (1 - _NEAR) > was) & (reach >= start[tail])
            cause[tail[moved]] = first + np.flatnonzero(moved)

    for _ in range(len(back) + 1):
        for n in range(len(levels) - 1):
            low, high = levels[n], levels[n + 1]
            reach = start[order.forward.before[low:high]] + forward[low:high]
            some = slice(at[n], at[n + 1])
            best = np.maximum.reduceat(reach, heads[some] - low)
            tail = order.forward.after[low:high]
            was = start[tail]
            start[goal[some]] = np.maximum(start[goal[some]], best)
            note(low, tail, reach, was)
        if not len(back):
            return start
        reach = start[order.back.before] + back
        best = np.maximum.reduceat(reach, back_heads)
        later = best * (1 - _NEAR) > start[back_goal]
        if not later.any():
            return start
        was = start[order.back.after]
        start[back_goal[later]] = best[later]
        note(len(forward), order.back.after, reach, was)
        if start.max() > most:
            return None
    return None
