"""Plans when changing clocks costs nothing: one setting for every kernel."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ...physics import gpu_time
from ...search import pareto_front
from .._problem.problem import Problem, Total, chosen, total, within_caps
from .hulls import HullSum, Line, hull_sum, kernel_points, stage_bound

_STAGE_PLANS: Final = 1_500
"""Plans of one stage that are combined with those of the others."""
_STAGE_STEPS: Final = 4_000
"""Steps of time when stages are combined."""
_VERTICES: Final = 4_000
"""Most hull vertices that are tried as plans."""
_STEPS: Final = 20_000
"""Steps of weight between the lightest and the heaviest choice."""
_CELLS: Final = 4_000_000
"""Most rows x steps; above, steps are fewer."""


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
    planned = choices(time, spent, float(np.maximum(most, 0.0)), prune and not capped)
    vertices = np.linspace(0, len(hull.line.x) - 1, _VERTICES).round().astype(int)
    choice = np.concatenate([planned, hull.choice(np.unique(vertices))])
    took = chosen(alone, choice)
    kept = np.flatnonzero(within_caps(alone, took))
    found = Front(*total(alone, took), choice).take(kept)
    return found.take(pareto_front(found.time, found.energy)) if prune else found


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

    picked = choices(
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
    return found.take(pareto_front(time, energy)) if prune else found


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


# --- choices of one item per row for every budget at once


def choices(
    weight: Float[np.ndarray, "row item"],
    cost: Float[np.ndarray, "row item"],
    most: float = np.inf,
    prune: bool = True,
    steps: int = _STEPS,
) -> Int[np.ndarray, "choice row"]:
    """Near-cheapest item of every row, for many total weights up to `most`.

    Weights are rounded to the nearest of `steps` steps, so a choice may be a little
    heavier or lighter than its budget: total it exactly before use. Items that are not
    finite are left out. `prune` drops items that are heavier and not cheaper than
    another of their row, which is right unless a heavier choice is wanted for its own
    sake.
    """
    usable = np.isfinite(weight) & np.isfinite(cost)
    weight = np.where(usable, weight, np.inf)
    lightest = weight.min(1)
    heaviest = np.where(usable, weight, -np.inf).max(1)
    span = min(most, float(heaviest.sum())) - float(lightest.sum())
    if span <= 0:
        light = weight <= lightest[:, None]
        return np.where(light, cost, np.inf).argmin(1)[None]
    steps = max(min(steps, _CELLS // len(weight)), 200)
    # a margin for choices whose roundings add up
    room = steps + len(weight)
    bins = np.where(usable, (weight - lightest[:, None]) / (span / steps), room)
    bins = np.rint(np.minimum(bins, room)).astype(np.int64)
    wanted = usable & (bins < room)
    best, taken = np.full(room, np.inf), []
    best[0] = 0.0
    for row, items in enumerate(wanted):
        kept = np.flatnonzero(items)
        if prune:
            kept = kept[np.sort(pareto_front(weight[row, kept], cost[row, kept]))]
        best, item = _extend(best, bins[row], cost[row], kept)
        taken.append(item)
    return _traced(np.flatnonzero(np.isfinite(best)), bins, taken)


def _extend(
    best: np.ndarray, bins: np.ndarray, cost: np.ndarray, items: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least cost for every weight with one more row, and the item that attains it."""
    longer, taken = np.full_like(best, np.inf), np.zeros(len(best), np.int32)
    for item in items:
        shift = bins[item]
        value = best[: len(best) - shift] + cost[item]
        better = value < longer[shift:]
        np.copyto(longer[shift:], value, where=better)
        np.copyto(taken[shift:], item, where=better)
    return longer, taken


def _traced(
    end: np.ndarray, bins: np.ndarray, taken: list[np.ndarray]
) -> Int[np.ndarray, "choice row"]:
    """Items along the best path to every weight in `end`."""
    chosen = np.empty((len(end), len(taken)), np.int64)
    for row in reversed(range(len(taken))):
        chosen[:, row] = taken[row][end]
        end = end - bins[row, chosen[:, row]]
    return chosen
