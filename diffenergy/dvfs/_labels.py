"""Exact schedules with stalls, of small problems: dynamic programming over launch,
setting and rounded time.

A label is the start of a schedule: its setting, that of the first position of its loop
(met again at each turn), time and energy so far. Of two labels that go on alike, one
that takes longer and no less energy is of no use. Of those whose times fall into one
step, the one of least energy is kept: what was dropped ends at most a step sooner. That
happens twice a position, before a change and after it. So some kept schedule of n
positions takes no more energy than the best one and at most 2 n steps more time: the
least energy within the limit and 2 n steps is a bound, and the least within the limit
a plan. (Rounded dynamic programming of the constrained shortest
path: Hassin, Math. Oper. Res. 17, 1992.)
"""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..search import pareto_front
from ._plan import Objective
from ._positions import Positions
from ._problem import TIE, Total

_STEPS: Final = 20_000
"""Steps of time, up to the limit."""
_MOST: Final = 2e6
"""Most positions x settings x first settings x steps."""
_FEWEST: Final = 2_000
"""Steps below which the rounding is too coarse to be of use."""


class Labels(NamedTuple):
    """Starts of schedules; `parent`: place among the labels of the position before."""

    first: Int[np.ndarray, " label"]
    setting: Int[np.ndarray, " label"]
    time: Float[np.ndarray, " label"]  # s
    energy: Float[np.ndarray, " label"]  # J
    parent: Int[np.ndarray, " label"]

    def take(self, rows: np.ndarray) -> "Labels":
        """Some of them."""
        return Labels(*(column[rows] for column in self))


class Exact(NamedTuple):
    """Setting of every position in the best schedule within the limit (None: there is
    none), and the value that none goes below."""

    settings: Int[np.ndarray, " position"] | None
    bound: float


def exact_schedule(
    places: Positions, objective: Objective, most_time: float
) -> Exact | None:
    """The best schedule within `most_time` (s), to the rounding of time; None where the
    problem is not small, has host times or caps, or the objective is another."""
    steps = _steps(places, objective)
    if steps is None:
        return None
    span, rest = _span(places, most_time)
    step = span / steps
    slack = 2 * len(places.kernel) * step
    latest = most_time * (1 + TIE) + slack
    history: list[Labels] = []
    zero, nothing = np.zeros(1, np.int64), np.zeros(1)
    labels = Labels(zero, zero, nothing, nothing, zero)
    for position in range(len(places.kernel)):
        labels = _extended(places, labels, position, step)
        inside = labels.time + rest[position] <= latest
        if not inside.any():
            return Exact(None, np.inf)
        labels = labels.take(inside)
        kinds = labels.first * len(places.problem.settings) + labels.setting
        labels = labels.take(_undominated(labels, kinds, step))
        history.append(labels)
    sooner = np.maximum(labels.time - slack, 0.0)
    bound = float(objective.value(Total(sooner, labels.energy)).min())
    in_time = labels.time <= most_time * (1 + TIE)
    if not in_time.any():
        return Exact(None, bound)
    value = objective.value(Total(labels.time, labels.energy))
    best = int(np.where(in_time, value, np.inf).argmin())
    return Exact(_traced(history, best), bound)


def _steps(places: Positions, objective: Objective) -> int | None:
    """Steps of time that a problem can have; None if it is not one of these."""
    problem = places.problem
    plain = np.isinf(problem.power_cap).all() and not problem.host_time.any()
    if not plain or objective.goal == "time" or np.isfinite(objective.power_cap):
        return None
    settings = len(problem.settings)
    firsts = settings if _circles(places).any() else 1
    states = len(places.kernel) * settings * firsts
    steps = min(_STEPS, int(_MOST / states))
    return steps if steps >= _FEWEST else None


def _circles(places: Positions) -> Bool[np.ndarray, " position"]:
    """Positions at the end of a loop that begins elsewhere and comes again."""
    return (places.again > 0) & (places.first != np.arange(len(places.first)))


def _span(
    places: Positions, most_time: float
) -> tuple[float, Float[np.ndarray, " position"]]:
    """From the shortest time of all positions to the limit, or to the longest, s; and
    the shortest of all that follow each position."""
    usable = places.problem.usable[places.kernel]
    least = np.where(usable, places.time, np.inf).min(1)
    longest = np.where(usable, places.time, 0.0).max(1)
    stalls = places.stall * (places.entered.sum() + places.again.sum())
    high = min(most_time, float(longest.sum() + stalls))
    rest = least.sum() - np.cumsum(least)
    return max(high - float(least.sum()), TIE * high), np.maximum(rest, 0.0)


def _extended(places: Positions, labels: Labels, position: int, step: float) -> Labels:
    """Every label followed by its own setting at the next position, and those that are
    the best of some time by every other one."""
    usable, circles = places.problem.usable[places.kernel[position]], _circles(places)
    settings, stays = np.flatnonzero(usable), np.flatnonzero(usable[labels.setting])
    best = _undominated(labels, labels.first, step)
    number = np.append(stays, np.repeat(best, len(settings)))
    setting = np.append(labels.setting[stays], np.tile(settings, len(best)))
    changes = places.entered[position] * (setting != labels.setting[number])
    first = labels.first[number]
    if places.first[position] == position:
        end = position + int(np.argmax(places.first[position:] != position))
        end = len(places.first) if end == position else end
        first = setting if circles[position:end].any() else np.zeros_like(setting)
    if circles[position]:
        changes = changes + places.again[position] * (setting != first)
        first = np.zeros_like(first)
    time = places.time[position, setting] + places.stall * changes
    energy = places.energy[position, setting] + places.change_energy * changes
    return Labels(
        first,
        setting,
        labels.time[number] + time,
        labels.energy[number] + energy,
        number,
    )


def _undominated(
    labels: Labels, group: Int[np.ndarray, " label"], step: float
) -> Int[np.ndarray, " kept"]:
    """Of each step of time the label of least energy, if all sooner ones of its group
    take more."""
    order = np.argsort(labels.time, kind="stable")
    steps = np.floor(labels.time[order] / step)
    return order[pareto_front(steps, labels.energy[order], group=group[order])]


def _traced(history: list[Labels], last: int) -> Int[np.ndarray, " position"]:
    """Settings along the way to a label of the last position."""
    settings = np.empty(len(history), np.int64)
    for position in reversed(range(len(history))):
        settings[position] = history[position].setting[last]
        last = int(history[position].parent[last])
    return settings
