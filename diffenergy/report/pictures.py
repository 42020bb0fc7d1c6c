"""`save_schedule_picture`: a schedule in time and energy, its clocks over time."""

import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..dvfs.launches import launches
from ..dvfs.plan import Plan
from ..dvfs.problem import Problem
from ..files import check_target, write_bytes_atomic
from .format import si
from .schedules import BASELINES, change
from .timeline import draw_clocks, draw_marks, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS: Final = (".png", ".svg")
"""Of the files that can be written."""
_FRONTIER: Final = "#0072B2"
_PLAN: Final = "#D55E00"
_MARKS: Final = {
    "iteration": ("s", "#E69F00"),
    "phase": ("^", "#009E73"),
    "power_limit": ("D", "#CC79A7"),
}
"""Marker and colour of a baseline; all colours are of Okabe and Ito's palette, and
markers differ too."""
_WIDEST: Final = 30.0
"""% of slowdown up to which the frontier is drawn, or more if a point lies there."""


def save_schedule_picture(
    path: str,
    problem: Problem,
    plan: Plan,
    summary: Mapping[str, Any],
    title: str = "",
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Writes a picture (.png or .svg) of `plan`, whose `schedule_json` is `summary`.

    Above, change of time and energy: frontier, bound, baselines, default clocks and the
    plan. Below, the clocks of the launches of one iteration. The file is replaced as a
    whole and never is one of `inputs`.

    Raises `ValueError` if matplotlib is not there or the file cannot be written.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(
            f"the picture is '{path}'; allowed are names ending in "
            f"{', '.join(ENDINGS)}."
        )
    check_target(path, inputs)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(
            "pictures need matplotlib; install it, as by `pip install "
            "diffenergy[plots]`."
        ) from None
    shown = drawn(problem, launches(problem, plan))
    clocks = [0, 1] if _memory_is_locked(problem, plan) else [0]
    figure = Figure(figsize=(7.5, 5.2 + 1.7 * len(clocks)), layout="constrained")
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
        figure.suptitle(title, fontsize=11)
    content = io.BytesIO()
    figure.savefig(content, format=ending[1:], dpi=130)
    write_bytes_atomic(path, content.getvalue(), inputs=inputs)


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
    axes.plot(0, 0, "o", ms=8, color="black", label=f"default clocks: {words}")
    for name, point in points.items():
        marker, colour = _MARKS.get(name, ("v", "#56B4E9"))
        label = f"{BASELINES.get(name, name)}: {_changes(point)}"
        axes.plot(*point, marker, ms=8, color=colour, label=label)
    label = f"this schedule: {_changes(plan)}"
    axes.plot(*plan, "*", ms=16, color=_PLAN, mec="white", label=label)
    axes.set_xlabel("time against default clocks, %")
    axes.set_ylabel("energy against default clocks, %")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.06)
    axes.legend(fontsize=9, loc="best", framealpha=0.9)


def _draw_frontier(frontier: np.ndarray, right: float, axes: "Axes") -> None:
    """Least energy within a time: a staircase, as far as it is of interest."""
    shown = frontier[frontier[:, 0] <= right]
    if not len(shown):
        return
    label = "frontier"
    if len(shown) < len(frontier):
        label += f", leanest plan: {_changes(tuple(frontier[-1].tolist()))}"
    axes.step(*shown.T, where="post", color=_FRONTIER, linewidth=1.8, label=label)


def _changes(point: tuple[float, float]) -> str:
    """Change of time and energy in words."""
    return f"time {change(point[0])}, energy {change(point[1])}"


def _memory_is_locked(problem: Problem, plan: Plan) -> bool:
    return bool(np.isfinite(problem.settings[plan.setting, 1]).any())
