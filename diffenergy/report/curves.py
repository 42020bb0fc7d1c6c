"""Charts for a terminal: clock sweeps, frontiers, Pareto fronts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from ..codesign.goals import UNITS
from .chart import WIDTH, Axis, Mark, chart
from .designs import METRIC_KEYS
from .format import plain, si
from .pictures import WIDEST
from .plot_sweep import SETTINGS, swept
from .schedules import BASELINES

Summary = Mapping[str, Any]
_FEWEST: Final = 3
"""Points that make a curve; fewer are read as well in a table."""
_LETTERS: Final = "ABCDEFGH"


def schedule_charts(summary: Summary, width: int = WIDTH) -> list[str]:
    """Of `dvfs`: the frontier with default clocks, baselines and schedule; energy over
    the power limit, if the summary has that curve."""
    plan = (summary["time_change_pct"], summary["energy_change_pct"])
    marks = [Mark("o", 0.0, 0.0, "default clocks")]
    for letter, (name, found) in zip(
        _LETTERS, summary["baselines"].items(), strict=False
    ):
        if found is not None:
            point = found["time_change_pct"], found["energy_change_pct"]
            marks.append(
                Mark(letter, *point, BASELINES[name] if name in BASELINES else name)
            )
    marks.append(Mark("X", *plan, "this schedule"))
    frontier = np.array(summary["frontier"], float).reshape(-1, 2)
    right = max(WIDEST, *(mark.x for mark in marks))
    shown = frontier[frontier[:, 0] <= right]
    axes = [Axis(f"{x} against default clocks", "%") for x in ("time", "energy")]
    charts = (
        [chart([shown], marks, axes[0], axes[1], width)]
        if len(shown) >= _FEWEST
        else []
    )
    curve = _points(summary.get("power_curve", ()), ("power_limit_w", "energy_j"))
    if len(curve) >= _FEWEST:
        power = Axis("power limit", "W")
        charts.append(chart([curve], [], power, Axis("energy", "J"), width))
    return charts


def front_charts(summary: Summary, width: int = WIDTH) -> list[str]:
    """Of `codesign`: the front over its first two objectives with base and best."""
    goals = summary.get("objective", "").split(",")[:2]
    if len(summary.get("pareto", ())) < _FEWEST or len(goals) < 2:
        return []
    keys = [METRIC_KEYS[goal] for goal in goals]
    front = _points(summary["pareto"], keys)
    marks = [
        Mark(
            symbol, float(summary[name][keys[0]]), float(summary[name][keys[1]]), words
        )
        for symbol, name, words in (
            ("o", "start", "base"),
            ("X", "best", f"best for {goals[0].replace('_', ' ')}"),
        )
        if None not in [summary[name][key] for key in keys]
    ]
    axes = [Axis(goal.replace("_", " "), UNITS.get(goal, "")) for goal in goals]
    if len(summary["objective"].split(",")) == 2:
        return [chart([front], marks, axes[0], axes[1], width)]
    dots = [Mark("*", x, y, "") for x, y in front.tolist()]
    return [chart([], [*dots, *marks], axes[0], axes[1], width)]


def trade_charts(summary: Summary, width: int = WIDTH) -> list[str]:
    """Of `collective` with an objective: energy of links and memory over the finish,
    and the schedule chosen."""
    front = summary.get("front", ())
    if len(front) < _FEWEST:
        return []
    points = _points(front, ("finish_s", "moved_j"))
    near = np.abs(points[:, 0] - summary["finish_s"]).argmin()
    mark = Mark("X", float(points[near, 0]), float(points[near, 1]), "this schedule")
    axes = Axis("finish", "s"), Axis("links and memory", "J")
    return [chart([points], [mark], *axes, width)]


def sweep_charts(summary: Summary, width: int = WIDTH) -> list[str]:
    """Of `estimate` with lists: energy over what was varied most; the ends of lines
    that differ in something else have letters."""
    if "points" not in summary:
        return []
    points = [point for point in summary["points"] if point["feasible"]]
    across, lines = swept(points)
    curves = [_points(rows, (across, "energy_j")) for rows in lines.values()]
    if max(len(curve) for curve in curves) < _FEWEST:
        return []
    marks = [
        Mark(letter, float(curve[0, 0]), float(curve[0, 1]), name)
        for letter, name, curve in zip(_LETTERS, lines, curves, strict=False)
        if name
    ]
    best = summary["points"][summary["best_energy"]]
    at = f"{plain(best[across])} {SETTINGS[across][1]}"
    words = f"least energy: {si(best['energy_j'], 'J')} at {at}"
    marks.append(Mark("X", float(best[across]), float(best["energy_j"]), words))
    return [chart(curves, marks, Axis(*SETTINGS[across]), Axis("energy", "J"), width)]


def _points(
    rows: Sequence[Summary], keys: Sequence[str]
) -> Float[np.ndarray, "point 2"]:
    """Two figures of every row that has both, by rising first."""
    known = [[row[key] for key in keys] for row in rows]
    known = sorted(pair for pair in known if None not in pair)
    return np.array(known, float).reshape(-1, 2)
