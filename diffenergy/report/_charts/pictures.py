"""`schedule_figure`: a schedule in time and energy, its clocks over time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...dvfs._apply.launches import launches
from ...dvfs._problem.plan import Plan
from ...dvfs._problem.problem import Problem
from .._format import change, si
from .._views.schedule import BASELINES
from . import style
from .timeline import draw_clocks, draw_marks, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS: Final = {
    "iteration": ("s", style.ORANGE),
    "phase": ("^", style.GREEN),
    "power_limit": ("D", style.PURPLE),
}
"""Marker and colour of a baseline."""
WIDEST: Final = 30.0
"""% of slowdown up to which the frontier is drawn, or more if a point lies there."""


@style.house()
def schedule_figure(
    problem: Problem, plan: Plan, summary: Mapping[str, Any], title: str = ""
) -> "Figure":
    """Above, change of time and energy: frontier, bound, baselines, default clocks and
    the plan. Below, the clocks of the launches of one iteration.

    `summary`: as of `schedule_json`.
    """
    shown = drawn(problem, launches(problem, plan))
    clocks = [0, 1] if _memory_is_locked(problem, plan) else [0]
    figure = style.canvas(5.2 + 1.7 * len(clocks))
    plane, *lines = figure.subplots(
        1 + len(clocks), 1, height_ratios=[4.2, 1.5, 1.1][: 1 + len(clocks)]
    ).tolist()
    draw_plane(summary, plane)
    for which, axes in zip(clocks, lines, strict=True):
        draw_clocks(shown, problem, axes, which)
        axes.label_outer()
        if which > 0:
            axes.sharex(lines[0])
    draw_marks(shown, problem, lines[0])
    if title:
        style.headline(figure, title)
    return figure


def draw_plane(summary: Mapping[str, Any], axes: "Axes") -> None:
    """Change of time and energy against default clocks, %, of all that is known."""
    default = summary["default"]
    words = f"{si(default['time_s'], 's')}, {si(default['energy_j'], 'J')}"
    points = {
        name: (found["time_change_pct"], found["energy_change_pct"])
        for name, found in summary["baselines"].items()
        if found is not None
    }
    plan = (summary["time_change_pct"], summary["energy_change_pct"])
    right = max(WIDEST, *(1.2 * time for time, _ in (plan, *points.values())))
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
        label = f"{BASELINES.get(name, name)}: {_changes(point)}"
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
    """Change of time and energy in words."""
    return f"time {change(point[0])}, energy {change(point[1])}"


def _memory_is_locked(problem: Problem, plan: Plan) -> bool:
    return bool(np.isfinite(problem.settings[plan.setting, 1]).any())
