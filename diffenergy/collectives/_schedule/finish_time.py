"""The finish of an order at any rates and latencies, with its derivatives.

A max-plus expression: the finish is the length of the longest path through the waits
of an `Order`, each linear in latencies and 1 / rates, so its derivative is that of the
sum along the path; where two paths tie it is the derivative of one of them.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .order import Order, Waits

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
