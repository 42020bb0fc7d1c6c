"""Pareto front: the first objective made small under limits on the others."""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float

from ...search import pareto_front
from .._problem.exact import Judged, Target
from .._problem.legal import polish
from .._problem.problem import Score
from .engine import Engine, Tell

_POINTS: Final = 8
"""Points between the ends of the front of two objectives; as many on each axis of a
third."""
_ROUNDS: Final = 0.5
"""Rounds of a point's descent / those of a search."""
_MOST: Final = 16
"""Points that are kept."""


def front(engine: Engine, tell: Tell) -> tuple[Score, ...]:
    """Designs that no other one beats in all objectives, by rising first objective.

    Every objective is made small alone; between these ends the first one is made small
    under limits on the others (epsilon constraints), each a start of one descent.
    """
    problem = engine.problem
    goals = problem.targets
    for goal in goals[1:]:
        engine.search(goal, tell)
    everything = engine.judge.everything
    best = [int(everything.order(goal)[0]) for goal in goals]
    between = _between(goals, _objectives(everything.take(best), goals))
    for first in range(0, len(between), engine.effort.starts):
        chunk = between[first : first + engine.effort.starts]
        _descend(engine, chunk, tell)
        if engine.interrupted:
            break
    return _undominated(engine, goals)


def _objectives(
    designs: Judged, goals: list[Target]
) -> Float[np.ndarray, "design goal"]:
    return np.stack([designs.objective(goal) for goal in goals], axis=-1)


def _between(goals: list[Target], ends: Float[np.ndarray, "goal goal"]) -> list[Target]:
    """Targets for the first objective with limits on the others, between their best
    and what the first one's best design has. `ends`: objectives (columns) of the best
    design for each (rows)."""
    share = (np.arange(_POINTS) + 0.5) / _POINTS
    between = [goals[0]]
    for n in range(1, len(goals)):
        best, there = ends[n, n], ends[0, n]
        if there <= best or goals[n].powers.sum() != 1:
            continue
        metric = int(np.flatnonzero(goals[n].powers)[0])
        wider = []
        for goal in between if n > 1 else goals[:1]:
            for s in share:
                limits = goal.limits.copy()
                limits[metric] = min(limits[metric], best * (there / best) ** s)
                wider.append(dataclasses.replace(goal, limits=limits))
        between = wider
    return [goal for goal in between if goal is not goals[0]]


def _descend(engine: Engine, targets: list[Target], tell: Tell) -> None:
    """One descent a target, from the best design so far that keeps its limits or is
    nearest to that; then legal designs of what it finds."""
    count = engine.effort.starts
    padded = targets + targets[-1:] * (count - len(targets))
    z = np.stack([engine.inverse(engine.best(goal, 1)[0]) for goal in padded])
    rounds = max(1, round(engine.effort.rounds * _ROUNDS))
    values, _ = engine.descend(padded, rounds, z, tell)
    engine.rounded(values[: len(targets)])
    for goal in targets:
        best = engine.best(goal, 1)[0]
        try:
            polish(engine.judge, engine.problem.axes, goal, best, engine.rng)
        except KeyboardInterrupt:
            engine.interrupted = True
            return


def _undominated(engine: Engine, goals: list[Target]) -> tuple[Score, ...]:
    """Scores of all designs so far that keep the limits and are beaten by none."""
    everything = engine.judge.everything
    feasible = everything.take(everything.violation(goals[0]) == 0)
    columns = _objectives(feasible, goals)
    rows = pareto_front(*columns.T)
    if len(rows) > _MOST:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, _MOST).round().astype(int))]
    return tuple(engine.problem.score(feasible, int(row), goals[0]) for row in rows)
