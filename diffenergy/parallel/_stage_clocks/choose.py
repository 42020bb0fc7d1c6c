"""Offered clocks for instructions: near the linear program's, and never too late."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .._request import Granularity
from .hulls import ROUNDING, pareto
from .problem import Problem, latest
from .relaxed import Relaxed

"""What has a clock of its own: a stage; its passes forward and its passes backward; or
every instruction."""
_MOST: Final = 2_000_000
"""Instructions of all schedules that are tried at once."""
_SLOWER: Final = (1, 2, 3, 5, 8)
"""Steps by which a unit is slowed at once."""
_FASTER: Final = (1, 2, 3)
"""Steps by which another one is quickened for it."""


def chosen(
    problem: Problem, granularity: Granularity, lowest: Relaxed
) -> Int[np.ndarray, " i"]:
    """Clock of every instruction, as a row of `clocks`, near those of a linear program
    (`lowest`, tied unless every instruction has a clock of its own) and no later."""
    if granularity == "instruction":
        return _carried(problem, lowest)
    units = np.arange(len(problem.stage)) if granularity == "kind" else problem.stage
    return _searched(problem, lowest, units)


def _carried(problem: Problem, lowest: Relaxed) -> Int[np.ndarray, " i"]:
    """Every instruction its slowest worthwhile clock by the time at which, in the
    linear program, it has to end: what rounding leaves, the next ones may take."""
    options, limit = problem.options, lowest.deadline * (1 + ROUNDING)
    until = latest(problem.program, lowest.durations, limit).tolist()
    times = [problem.time[rows, t] for t, rows in enumerate(options)]
    # -1 stands for none: it reads the last place, which stays 0
    done = [0.0] * (len(until) + 1)
    choice = np.zeros(len(until), int)
    before, needs = (
        x.tolist() for x in (problem.program.before, problem.program.needs)
    )
    for i, t in enumerate(problem.type.tolist()):
        start = max(done[before[i]], done[needs[i]])
        room = (until[i] - start) * (1 + ROUNDING)
        place = max(int(np.searchsorted(times[t], room, "right")) - 1, 0)
        choice[i] = options[t][place]
        done[i] = start + times[t][place]
    return choice


def _of_types(problem: Problem, lowest: Relaxed) -> Int[np.ndarray, " t"]:
    """The slowest worthwhile clock of every type that takes no longer than in the
    linear program."""
    choice = np.zeros(len(problem.stage), int)
    first = np.unique(problem.type, return_index=True)[1]
    for t, most in enumerate(lowest.durations[first]):
        options = problem.options[t]
        fit = problem.time[options, t] <= most * (1 + ROUNDING)
        choice[t] = options[fit][-1] if fit.any() else options[0]
    return choice


def _searched(
    problem: Problem, lowest: Relaxed, units: Int[np.ndarray, " t"]
) -> Int[np.ndarray, " i"]:
    """Types of one unit at one clock: the best of few choices; else, from the fastest
    that the linear program has in each, and from the usual, one unit slower, or one
    slower and another faster, as long as that saves energy."""
    some = _units(problem, lowest.deadline, units)
    if np.prod(some.last + 1.0) * len(problem.type) <= _MOST:
        every = np.indices((some.last + 1).tolist()).reshape(len(some.last), -1).T
        return some.choice(_cheapest(some, every)[None])[0]
    begun = _of_types(problem, lowest)
    near = [begun[units == u].min() for u in range(len(some.last))]
    usual = np.zeros(len(near), int)
    starts = [some.nearest(np.array(near)), usual]
    candidates = [_descended(some, x) for x in starts if not some.late(x[None])[0]]
    return some.choice(min(candidates, key=some.value)[None])[0]


@dataclasses.dataclass(frozen=True)
class _Units:
    """What has a clock of its own, with the clocks worth choosing in order of time.

    `clock`: rows of the problem's; `worth`: J of all instructions beyond waiting;
    `last`: place of the slowest; `of`: unit of every instruction.
    """

    problem: Problem
    deadline: float
    clock: Int[np.ndarray, "u k"]
    worth: Float[np.ndarray, "u k"]
    last: Int[np.ndarray, " u"]
    of: Int[np.ndarray, " i"]

    @property
    def every(self) -> Int[np.ndarray, " u"]:
        """All units."""
        return np.arange(len(self.last))

    def choice(self, places: Int[np.ndarray, "q u"]) -> Int[np.ndarray, "q i"]:
        """Clock of every instruction."""
        return self.clock[self.every, places][:, self.of]

    def late(self, places: Int[np.ndarray, "q u"]) -> Bool[np.ndarray, " q"]:
        """Which end behind the deadline."""
        done = self.problem.pipeline(self.choice(places))
        return done > self.deadline * (1 + ROUNDING)

    def value(self, place: Int[np.ndarray, " u"]) -> float:
        """J beyond waiting."""
        return float(self.worth[self.every, place].sum())

    def nearest(self, clock: Int[np.ndarray, " u"]) -> Int[np.ndarray, " u"]:
        """Places of clocks, or of the next faster ones."""
        slower = (self.clock > clock[:, None]) | np.isinf(self.worth)
        return np.maximum((~slower).sum(axis=1) - 1, 0)


def _units(problem: Problem, deadline: float, units: Int[np.ndarray, " t"]) -> _Units:
    number = np.bincount(problem.type, minlength=len(units))
    shape = (int(units.max()) + 1, len(problem.clocks))
    joint, time = np.zeros(shape), np.zeros(shape)
    np.add.at(joint, units, (problem.cost * number).T)
    np.add.at(time, units, (problem.time * number).T)
    options = [pareto(x, y) for x, y in zip(time, joint, strict=True)]
    clock = np.zeros((len(options), max(map(len, options))), int)
    worth = np.full(clock.shape, np.inf)
    for u, rows in enumerate(options):
        clock[u, : len(rows)] = rows
        worth[u, : len(rows)] = joint[u, rows]
    last = np.array([len(rows) - 1 for rows in options])
    return _Units(problem, deadline, clock, worth, last, units[problem.type])


def _descended(units: _Units, place: Int[np.ndarray, " u"]) -> Int[np.ndarray, " u"]:
    """The best place that steps lead to, each the one that saves most."""
    size, level = len(units.of), units.value(place)
    while True:
        near = _near(place, units.last, size)
        better = _cheapest(units, np.concatenate([place[None], near]))
        if units.value(better) >= level - ROUNDING * abs(level):
            return place
        place, level = better, units.value(better)


def _cheapest(units: _Units, tried: Int[np.ndarray, "q u"]) -> Int[np.ndarray, " u"]:
    """The cheapest of places that is not late; the first one is not."""
    value = units.worth[units.every, tried].sum(axis=1)
    cheaper = value <= value[0]
    order = tried[cheaper][np.argsort(value[cheaper], kind="stable")]
    at_once = max(_MOST // len(units.of), 1)
    for start in range(0, len(order), at_once):
        some = order[start : start + at_once]
        good = some[~units.late(some)]
        if len(good):
            return good[0]
    return tried[0]


def _near(
    place: Int[np.ndarray, " u"], last: Int[np.ndarray, " u"], instructions: int
) -> Int[np.ndarray, "q u"]:
    """Places around: one unit slower, or one slower and one faster."""
    every = np.eye(len(place), dtype=int)
    single = [place + n * every for n in _SLOWER]
    pairs = [
        place + n * every[:, None] - k * every[None] for n in _SLOWER for k in _FASTER
    ]
    several = len(place) ** 2 * len(pairs) * instructions <= 20 * _MOST
    rows = np.concatenate(
        [*single, *(x.reshape(-1, len(place)) for x in pairs if several)]
    )
    legal = ((rows >= 0) & (rows <= last)).all(axis=1)
    return rows[legal]
