"""Picture of a frequency schedule: its time and energy, its clocks over time."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...dvfs import Launches, Plan, Problem, launches
from ...units import MHz
from .._format import Entry, change, scaled, si
from .._tables.schedule_words import BASELINES, FREE, free_case
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS: Final = {
    "iteration": ("s", style.ORANGE),
    "phase": ("^", style.GREEN),
    "power_limit": ("D", style.PURPLE),
    "free": ("P", style.SKY),
}
"""Marker and colour of a baseline."""
_NAMES: Final = {**BASELINES, "free": FREE}
_WIDEST: Final = 30.0
"""% of slowdown up to which the frontier is drawn, or more if a point lies there."""
_COLOURS: Final = (style.BLUE, style.VERMILION)
"""Of the SM and the memory clock."""
_MOST_CHANGES: Final = 60
"""Changes of clocks that a picture shows one by one; above, loops are drawn once."""
_WIDE_ENOUGH: Final = 0.05
"""Share of the width that a mark or the name of a stage needs."""
_TICKS_APART: Final = 0.13
"""Least distance between ticks as a share of the range."""


@style.house()
def schedule_figure(
    problem: Problem, plan: Plan, summary: Entry, title: str = ""
) -> "Figure":
    """Above, change of time and energy: frontier, bound, baselines, default clocks and
    the plan. Below, the clocks of the launches of one iteration.

    `summary`: as of `schedule_summary`.
    """
    shown = drawn(problem, launches(problem, plan))
    clocks = [0, 1] if np.isfinite(problem.settings[plan.setting, 1]).any() else [0]
    figure = style.canvas(5.2 + 1.7 * len(clocks))
    plane, *lines = figure.subplots(
        1 + len(clocks), 1, height_ratios=[4.2, 1.5, 1.1][: 1 + len(clocks)]
    ).tolist()
    _draw_plane(summary, plane)
    for which, axes in zip(clocks, lines, strict=True):
        _draw_clocks(shown, problem, axes, which)
        axes.label_outer()
        if which > 0:
            axes.sharex(lines[0])
    _draw_marks(shown, problem, lines[0])
    if title:
        style.headline(figure, title)
    return figure


def _draw_plane(summary: Entry, axes: "Axes") -> None:
    """Change of time and energy against default clocks, %, of all that is known."""
    default = summary["default"]
    words = f"{si(default['time_s'], 's')}, {si(default['energy_j'], 'J')}"
    points = {
        name: (found["time_change_pct"], found["energy_change_pct"])
        for name, found in summary["baselines"].items()
        if found is not None
    }
    free = free_case(summary)
    if free is not None:
        points["free"] = (free["time_change_pct"], free["energy_change_pct"])
    plan = (summary["time_change_pct"], summary["energy_change_pct"])
    right = max(_WIDEST, *(1.2 * time for time, _ in (plan, *points.values())))
    frontier = np.array(summary["frontier"], dtype=float).reshape(-1, 2)
    _draw_frontier(frontier, right, axes)
    bound = summary["bound_energy_change_pct"]
    if bound is not None:
        left = min([0.0, plan[0], *frontier[:, 0].tolist()])
        axes.plot(
            [left, plan[0]], [bound, bound], ":", color="#444444", linewidth=1.6,
            label=f"bound within the schedule's time: {change(bound)}",
        )  # fmt: skip
    axes.plot(0, 0, "o", ms=8, color=style.BLACK, label=f"default clocks: {words}")
    for name, point in points.items():
        marker, colour = _MARKS.get(name, ("v", style.SKY))
        label = f"{_NAMES.get(name, name)}: {_changes(point)}"
        axes.plot(*point, marker, ms=8, color=colour, label=label)
    late = summary.get("time_change_pct_p95")
    if late is not None:
        axes.plot(
            [plan[0], late], [plan[1], plan[1]], "-|", color=style.VERMILION, ms=10,
            label=f"95 % of its re-measured times: at most {change(late)}",
        )  # fmt: skip
    label = f"this schedule: {_changes(plan)}"
    axes.plot(*plan, "*", ms=16, color=style.VERMILION, mec="white", label=label)
    axes.set_xlabel("time against default clocks, %")
    axes.set_ylabel("energy against default clocks, %")
    axes.margins(0.06)
    axes.legend(loc="best")


def _draw_frontier(frontier: np.ndarray, right: float, axes: "Axes") -> None:
    """Least energy within a time: a staircase, as far as it is of interest."""
    shown = frontier[frontier[:, 0] <= right]
    if not len(shown):
        return
    label = "frontier"
    if len(shown) < len(frontier):
        label += f", leanest plan: {_changes(tuple(frontier[-1].tolist()))}"
    axes.step(*shown.T, where="post", color=style.BLUE, label=label)


def _changes(point: tuple[float, float]) -> str:
    return f"time {change(point[0])}, energy {change(point[1])}"


class Drawn(NamedTuple):
    """Launches as far as they are drawn, from left to right."""

    edges: Float[np.ndarray, " edge"]  # s, one more than launches
    setting: Int[np.ndarray, " launch"]
    stage: Int[np.ndarray, " launch"]
    loops: tuple[tuple[float, float, int], ...]  # start, end (s), turns drawn as one


def drawn(problem: Problem, order: Launches) -> Drawn:
    """All launches, or every loop once if there are too many changes to see.

    A loop whose turns differ is drawn in full.
    """
    kept, marks = np.ones(len(order.kernel), dtype=bool), []
    if len(order.changes()) > _MOST_CHANGES:
        end = 0
        for loop in problem.loops:
            start, width = end, len(loop.kernels)
            end = start + width * loop.turns
            turns = order.setting[start:end].reshape(loop.turns, width)
            if loop.turns > 1 and (turns == turns[0]).all():
                kept[start + width : end] = False
                marks.append((start, start + width - 1, loop.turns))
    edges = np.concatenate([[0.0], np.cumsum(np.where(kept, order.time, 0.0))])
    return Drawn(
        np.concatenate([[0.0], edges[1:][kept]]),
        order.setting[kept],
        problem.stage[order.kernel[kept]],
        tuple((float(edges[a]), float(edges[b + 1]), turns) for a, b, turns in marks),
    )


def _draw_clocks(shown: Drawn, problem: Problem, axes: "Axes", which: int) -> None:
    """Step line of the SM (0) or memory (1) clock over `shown`; stages are shaded."""
    scale, prefix = scaled(min(shown.edges[-1], 1.0))
    clocks = problem.settings[shown.setting, which] / MHz
    levels, ticks = _levels(clocks)
    heights, edges = np.where(np.isnan(clocks), levels[-1], clocks), shown.edges / scale
    axes.stairs(heights, edges, baseline=None, color=_COLOURS[which], linewidth=1.6)
    low, high = levels[0], levels[-1]
    room = max(high - low, 0.1 * high)
    axes.set_ylim(low - 0.15 * room, high + 0.15 * room)
    axes.set_yticks(*ticks)
    axes.set_xlim(0.0, edges[-1])
    axes.set_ylabel(f"{('SM', 'memory')[which]} clock,\nMHz")
    for start, end, stage in _spans(shown):
        if stage % 2:
            axes.axvspan(start / scale, end / scale, color="#EEEEEE", zorder=0)
    once = " (repeated layers drawn once)" if shown.loops else ""
    axes.set_xlabel(f"time in the iteration, {prefix}s{once}")


def _draw_marks(shown: Drawn, problem: Problem, axes: "Axes") -> None:
    """Names of stages above `axes`, and how often what is drawn once runs."""
    whole = shown.edges[-1]
    scale, _ = scaled(min(whole, 1.0))
    across = axes.get_xaxis_transform()  # x in data, y in heights of the axes
    for start, end, stage in _spans(shown):
        if end - start >= _WIDE_ENOUGH * whole and len(problem.stages) > 1:
            axes.text(
                (start + end) / 2 / scale, 1.17 if shown.loops else 1.04,
                problem.stages[stage], transform=across, ha="center", fontsize=10,
            )  # fmt: skip
    apart = 0.002 * whole
    for start, end, turns in shown.loops:
        axes.plot(
            [(start + apart) / scale, (end - apart) / scale], [1.03, 1.03],
            color=style.BLACK, linewidth=2,
            transform=across, clip_on=False, solid_capstyle="butt",
        )  # fmt: skip
        if end - start >= _WIDE_ENOUGH * whole:
            axes.text(
                (start + end) / 2 / scale, 1.06, f"x{turns}",
                transform=across, ha="center", fontsize=style.SMALL,
            )  # fmt: skip


def _levels(
    clocks: Float[np.ndarray, " launch"],
) -> tuple[Float[np.ndarray, " level"], tuple[list[float], list[str]]]:
    """Heights of the clocks (MHz), "auto" above them all, and the ticks to show."""
    known = np.unique(clocks[~np.isnan(clocks)])
    levels = known if len(known) else np.array([0.0])
    if np.isnan(clocks).any():
        gap = max(0.15 * (levels[-1] - levels[0]), 0.05 * levels[-1], 1.0)
        levels = np.append(levels, levels[-1] + gap)
    ticks = _apart(known)
    labels = [f"{tick:g}" for tick in ticks]
    if np.isnan(clocks).any():
        ticks, labels = [*ticks, float(levels[-1])], [*labels, "auto"]
    return levels, (ticks, labels)


def _apart(values: Float[np.ndarray, " value"]) -> list[float]:
    """The rising values that leave room for their labels, the last one among them."""
    kept: list[float] = []
    for value in values[::-1].tolist():
        if not kept or kept[-1] - value >= _TICKS_APART * (values[-1] - values[0]):
            kept.append(value)
    return kept[::-1]


def _spans(shown: Drawn) -> list[tuple[float, float, int]]:
    """Start, end (s) and stage of every run of launches of one stage."""
    first = np.flatnonzero(np.diff(shown.stage, prepend=-1))
    ends = np.append(first[1:], len(shown.stage))
    return [
        (float(shown.edges[a]), float(shown.edges[b]), int(shown.stage[a]))
        for a, b in zip(first, ends, strict=True)
    ]
