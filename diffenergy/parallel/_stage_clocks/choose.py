"""Offered clocks for instructions: near the linear program's, and never too late."""

from typing import Final, Literal

import numpy as np
from jaxtyping import Int

from .hulls import pareto
from .problem import ROUNDING, Problem, latest
from .relaxed import Relaxed

Granularity = Literal["stage", "kind", "instruction"]
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
    cost, limit = problem.cost, lowest.deadline * (1 + ROUNDING)
    until = latest(problem.program, lowest.durations, limit).tolist()
    options = [
        pareto(problem.time[:, t], cost[:, t]) for t in range(len(problem.stage))
    ]
    times = [problem.time[rows, t] for t, rows in enumerate(options)]
    done = [0.0] * (len(until) + 1)
    found = np.zeros(len(until), int)
    before, needs = (
        x.tolist() for x in (problem.program.before, problem.program.needs)
    )
    for i, t in enumerate(problem.type.tolist()):
        start = max(done[before[i]], done[needs[i]])
        room = (until[i] - start) * (1 + ROUNDING)
        place = max(int(np.searchsorted(times[t], room, "right")) - 1, 0)
        found[i] = options[t][place]
        done[i] = start + times[t][place]
    return found


def _of_types(problem: Problem, lowest: Relaxed) -> Int[np.ndarray, " t"]:
    """The slowest worthwhile clock of every type that takes no longer than in the
    linear program."""
    found = np.zeros(len(problem.stage), int)
    cost = problem.cost
    first = np.unique(problem.type, return_index=True)[1]
    for t, most in enumerate(lowest.durations[first]):
        options = pareto(problem.time[:, t], cost[:, t])
        fit = problem.time[options, t] <= most * (1 + ROUNDING)
        found[t] = options[fit][-1] if fit.any() else options[0]
    return found


def _searched(
    problem: Problem, lowest: Relaxed, units: Int[np.ndarray, " t"]
) -> Int[np.ndarray, " i"]:
    """Types of one unit at one clock: from the fastest that the linear program has in
    each, one unit slower, or one slower and another faster, as long as that saves
    energy."""
    begun, deadline = _of_types(problem, lowest), lowest.deadline
    number = np.bincount(problem.type, minlength=len(units))
    count = int(units.max()) + 1
    joint = np.zeros((len(problem.clocks), count))
    np.add.at(joint.T, units, (problem.cost * number).T)
    taken = np.zeros_like(joint)
    np.add.at(taken.T, units, problem.time.T)
    options = [pareto(taken[:, u], joint[:, u]) for u in range(count)]
    worth = np.full((count, max(map(len, options))), np.inf)
    clock = np.zeros(worth.shape, int)
    for u, rows in enumerate(options):
        worth[u, : len(rows)] = joint[rows, u]
        clock[u, : len(rows)] = rows
    place = np.array(
        [
            max(int(np.searchsorted(rows, begun[units == u].min(), "right")) - 1, 0)
            for u, rows in enumerate(options)
        ]
    )
    every = np.arange(count)
    last = np.array([len(rows) - 1 for rows in options])

    def late(places: Int[np.ndarray, "q u"]) -> np.ndarray:
        choice = clock[every, places][:, units[problem.type]]
        return problem.pipeline(choice) > deadline * (1 + ROUNDING)

    if late(place[None])[0]:
        place = np.zeros(count, int)
    while True:
        tried = _near(place, last, len(problem.type))
        change = worth[every, tried].sum(axis=1) - worth[every, place].sum()
        saves = change < -ROUNDING * np.abs(worth[every, place]).sum()
        tried, change = tried[saves], change[saves]
        order = np.argsort(change, kind="stable")
        at_once = max(_MOST // len(problem.type), 1)
        for start in range(0, len(order), at_once):
            some = order[start : start + at_once]
            good = some[~late(tried[some])]
            if len(good):
                place = tried[good[0]]
                break
        else:
            return clock[every, place][units[problem.type]]


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
    kept = ((rows >= 0) & (rows <= last)).all(axis=1)
    return rows[kept]
