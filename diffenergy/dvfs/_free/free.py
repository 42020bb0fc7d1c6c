"""Plans when changing clocks costs nothing: one setting for every kernel."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._problem.problem import Problem, Total
from .._problem.totals import chosen, gpu_time, total, within_caps
from . import knapsack
from .hulls import HullSum, Line, hull_sum, kernel_points, stage_bound
from .knapsack import undominated

_STAGE_PLANS: Final = 1_500
"""Plans of one stage that are combined with those of the others."""
_STAGE_STEPS: Final = 4_000
"""Steps of time when stages are combined."""
_VERTICES: Final = 4_000
"""Most hull vertices that are tried as plans."""


class Front(NamedTuple):
    """Plans that keep the caps, with exact totals."""

    time: Float[np.ndarray, " plan"]  # s
    energy: Float[np.ndarray, " plan"]  # J
    choice: Int[np.ndarray, "plan kernel"]

    @property
    def total(self) -> Total:
        """Time and energy of every plan."""
        return Total(self.time, self.energy)

    def take(self, plans: np.ndarray) -> "Front":
        """Some of the plans."""
        return Front(self.time[plans], self.energy[plans], self.choice[plans])


def flat(problem: Problem) -> Problem:
    """The same problem with a single stage if no host time or cap sets them apart."""
    if np.any(problem.host_time > 0) or np.any(np.isfinite(problem.power_cap)):
        return problem
    return dataclasses.replace(
        problem,
        stages=("all",),
        stage=np.zeros_like(problem.stage),
        power_cap=np.array([np.inf]),
        host_time=np.zeros(1),
        wait_power=np.zeros(1),
    )


def stage_hulls(problem: Problem) -> list[HullSum]:
    """Hull of (GPU time, energy beyond waiting) of every stage."""
    return [hull_sum(kernel_points(problem, s)) for s in range(len(problem.stages))]


def bound(problem: Problem) -> Line:
    """Polyline below (time, energy) of every plan, launches split or not. No vertices
    if some stage cannot keep its cap."""
    hulls = enumerate(stage_hulls(problem))
    lines = [stage_bound(problem, s, hull.line) for s, hull in hulls]
    if any(len(line.x) == 0 for line in lines):
        return Line(np.empty(0), np.empty(0))
    return hull_sum([(line.x, line.y) for line in lines]).line


def front(problem: Problem, most_time: float = np.inf, prune: bool = True) -> Front:
    """Many good plans up to about `most_time` (s), from the fastest to the leanest.

    Dynamic programming over time within each stage, the hull's vertices, then the same
    over the stages. `prune` keeps only plans that no other one dominates; without it
    slower plans that draw less power stay too.
    """
    problem = flat(problem)
    parts = [
        _stage_front(problem, s, hull, most_time, prune)
        for s, hull in enumerate(stage_hulls(problem))
    ]
    if any(len(part.time) == 0 for part in parts):
        return Front(np.empty(0), np.empty(0), np.empty((0, len(problem.kernels)), int))
    return parts[0] if len(parts) == 1 else _combined(problem, parts, most_time, prune)


def _stage_front(
    problem: Problem, stage: int, hull: HullSum, most_time: float, prune: bool
) -> Front:
    alone = only_stage(problem, stage)
    time, spent = map(np.stack, zip(*kernel_points(alone, 0), strict=True))
    most = gpu_time(most_time, problem.host_time[stage])
    capped = np.isfinite(problem.power_cap[stage])
    planned = knapsack.choices(
        time, spent, float(np.maximum(most, 0.0)), prune and not capped
    )
    vertices = np.linspace(0, len(hull.line.x) - 1, _VERTICES).round().astype(int)
    choice = np.concatenate([planned, hull.choice(np.unique(vertices))])
    took = chosen(alone, choice)
    kept = np.flatnonzero(within_caps(alone, took))
    found = Front(*total(alone, took), choice).take(kept)
    return found.take(undominated(found.time, found.energy)) if prune else found


def only_stage(problem: Problem, stage: int) -> Problem:
    """The kernels of one stage as a problem of their own, launch order left out."""
    rows, one = np.flatnonzero(problem.stage == stage), slice(stage, stage + 1)
    return problem.take(
        rows,
        stages=(problem.stages[stage],),
        stage=np.zeros(len(rows), np.int64),
        power_cap=problem.power_cap[one],
        host_time=problem.host_time[one],
        wait_power=problem.wait_power[one],
    )


def _combined(
    problem: Problem, parts: list[Front], most_time: float, prune: bool
) -> Front:
    parts = [part.take(_thinned(len(part.time))) for part in parts]
    widest = max(len(part.time) for part in parts)

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values, (0, widest - len(values)), constant_values=np.inf)

    picked = knapsack.choices(
        np.stack([padded(part.time) for part in parts]),
        np.stack([padded(part.energy) for part in parts]),
        most_time,
        prune,
        _STAGE_STEPS,
    )
    choice = np.empty((len(picked), len(problem.kernels)), int)
    time, energy = np.zeros(len(picked)), np.zeros(len(picked))
    for stage, part in enumerate(parts):
        plan = picked[:, stage]
        choice[:, problem.stage == stage] = part.choice[plan]
        time, energy = time + part.time[plan], energy + part.energy[plan]
    found = Front(time, energy, choice)
    return found.take(undominated(time, energy)) if prune else found


def _thinned(num: int) -> Int[np.ndarray, " plan"]:
    return np.unique(np.linspace(0, num - 1, _STAGE_PLANS).round().astype(int))


def restricted(
    problem: Problem, allowed: Bool[np.ndarray, "kernel setting"]
) -> Problem:
    """The problem with fewer usable settings."""
    return dataclasses.replace(
        problem,
        time=np.where(allowed, problem.time, np.inf),
        energy=np.where(allowed, problem.energy, np.inf),
    )
