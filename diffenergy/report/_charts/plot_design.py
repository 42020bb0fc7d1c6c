"""Picture of `codesign`: the front, or base against best and the path of the search."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...codesign import TILES, UNITS
from .._format import Entries, Entry, change, si
from .._tables.design_words import METRIC_KEYS, first_goal, shown
from .._tables.lines import title_line
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_FIELDS: Final = 12
_METRICS: Final = (
    ("time_s", "time", "s"),
    ("energy_j", "energy", "J"),
    ("avg_power_w", "mean power", "W"),
    ("area_mm2", "area", "mm2"),
)
_KEPT: Final = 1e-9
"""Violation, as a share of a limit, up to which a design keeps it."""


@style.house()
def design_figure(summary: Entry, path: Entries) -> "Figure":
    """What a search found: of several objectives the front and its fields; of one the
    fields and metrics of base and best, and the path of the search.

    `path` is that of `path_json`.
    """
    front = summary["pareto"]
    names = [name for name in summary["vary"] if name != TILES][:_MOST_FIELDS]
    if front:
        figure = style.canvas(7.4)
        top, below = figure.subplots(2, 1, height_ratios=[1.3, 1]).tolist()
        _draw_front(summary, top)
        _draw_front_fields(summary, names, below)
    else:
        heights = [0.9 + 0.36 * max(len(names), 1), 0.9 + 0.36 * 4, 2.1]
        figure = style.canvas(0.4 + sum(heights))
        top, middle, below = figure.subplots(3, 1, height_ratios=heights).tolist()
        _draw_fields(summary, names, top)
        _draw_metrics(summary, middle)
        _draw_path(summary, path, below)
    style.headline(figure, f"{_title(summary)} ({summary['grade']})")
    return figure


def _title(summary: Entry) -> str:
    """What was searched for on which workload; a mix has no title line of its own."""
    if "workloads" not in summary:
        return title_line(summary)
    return f"{summary['model']} on {summary['gpu']}"


def _draw_fields(summary: Entry, names: Sequence[str], axes: "Axes") -> None:
    """Fields of the best design over those of the base, on the span of their bounds."""
    axes.set_title("Design")
    if not names:
        axes.text(0.5, 0.5, "tiles alone vary", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    spaces, best = summary["vary"], summary["best"]["fields"]
    for row, name in enumerate(names):
        ends = [spaces[name][x] / spaces[name]["base"] for x in ("low", "high")]
        axes.plot(
            ends, [row, row], color=style.GREY, linewidth=5, alpha=0.4,
            solid_capstyle="butt", label="_" if row else "bounds",
        )  # fmt: skip
    rows = range(len(names))
    ring = {"color": style.BLACK, "mfc": "none", "mew": 1.8, "markersize": 13}
    axes.plot([1] * len(names), rows, "o", **ring, label="base")
    star = {"color": style.VERMILION, "mec": "white", "markersize": 15}
    multiples = [best[name] / spaces[name]["base"] for name in names]
    axes.plot(multiples, rows, "*", **star, label="best")
    words = [
        f"{name}\n{shown(name, spaces[name]['base'])} → {shown(name, best[name])}"
        for name in names
    ]
    style.rows_down(axes, words)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_xlabel("multiple of the base value")
    style.legend_above(axes)


def _draw_metrics(summary: Entry, axes: "Axes") -> None:
    """Metrics of the best design in % of the base's, with their intervals."""
    known = [
        (key, word, unit)
        for key, word, unit in _METRICS
        if summary["start"][key] and summary["best"][key] is not None
    ]
    names = []
    for row, (key, word, unit) in enumerate(known):
        base, best = summary["start"][key], summary["best"][key]
        share = 100 * best / base
        label = "best" if row == 0 else None
        axes.barh(row, share, color=style.SKY, height=0.6, label=label)
        interval = summary.get(f"{key}_p5_p95")
        if interval is not None:
            low, high = interval
            ends = [[100 * x / base] for x in (best - low, high - best)]
            axes.errorbar(
                share, row, xerr=np.maximum(ends, 0.0), color=style.BLACK, capsize=4,
                linewidth=1.4, label="5 to 95 %" if row == 0 else None,
            )  # fmt: skip
        names.append(
            f"{word} ({change(share - 100)})\n{_in(base, unit)} → {_in(best, unit)}"
        )
    axes.axvline(100, color=style.BLACK, linewidth=1.2, label="base")
    style.rows_down(axes, names)
    axes.set_title("Metrics")
    axes.set_xlabel("share of the base, %")
    style.legend_above(axes)


def _in(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if unit in ("W", "mm2") else si(value, unit)


def _draw_front(summary: Entry, axes: "Axes") -> None:
    """The front over its first two objectives, with base and best; a third is the
    colour."""
    goals = summary["objective"].split(",")
    keys = [METRIC_KEYS[goal] for goal in goals]
    points = np.array([[s[key] for key in keys] for s in summary["pareto"]], float)
    points = points[np.argsort(points[:, 0])]
    if len(goals) == 2:
        axes.plot(*points.T, "o-", color=style.BLUE, markersize=5, label="front")
    else:
        dots = axes.scatter(*points[:, :2].T, c=points[:, 2], cmap=style.MAP, s=30)
        bar = axes.figure.colorbar(dots, ax=axes)
        _label(bar.ax.yaxis, goals[2])
    for name, marker, colour, size, words in (
        ("start", "X", style.BLACK, 10, "base"),
        ("best", "*", style.VERMILION, 15, f"best for {_word(goals[0])}"),
    ):
        place = [summary[name][key] for key in keys[:2]]
        look = {"color": colour, "mec": "white", "markersize": size, "linestyle": ""}
        axes.plot(*place, marker, **look, label=words)
    for axis, goal in zip((axes.xaxis, axes.yaxis), goals, strict=False):
        _label(axis, goal)
    axes.legend(loc="best")
    axes.set_title("Pareto front")


def _draw_front_fields(summary: Entry, names: Sequence[str], axes: "Axes") -> None:
    """Fields along the front, as shares of their base values."""
    goal = first_goal(summary)
    scores = sorted(summary["pareto"], key=lambda score: score[METRIC_KEYS[goal]])
    x = [score[METRIC_KEYS[goal]] for score in scores]
    for number, (name, colour) in enumerate(
        zip(names, style.colours(len(names)), strict=True)
    ):
        shares = [s["fields"][name] / summary["vary"][name]["base"] for s in scores]
        marker = style.MARKERS[number % len(style.MARKERS)]
        axes.plot(x, shares, marker=marker, markersize=5, color=colour, label=name)
    axes.axhline(1, color=style.BLACK, linewidth=1.0)
    _label(axes.xaxis, goal)
    axes.set_ylabel("multiple of the base value")
    axes.set_title("Design along the front")
    axes.legend(loc="best", ncols=2)


def _draw_path(summary: Entry, path: Entries, axes: "Axes") -> None:
    """Best objective so far over the evaluations, and the design of every round."""
    known = [entry for entry in path if entry["objective"] is not None]
    goal = first_goal(summary)
    kept = np.array([(entry["violation"] or 0.0) <= _KEPT for entry in known], bool)
    effort = np.array([entry["evaluations"] for entry in known], float)
    value = np.array([entry["objective"] for entry in known], float)
    for chosen, fill, words in (
        (kept, style.BLUE, "round"),
        (~kept, "white", "round that passes a limit"),
    ):
        if chosen.any():
            axes.plot(
                effort[chosen], value[chosen], "o", color=style.BLUE, mfc=fill,
                markersize=5, label=words,
            )  # fmt: skip
    if kept.any():
        so_far = np.minimum.accumulate(np.where(kept, value, np.inf))
        axes.step(effort[kept], so_far[kept], where="post", color=style.BLUE, alpha=0.5)
    base, best = summary["start"]["objective"], summary["best"]["objective"]
    if base is not None:
        axes.axhline(base, ls="--", color=style.BLACK, lw=1.2, label="base")
    if best is not None:
        axes.axhline(best, ls=":", color=style.VERMILION, lw=1.6, label="best")
    axes.set_title("Search")
    axes.set_xlabel("model evaluations")
    _label(axes.yaxis, goal)
    axes.margins(y=0.1)
    style.legend_above(axes)


def _label(axis: Any, goal: str) -> None:
    """Name and unit of an objective on an axis."""
    unit = UNITS.get(goal, "")
    if unit in ("s", "J"):
        style.name_axis(axis, _word(goal), unit)
    else:
        axis.set_label_text(f"{_word(goal)}, {unit}" if unit else _word(goal))


def _word(goal: str) -> str:
    return {"edp": "energy x time", "ed2p": "energy x time^2"}.get(
        goal, goal.replace("_", " ")
    )
