"""`search`: descents from many starts, made legal, scored exactly; and what holds the
best design back: multipliers of limits and bounds, elasticities.

At the best design the slopes of ln(objective) and of the ln of every limited metric
are taken over ln of the axes. Where a limit binds, the slope of the objective is the
negative sum of multiplier x slope of the metric over the axes that are free (the
Karush-Kuhn-Tucker conditions); the multipliers are the non-negative least squares
solution of that.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Final

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from ...hardware import FIELDS
from .._design_request import Effort
from .._problem.exact import UNITS, Judge, Judged, Target, nan_free
from .._problem.legal import better, moved, next_moves
from .._problem.problem import LIMITS, Active, DesignOutcome, Problem, Score, Share
from .._space.ranges import rule_of
from .._space.task import METRICS
from .descent import STEPS, begin
from .engine import Engine, Tell, aims
from .pareto import front

_EDGE: Final = 1e-6
_TIGHT: Final = 0.005
"""A limit this near, as a share of it, holds a continuous design back."""


def search(
    problem: Problem, effort: Effort | None = None, tell: Tell | None = None
) -> DesignOutcome:
    """Best legal design of `problem`, with what holds it back.

    The same seed gives the same answer. Ctrl-C (`KeyboardInterrupt`) ends the search
    with the best so far. A design that keeps no limit comes back with its `violation`.

    Raises `ValueError` if a metric or a caller's objective is NaN somewhere.
    """
    began = time.monotonic()
    tell = tell or (lambda *_: None)
    engine = Engine(problem, effort or Effort())
    goal, *others = problem.targets
    start = start_of(engine)
    if not problem.axes:
        return _as_it_is(engine, start, began)
    designs: tuple[Score, ...] = ()
    try:
        engine.search(goal, tell)
        if others and not engine.interrupted:
            designs = front(engine, tell)
    except KeyboardInterrupt:
        if not len(engine.judge):
            raise
        engine.interrupted = True
    try:
        return _outcome(engine, start, designs, began)
    except KeyboardInterrupt:
        engine.interrupted = True
        return _outcome(engine, start, designs, began)


def with_shares(problem: Problem, shares: Mapping[str, Share]) -> Problem:
    """`problem` with limits that are shares of what its start has, as numbers."""
    if not shares:
        return problem
    start = start_of(Engine(problem, Effort())).metrics
    limits = {metric: x.share * start[metric] for metric, x in shares.items()}
    return dataclasses.replace(problem, limits={**problem.limits, **limits})


def _outcome(
    engine: Engine, start: Score, designs: tuple[Score, ...], began: float
) -> DesignOutcome:
    """The best design so far, with what holds it back."""
    problem, goal = engine.problem, engine.problem.targets[0]
    everything = engine.judge.everything
    judged = everything.take(everything.order(goal)[:1])
    of_axes, of_fields = _slopes(engine, judged.values[0])
    sizes = [float(getattr(problem.task.gpu, name)) for name in FIELDS]
    return DesignOutcome(
        problem.goals[0] if len(problem.goals) == 1 else ",".join(problem.goals),
        UNITS.get(problem.goals[0], ""),
        start,
        problem.score(judged, 0, goal),
        _active_limits(engine, judged, of_axes),
        tuple(
            (name, float(slope) if size else None)
            for name, slope, size in zip(FIELDS, of_fields, sizes, strict=True)
        ),
        engine.evaluations,
        time.monotonic() - began,
        engine.effort.seed,
        designs,
        tuple(engine.path),
        engine.interrupted,
    )


def _as_it_is(engine: Engine, start: Score, began: float) -> DesignOutcome:
    """Outcome where no number varies: the start."""
    problem, seconds = engine.problem, time.monotonic() - began
    goals, unit = ",".join(problem.goals), UNITS.get(problem.goals[0], "")
    now = {"round": 1, "evaluations": 1, "objective": start.objective}
    path = ({**now, "violation": start.violation, "fields": {}},)
    front = (start,) if len(problem.goals) > 1 else ()
    seed = engine.effort.seed
    return DesignOutcome(
        goals, unit, start, start, (), (), 1, seconds, seed, front, path
    )


def start_of(engine: Engine) -> Score:
    """The base design as it is: at its own values, with the library's tiles."""
    problem, goal = engine.problem, engine.problem.targets[0]
    lows, highs = problem.bounds
    inside = np.all(problem.base >= lows * (1 - _EDGE))
    inside &= np.all(problem.base <= highs * (1 + _EDGE))
    if problem.start is None and inside:
        judged = engine.judge(problem.base[None])
    else:  # a judge of its own: what is out of bounds must not become the best design
        judge = Judge(problem.start or problem.task)
        judged = judge(problem.base[None, : len(problem.task.names)])
        engine.judge.evaluations += judge.evaluations
    nan_free(judged, problem.task)
    return problem.score(judged, 0, goal)


# --- what holds a design back


def _slopes(
    engine: Engine, values: Float[np.ndarray, " axis"]
) -> tuple[Float[np.ndarray, "metric axis"], Float[np.ndarray, " field"]]:
    """Slopes of the objective and of every limited metric over the axes, and of the
    objective over the numbers of the GPU, at one design, in logarithms."""
    problem, starts = engine.problem, engine.effort.starts
    limited = [METRICS.index(metric) for metric in problem.limits]
    powers = (problem.targets[0].powers, *np.eye(len(METRICS))[limited])
    targets = [Target(of_one, np.full(len(METRICS), np.inf)) for of_one in powers]
    targets += targets[-1:] * (-len(targets) % starts)  # whole rounds: no other program
    scale = abs(float(engine.judge(values[None]).custom[0])) or 1.0
    z = np.repeat(engine.inverse(values, _EDGE)[None], starts, axis=0)
    states = begin(z, np.zeros((starts, engine.limits)))
    parts = []
    for first in range(0, len(targets), starts):
        after = aims(targets[first : first + starts], scale, np.ones(len(values)))
        _, slopes = engine.advance(states, after, np.zeros(STEPS), np.zeros(starts))
        parts.append(slopes)
    of_axes = np.concatenate([np.asarray(slopes.axes) for slopes in parts])
    return of_axes, np.asarray(parts[0].fields)[0]


def _active_limits(
    engine: Engine, best: Judged, slopes: Float[np.ndarray, "metric axis"]
) -> tuple[Active, ...]:
    """Limits and bounds that keep the objective from falling, with multipliers.

    A limit binds where it is reached, or where a single legal step would lower the
    objective but pass it.
    """
    problem, goal = engine.problem, engine.problem.targets[0]
    point, unit_of_goal = best.values[0], UNITS.get(problem.goals[0], "")
    value = float(best.objective(goal)[0])
    lows, highs = problem.bounds
    at_low, at_high = point <= lows * (1 + _EDGE), point >= highs * (1 - _EDGE)
    binding = _binding(engine, best, goal)
    rows = [1 + list(problem.limits).index(METRICS[metric]) for metric in binding]
    free = ~(at_low | at_high)
    weights = np.zeros(len(rows))
    if rows and free.any():
        weights, _ = nnls(slopes[rows][:, free].T, -slopes[0][free])
    left = slopes[0] + weights @ slopes[rows]
    active = []
    for metric, weight in zip(binding, weights, strict=True):
        name, limit = METRICS[metric], goal.limits[metric]
        unit = f"{unit_of_goal}/({UNITS.get(name, '')})"
        active.append(Active(LIMITS[name], float(weight * abs(value) / limit), unit))
    for n, axis in enumerate(problem.axes[: len(problem.task.names)]):
        for at, bound, sign in ((at_low, "low", 1.0), (at_high, "high", -1.0)):
            gain = sign * left[n]
            if at[n] and gain > 0 and axis.low < axis.high:
                of_field = rule_of(axis.name).unit.split(",")[0]
                unit = f"{unit_of_goal}/({of_field})"
                gained = gain * abs(value) / point[n]
                active.append(Active(f"{axis.name} ({bound})", float(gained), unit))
    return tuple(active)


def _binding(engine: Engine, best: Judged, goal: Target) -> list[int]:
    """Metrics whose limit is reached, or passed by a step that would be better."""
    problem, point = engine.problem, best.values[0]
    slack = -best.excess(goal)[0]
    tight = {int(n) for n in np.flatnonzero(slack < _TIGHT)}
    steps = next_moves(problem.axes, point, 2)
    if steps:
        tried = np.stack([point, *(moved(point, [step]) for step in steps)])
        judged = engine.judge(tried)
        free = Target(goal.powers, np.full_like(goal.limits, np.inf))
        passed = judged.excess(goal)
        for row in range(1, len(tried)):
            if better(judged, free, row, 0) and not judged.faults[row].max() > 0:
                tight |= {int(n) for n in np.flatnonzero(passed[row] > 0)}
    return sorted(tight & {METRICS.index(metric) for metric in problem.limits})
