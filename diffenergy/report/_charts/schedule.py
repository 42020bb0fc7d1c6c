"""A frequency schedule: its time and energy, its clocks over time."""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...charts import (
    Axis,
    Boxes,
    Chart,
    Colour,
    Label,
    Line,
    Mark,
    Panel,
    Points,
    Reading,
    Rule,
    stacked,
)
from ...dvfs import Launches, Plan, Problem, launches
from ...units import MHz
from .._format import Entry, change
from .._page.markup import si
from .._tables.schedule_words import BASELINES, FREE, free_case

_LOOKS: Final = {
    "iteration": (1, 3),
    "phase": (2, 2),
    "power_limit": (3, 4),
    "free": (5, 5),
}
"""Shape and colour of each baseline's mark."""
_NAMES: Final = {**BASELINES, "free": FREE}
_WIDEST: Final = 30.0
"""Slowdown (%) up to which the frontier is drawn; more if a point lies beyond."""
_MOST_CHANGES: Final = 60
"""Maximum number of clock changes drawn one by one; above it loops are drawn once."""
_WIDE_ENOUGH: Final = 0.05
"""Minimum share of the width for a mark or a stage's name."""
_TICKS_APART: Final = 0.13
"""Minimum distance between ticks as a share of the range."""
_STAR: Final = 7


def schedule_charts(
    problem: Problem, plan: Plan, summary: Entry, title: str = ""
) -> dict[str, Chart]:
    """Return charts of a schedule: change of time and energy (frontier, bound,
    baselines, default clocks, schedule), and the clocks over one iteration.

    `summary`: as of `schedule_summary`.
    """
    shown = visible_launches(problem, launches(problem, plan))
    charts = {"plane": _plane(summary), "sm-clock": _clocks(shown, problem, 0)}
    if np.isfinite(problem.settings[plan.setting, 1]).any():
        charts["memory-clock"] = _clocks(shown, problem, 1)
    return {"schedule": stacked(title, list(charts.values())), **charts}


def _plane(summary: Entry) -> Chart:
    """Chart of the change of time and energy against default clocks (%)."""
    summary, axis = _metered(summary)
    default = summary["default"]
    costs = f"{si(default['time_s'], 's')}, {si(default['energy_j'], 'J')}"
    points = {
        name: (baseline["time_change_pct"], baseline["energy_change_pct"])
        for name, baseline in summary["baselines"].items()
        if baseline is not None
    }
    free = free_case(summary)
    if free is not None:
        points["free"] = (free["time_change_pct"], free["energy_change_pct"])
    plan = (summary["time_change_pct"], summary["energy_change_pct"])
    right = max(_WIDEST, *(1.2 * time for time, _ in (plan, *points.values())))
    frontier = np.array(summary["frontier"], dtype=float).reshape(-1, 2)
    marks, readings = _frontier(frontier, right)
    bound = summary["bound_energy_change_pct"]
    if bound is not None:
        left = min([0.0, plan[0], *frontier[:, 0].tolist()])
        name = f"bound within the schedule's time: {change(bound)}"
        ends = ((left, plan[0]), (bound, bound))
        marks.append(Line(*ends, name, "soft", 2.0, dashed=True))
        readings.append(Reading(plan[0], bound, name))
    places: dict[str, tuple[tuple[float, float], int, Colour]]
    places = {f"default clocks: {costs}": ((0.0, 0.0), 0, "ink")}
    for name, point in points.items():
        look = _LOOKS.get(name, (4, 5))
        places[f"{_NAMES.get(name, name)}: {_changes(point)}"] = (point, *look)
    late = summary.get("time_change_pct_p95")
    if late is not None:
        name = f"95 % of its re-measured times: at most {change(late)}"
        ends = (
            (plan[0], late, late, late),
            (plan[1], plan[1], plan[1] - 0.3, plan[1] + 0.3),
        )
        marks.append(Line(*ends, name, 1))
        readings.append(Reading(late, plan[1], name))
    places[f"this schedule: {_changes(plan)}"] = (plan, _STAR, 1)
    for name, ((x, y), shape, colour) in places.items():
        size = 7.5 if shape == _STAR else 5.0
        marks.append(Points([x], [y], name, colour, shape, size))
        readings.append(Reading(x, y, name))
    panel = Panel(
        Axis("time against default clocks", "%"),
        Axis(axis, "%"),
        marks, readings, height=270.0,
    )  # fmt: skip
    return Chart("Time and energy against default clocks", [panel])


def _metered(summary: Entry) -> tuple[Entry, str]:
    """Summary whose changes of energy are those at the wall, where they are known, and
    the words for them."""
    if "wall_frontier" not in summary:
        return summary, "energy against default clocks"

    def at_wall(entry: Entry | None) -> Entry | None:
        key = "wall_energy_change_pct"
        return entry and {**entry, "energy_change_pct": entry.get(key)}

    whole = {
        **summary,
        "energy_change_pct": summary["wall_energy_change_pct"],
        "bound_energy_change_pct": summary["bound_wall_energy_change_pct"],
        "frontier": summary["wall_frontier"],
        "default": {
            **summary["default"],
            "energy_j": summary["default"]["wall_energy_j"],
        },
        "baselines": {x: at_wall(y) for x, y in summary["baselines"].items()},
        "free": at_wall(summary["free"]),
    }
    return whole, "energy at the wall against default clocks"


def _frontier(frontier: np.ndarray, right: float) -> tuple[list[Mark], list[Reading]]:
    """Staircase of the least energy within a time, up to `right` (%)."""
    shown = frontier[frontier[:, 0] <= right]
    if not len(shown):
        return [], []
    name = "frontier"
    if len(shown) < len(frontier):
        name += f", leanest plan: {_changes(tuple(frontier[-1].tolist()))}"
    x, y = shown.T.tolist()
    readings = [
        Reading(a, b, f"frontier: {_changes((a, b))}")
        for a, b in zip(x, y, strict=True)
    ]
    return [Line(x, y, name, 0, step=True)], readings


def _changes(point: tuple[float, float]) -> str:
    return f"time {change(point[0])}, energy {change(point[1])}"


class VisibleLaunches(NamedTuple):
    """The drawn launches, from left to right."""

    edges: Float[np.ndarray, " edge"]  # s, one more than launches
    setting: Int[np.ndarray, " launch"]
    stage: Int[np.ndarray, " launch"]
    loops: tuple[tuple[float, float, int], ...]  # start, end (s), turns drawn as one


def visible_launches(problem: Problem, order: Launches) -> VisibleLaunches:
    """Return all launches, or every loop and micro-batch once if there are too many
    clock changes.

    A loop whose turns differ is drawn in full.
    """
    visible, marks = np.ones(len(order.kernel), dtype=bool), []
    if len(order.changes()) > _MOST_CHANGES:
        end, (number, rounds) = 0, problem.rounds
        for i, loop in enumerate(problem.loops):
            if i == number:  # the other rounds are like the first
                end, first = end * rounds, end
                visible[first:end] = False
            start, width = end, len(loop.kernels)
            end = start + width * loop.turns
            turns = order.setting[start:end].reshape(loop.turns, width)
            if loop.turns > 1 and (turns == turns[0]).all():
                visible[start + width : end] = False
                marks.append((start, start + width - 1, loop.turns))
    edges = np.concatenate([[0.0], np.cumsum(np.where(visible, order.time, 0.0))])
    return VisibleLaunches(
        np.concatenate([[0.0], edges[1:][visible]]),
        order.setting[visible],
        problem.stage[order.kernel[visible]],
        tuple((float(edges[a]), float(edges[b + 1]), turns) for a, b, turns in marks),
    )


def _clocks(shown: VisibleLaunches, problem: Problem, which: int) -> Chart:
    """Step chart of the SM (0) or memory (1) clock. Stages are shaded and named; a loop
    that is drawn once is labelled with its number of repeats."""
    clocks = problem.settings[shown.setting, which] / MHz
    levels, ticks = _levels(clocks)
    heights = np.where(np.isnan(clocks), levels[-1], clocks).tolist()
    edges, whole = shown.edges.tolist(), float(shown.edges[-1])
    low, high = float(levels[0]), float(levels[-1])
    room = 0.15 * max(high - low, 0.1 * high)
    low, high = low - room, high + room * (3 if shown.loops else 1)
    marks: list[Mark] = []
    spans, several = _spans(shown), len(problem.stages) > 1
    shaded = [(start, end) for start, end, stage in spans if stage % 2]
    if shaded:
        left, right = (list(x) for x in zip(*shaded, strict=True))
        ends = [low] * len(left), [high] * len(left)
        marks.append(Boxes(left, right, *ends, "", "light", 0.5))
    marks += [
        Rule(end, axis="x", colour="soft") for *_, end, _ in spans[:-1] if several
    ]
    marks.append(Line(edges, [*heights, heights[-1]], "", which, 2.0, step=True))
    for start, end, stage in spans:
        if end - start >= _WIDE_ENOUGH * whole and several:
            marks.append(Label((start + end) / 2, high, problem.stages[stage], "over"))
    for start, end, number in shown.loops:
        if end - start >= _WIDE_ENOUGH * whole:
            apart, ends = 0.002 * whole, (high, high)
            marks.append(Line((start + apart, end - apart), ends, "", "ink", 4.0))
            marks.append(Label((start + end) / 2, high, f"x{number}", "below"))
    readings = []
    changed = np.flatnonzero(np.diff(heights, prepend=np.nan) != 0).tolist()
    word = ("SM", "memory")[which]
    for i in changed:
        clock = (
            "clock left to the board" if np.isnan(clocks[i]) else f"{clocks[i]:g} MHz"
        )
        text = f"from {si(edges[i], 's')} on: {word} {clock}"
        readings.append(Reading(edges[i], heights[i], text))
    what = "layers and micro-batches" if problem.rounds[1] > 1 else "layers"
    once = f" (repeated {what} drawn once)" if shown.loops else ""
    panel = Panel(
        Axis(f"time in the iteration{once}", "s", zero=True, high=whole),
        Axis(f"{word} clock", "MHz", low=low, high=high, ticks=ticks),
        marks, readings, spans=True, height=130.0,
    )  # fmt: skip
    return Chart(f"{word} clock over the iteration", [panel])


def _levels(
    clocks: Float[np.ndarray, " launch"],
) -> tuple[Float[np.ndarray, " level"], list[tuple[float, str]]]:
    """Heights of the clocks (MHz) with "auto" above them all, and the axis ticks."""
    numbers = np.unique(clocks[~np.isnan(clocks)])
    levels = numbers if len(numbers) else np.array([0.0])
    if np.isnan(clocks).any():
        gap = max(0.15 * (levels[-1] - levels[0]), 0.05 * levels[-1], 1.0)
        levels = np.append(levels, levels[-1] + gap)
    ticks = [(tick, f"{tick:g}") for tick in _apart(numbers)]
    if np.isnan(clocks).any():
        ticks.append((float(levels[-1]), "auto"))
    return levels, ticks


def _apart(values: Float[np.ndarray, " value"]) -> list[float]:
    """Rising values far enough apart for their labels, always with the last."""
    places: list[float] = []
    for value in values[::-1].tolist():
        if not places or places[-1] - value >= _TICKS_APART * (values[-1] - values[0]):
            places.append(value)
    return places[::-1]


def _spans(shown: VisibleLaunches) -> list[tuple[float, float, int]]:
    """Start, end (s) and stage of every run of launches of one stage."""
    first = np.flatnonzero(np.diff(shown.stage, prepend=-1))
    ends = np.append(first[1:], len(shown.stage))
    return [
        (float(shown.edges[a]), float(shown.edges[b]), int(shown.stage[a]))
        for a, b in zip(first, ends, strict=True)
    ]
