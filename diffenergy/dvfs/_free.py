"""Plans when changing clocks costs nothing: one setting for every kernel.

Dynamic programming over time in small steps. Times rounded to the nearest step give
plans, which are totalled exactly; times rounded down give what no plan goes below.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..physics import gpu_time, stage_slope, stage_time, tangent_offset
from ..search import pareto_front
from ._hulls import HullSum, Line, hull_sum, kernel_points, stage_bound
from ._problem import (
    TIE,
    Problem,
    Total,
    by_stage,
    chosen,
    total,
    within_caps,
)

_STAGE_PLANS: Final = 1_000
"""Plans of one stage that are combined with those of the others."""
_VERTICES: Final = 4_000
"""Most hull vertices that are tried as plans."""
_STEPS: Final = 20_000
"""Steps of weight between the lightest and the heaviest choice."""
_CELLS: Final = 4_000_000
"""Most rows x steps; above, steps are fewer."""
_FEWEST: Final = 200
"""Steps, however many rows there are."""
_NARROWEST: Final = 1e-6
"""Least span of weights, as a share of the lightest choice."""
_INEXACT: Final = 0.01
"""Steps that a weight rounded down gives away: more than a float is off by."""
_HALVINGS: Final = 30


class Window(NamedTuple):
    """Plans that count: within `most_time`, and energy + `price` x time <= `level`."""

    most_time: float = np.inf  # s
    price: float = 0.0  # W
    level: float = np.inf  # J


ALL: Final = Window()


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
    """`problem` with a single stage, unless host times or caps differ by stage."""
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


def front(
    problem: Problem,
    window: Window = ALL,
    prune: bool = True,
    steps: int = _STEPS,
) -> Front:
    """Many good plans of a `window`, from the fastest to the leanest; the fastest one
    even where it is later than that.

    Dynamic programming over `steps` of time within each stage, the hull's vertices,
    then all pairs of plans of the stages. `prune` keeps only plans that no other one
    dominates; without it slower plans that draw less power stay too.
    """
    problem = flat(problem)
    limits = _stage_limits(problem, window.most_time)
    parts = [
        _stage_front(problem, s, hull, float(limits[s]), prune, steps)
        for s, hull in enumerate(stage_hulls(problem))
    ]
    if any(len(part.time) == 0 for part in parts):
        return Front(np.empty(0), np.empty(0), np.empty((0, len(problem.kernels)), int))
    if len(parts) == 1:
        return parts[0]
    totals, plans = _combined([part.total for part in parts], window, prune)
    choice = np.empty((len(plans), len(problem.kernels)), int)
    for stage, part in enumerate(parts):
        choice[:, problem.stage == stage] = part.choice[plans[:, stage]]
    return Front(*totals, choice)


def least_totals(problem: Problem, window: Window, steps: int = _STEPS) -> Total:
    """Times and energies of which one lies below (no later, no more) each plan of a
    `window`; none where the window has no plan.

    A stage whose GPU time is rounded down is over no later and waits no longer.
    """
    problem, parts = flat(problem), []
    limits = _stage_limits(problem, window.most_time)
    for s, most in enumerate(limits):
        time, spent = map(np.stack, zip(*kernel_points(problem, s), strict=True))
        most = float(gpu_time(most, problem.host_time[s]))
        gpu, cost = least_costs(time, spent, most, steps)
        took = np.asarray(stage_time(gpu, problem.host_time[s]))
        parts.append(Total(took, cost + problem.wait_power[s] * took))
    return _combined(parts, window, prune=True, down=True)[0]


def worthwhile(
    problem: Problem, window: Window, per_launch: bool = False
) -> Bool[np.ndarray, "kernel setting"]:
    """Settings that a plan of a `window` may use; `per_launch`: for one launch.

    With a tangent of each stage time energy + price x time is at least a sum over
    kernels, each of which has a cheapest setting. One that costs more than that by what
    the level leaves above the sum of the cheapest is in no plan of the window. Halving
    finds the tangents of the largest sum: those where the cheapest settings touch.
    """
    host, wait = problem.host_time, problem.wait_power
    rate, usable = wait + window.price, problem.usable
    time = np.where(usable, problem.time, 0.0)

    def costs(slope: np.ndarray) -> np.ndarray:
        seconds = (rate * slope - wait)[problem.stage, None]
        cost = np.where(usable, problem.energy + seconds * time, np.inf)
        return problem.count[:, None] * cost

    kernels = np.arange(len(time))
    low, high = np.where(host > 0, 0.0, 1.0), np.ones(len(host))
    slope = high
    for _ in range(_HALVINGS):
        cheapest = time[kernels, costs(slope).argmin(1)]
        touching = stage_slope(by_stage(problem, problem.count * cheapest), host)
        low = np.where(touching > slope, slope, low)
        high = np.where(touching < slope, slope, high)
        slope = 0.5 * (low + high)
    each = costs(slope)
    least = each.min(1, keepdims=True)
    waiting = rate * tangent_offset(slope, host)
    left = window.level - float(least.sum() + waiting.sum())
    launches = np.maximum(problem.count, 1.0) if per_launch else 1.0
    excess = (each - least) / np.broadcast_to(launches, len(each))[:, None]
    return usable & (excess <= left + TIE * abs(window.level))


def _stage_limits(problem: Problem, most_time: float) -> Float[np.ndarray, " stage"]:
    """Time left for each stage (s) if the others are as fast as possible."""
    fastest = np.where(problem.usable, problem.time, np.inf).min(1)
    least = stage_time(by_stage(problem, problem.count * fastest), problem.host_time)
    return np.maximum(most_time - least.sum() + least, least)


def _stage_front(
    problem: Problem,
    stage: int,
    hull: HullSum,
    most_time: float,
    prune: bool,
    steps: int,
) -> Front:
    alone = only_stage(problem, stage)
    time, spent = map(np.stack, zip(*kernel_points(alone, 0), strict=True))
    most = float(gpu_time(most_time, problem.host_time[stage]))
    capped = np.isfinite(problem.power_cap[stage])
    planned = choices(time, spent, most, prune and not capped, steps)
    vertices = np.linspace(0, len(hull.line.x) - 1, _VERTICES).round().astype(int)
    choice = np.concatenate([planned, hull.choice(np.unique(vertices))])
    took = chosen(alone, choice)
    cool = np.flatnonzero(within_caps(alone, took))
    plans = Front(*total(alone, took), choice).take(cool)
    return plans.take(pareto_front(plans.time, plans.energy)) if prune else plans


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
    parts: Sequence[Total], window: Window, prune: bool, down: bool = False
) -> tuple[Total, Int[np.ndarray, "plan stage"]]:
    """Sums of one plan of every stage: totals, and which plans. `down`: the plans are
    points below others, and so are their sums."""
    cheapest = np.array([(x.energy + window.price * x.time).min() for x in parts])
    fastest = np.array([x.time.min() for x in parts])
    most = max(window.most_time, float(fastest.sum())) * (1 + TIE)
    totals = Total(np.zeros(1), np.zeros(1))
    index = np.zeros((1, 0), int)

    def few(plans: Total, others: np.ndarray) -> tuple[Total, np.ndarray]:
        """Plans that still fit beside the fastest and cheapest plans of `others`."""
        cost = plans.energy + window.price * plans.time + cheapest[others].sum()
        late = plans.time + fastest[others].sum() > most
        return _few(plans, ~late & (cost <= window.level), prune, down)

    stages = np.arange(len(parts))
    for stage, part in enumerate(parts):
        added, mine = few(part, stages != stage)
        sums = (np.add.outer(x, y).ravel() for x, y in zip(totals, added, strict=True))
        totals, pair = few(Total(*sums), stages > stage)
        before, here = np.divmod(pair, max(len(mine), 1))
        index = np.column_stack([index[before], mine[here]])
    return totals, index


def _few(
    plans: Total, inside: Bool[np.ndarray, " plan"], prune: bool, down: bool
) -> tuple[Total, Int[np.ndarray, " kept"]]:
    """Leanest plan `inside` each step of time; `down`: at the earliest time of it."""
    rows = np.flatnonzero(inside)
    if prune:
        rows = rows[pareto_front(plans.time[rows], plans.energy[rows])]
    time = plans.time[rows]
    if len(rows) <= _STAGE_PLANS:
        return Total(time, plans.energy[rows]), rows
    step = np.ptp(time) / _STAGE_PLANS
    number = np.floor((time - time.min()) / step)
    order = np.lexsort((plans.energy[rows], number))
    lead = np.flatnonzero(np.append(True, np.diff(number[order]) > 0))
    early = np.minimum.reduceat(time[order], lead)
    rows = rows[order[lead]]
    return Total(early if down else plans.time[rows], plans.energy[rows]), rows


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


class _Table(NamedTuple):
    """Least cost of every weight, and the items that make it."""

    best: Float[np.ndarray, " step"]
    weight: Float[np.ndarray, " step"]
    bins: Int[np.ndarray, "row item"]  # weight of each item in steps
    picked: list[Int[np.ndarray, " step"]]  # item of every row


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
    table = _table(weight, cost, most, prune, steps)
    ends = np.flatnonzero(np.isfinite(table.best))
    if prune:
        ends = ends[pareto_front(table.weight[ends], table.best[ends])]
    return _traced(ends, table.bins, table.picked)


def least_costs(
    weight: Float[np.ndarray, "row item"],
    cost: Float[np.ndarray, "row item"],
    most: float = np.inf,
    steps: int = _STEPS,
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Weights and costs of which one lies below each choice no heavier than `most`:
    every weight is rounded down. Arguments as of `choices`."""
    table = _table(weight, cost, most, True, steps, down=True)
    points = pareto_front(table.weight, table.best)
    return table.weight[points], table.best[points]


def _table(
    weight: np.ndarray,
    cost: np.ndarray,
    most: float,
    prune: bool,
    steps: int,
    down: bool = False,
) -> _Table:
    usable = np.isfinite(weight) & np.isfinite(cost)
    weight = np.where(usable, weight, np.inf)
    lightest = weight.min(1)
    least = float(lightest.sum())
    heaviest = float(np.where(usable, weight, -np.inf).max(1).sum())
    span = max(min(most, heaviest) - least, _NARROWEST * least)
    steps = max(min(steps, _CELLS // len(weight)), _FEWEST)
    # a margin for choices whose roundings add up, which those rounded down need not
    room = steps + (1 if down else len(weight))
    bins = np.where(usable, (weight - lightest[:, None]) / (span / steps), np.inf)
    bins = np.minimum(bins, room + 1)
    bins = np.floor(np.maximum(bins - _INEXACT, 0.0)) if down else np.rint(bins)
    bins = bins.astype(np.int64)
    inside = usable & (bins < room)
    best, picked = np.full(room, np.inf), []
    best[0] = 0.0
    for row, items in enumerate(inside):
        columns = np.flatnonzero(items)
        if prune:
            columns = columns[
                np.sort(pareto_front(weight[row, columns], cost[row, columns]))
            ]
        best, item = _extend(best, bins[row], cost[row], columns)
        picked.append(item)
    return _Table(best, least + np.arange(room) * (span / steps), bins, picked)


def _extend(
    best: np.ndarray, bins: np.ndarray, cost: np.ndarray, items: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least cost for every weight with one more row, and the item that attains it."""
    longer, picked = np.full_like(best, np.inf), np.zeros(len(best), np.int32)
    for item in items:
        shift = bins[item]
        value = best[: len(best) - shift] + cost[item]
        better = value < longer[shift:]
        np.copyto(longer[shift:], value, where=better)
        np.copyto(picked[shift:], item, where=better)
    return longer, picked


def _traced(
    end: np.ndarray, bins: np.ndarray, picked: list[np.ndarray]
) -> Int[np.ndarray, "choice row"]:
    """Items along the best path to every weight in `end`."""
    chosen = np.empty((len(end), len(picked)), np.int64)
    for row in reversed(range(len(picked))):
        chosen[:, row] = picked[row][end]
        end = end - bins[row, chosen[:, row]]
    return chosen
