"""Picture of a sweep: energy over time, one point a combination."""

from typing import TYPE_CHECKING

from .._format import Entry, plain
from .._views.sweep import HEADINGS, combination, ordered, sweep_title
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LABELS = 12
_MOST_INSIDE = 6
"""Lines whose legend finds room among them; of more it stands on the right."""


@style.house()
def crossed_figure(summary: Entry) -> "Figure":
    """Energy per token (of all, where there are no tokens) over the time per token (of
    all), a line for each combination of what else was varied, along the axis with most
    numbers; the axis' values stand beside the points of the first line."""
    from matplotlib.ticker import LogLocator, NullFormatter

    points = [point for point in summary["points"] if "error" not in point]
    tokens = all(point.get("energy_j_per_token") is not None for point in points)
    paced = all(point.get("tpot_s") is not None for point in points)
    across, lines = _crossed_lines(summary, points)
    figure = style.canvas(5.2)
    axes = figure.subplots()
    across_time = "tpot_s" if paced else "time_s"
    up = "energy_j_per_token" if tokens else "energy_j"
    for number, (name, rows) in enumerate(lines.items()):
        x, y = ([row[key] for row in rows] for key in (across_time, up))
        colour = style.colours(len(lines))[number]
        marker = style.MARKERS[number % len(style.MARKERS)]
        axes.plot(x, y, color=colour, marker=marker, label=name or "_")
        if across and len(rows) <= _MOST_LABELS and number == 0:
            for row, a, b in zip(rows, x, y, strict=True):
                axes.annotate(
                    plain(row[across]), (a, b), xytext=(4, 4),
                    textcoords="offset points", fontsize=style.SMALL,
                )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
    style.name_axis(axes.xaxis, "time per output token" if paced else "time", "s")
    style.name_axis(axes.yaxis, "energy per token" if tokens else "energy", "J")
    if len(lines) > _MOST_INSIDE:
        outside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)}
        axes.legend(**outside, borderaxespad=0.0, fontsize=style.SMALL)
    elif len(lines) > 1:
        axes.legend(loc="best", fontsize=style.SMALL)
    along = f"; numbers: {HEADINGS[across][0]}" if across else ""
    style.headline(figure, f"{sweep_title(summary)}{along}")
    return figure


def _crossed_lines(
    summary: Entry, points: list[Entry]
) -> tuple[str | None, dict[str, list[Entry]]]:
    """The number that was varied most, None of words alone; points by all others, in
    its rising order."""
    axes = ordered(summary)
    numbers = [axis for axis in axes if axis not in ("gpu", "dtype")]
    across = max(numbers, key=lambda a: len({p[a] for p in points}), default=None)
    lines: dict[str, list[Entry]] = {}
    if across is not None:
        points = sorted(points, key=lambda point: point[across])
    for point in points:
        rest = {**summary, "axes": [axis for axis in axes if axis != across]}
        lines.setdefault(combination(rest, point), []).append(point)
    return across, dict(sorted(lines.items(), key=lambda x: points.index(x[1][0])))
