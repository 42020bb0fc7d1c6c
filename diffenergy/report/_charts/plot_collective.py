"""Pictures of collectives: a schedule on its links, and bandwidth by size."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...collectives._schedule.schedule import Schedule
from .._format import si
from . import style
from .gantt import draw_gantt, draw_use, rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MET: Final = 1e-6
"""Relative distance from the bound at which it is met."""
_MOST_NAMED: Final = len(style.PALETTE)
"""Sources that are all named."""
_NAMED: Final = 6
"""Names of more sources than that."""
_OURS: Final = "this schedule"
_BOUND: Final = "bound"
_WIDE: Final = 30.0
"""Largest over smallest bandwidth from which on the axis is logarithmic."""


@style.house()
def collective_figure(
    schedule: Schedule,
    bound: float | None = None,
    baselines: Mapping[str, float] | None = None,
    title: str = "",
) -> "Figure":
    """Links over time; how busy they are, by medium; the finish beside `bound` (s) and
    `baselines` (s).

    The finish is that of the last send. Raises `ValueError` for a schedule without
    sends.
    """
    if not len(schedule.sends):
        raise ValueError("the schedule has no sends; there is nothing to draw.")
    finish = float(schedule.sends.end.max())
    rows = rows_of(schedule)
    media = {link.medium for link in schedule.topology.links}
    finishes = {_OURS: finish, **(baselines or {})}
    high = max(2.2, 0.9 + max(0.6 * len(media), 0.38 * (1 + len(finishes))))
    tall = 1.2 + 0.155 * max(len(rows.links), 6)
    figure = style.canvas(tall + high)
    parts: Any = figure.subfigures(2, 1, height_ratios=[tall, high])
    upper, lower = parts
    _draw_sends(schedule, bound, finish, upper.subplots())
    use, times = lower.subplots(1, 2, width_ratios=[1, 1.1])
    draw_use(schedule, finish, use)
    use.set_title("Use of the links")
    _draw_finishes(finishes, bound, times)
    kind = schedule.demand.collective.replace("_", "-")
    style.headline(figure, title or f"{kind} on {schedule.topology.name}")
    return figure


@style.house()
def bandwidth_figure(
    sizes: Sequence[float], algo_bw: Mapping[str, Sequence[float]], title: str = ""
) -> "Figure":
    """Algorithm bandwidth (B/s) over the size of the output buffer (B), a line for each
    algorithm; "bound" is dashed, the first other one stands out. NaN: not known."""
    lines = {name: np.asarray(line, float) for name, line in algo_bw.items()}
    known = np.concatenate(list(lines.values()))
    known = known[np.isfinite(known)]
    figure = style.canvas(4.4)
    axes = figure.subplots()
    order = np.argsort(sizes)
    others = [name for name in lines if name != _BOUND]
    for name, line in lines.items():
        x, y = np.asarray(sizes, float)[order], line[order]
        axes.plot(x, y, **_look(name, others), label=name.replace("_", " "))
    axes.set_xscale("log")
    if known.max() > _WIDE * known.min():
        axes.set_yscale("log")
        axes.set_ylim(known.min() / 1.5, known.max() * 1.5)
        style.log_ticks(axes.yaxis, 6)
    else:
        axes.set_ylim(0, 1.08 * known.max())
    style.log_ticks(axes.xaxis, 8)
    style.name_axis(axes.xaxis, "size of the output buffer", "B")
    style.name_axis(axes.yaxis, "algorithm bandwidth", "B/s")
    axes.legend(loc="best")
    if title:
        style.headline(figure, title)
    return figure


def _look(name: str, others: Sequence[str]) -> dict[str, Any]:
    """Colour, marker and width of a line."""
    if name == _BOUND:
        return {"color": style.BLACK, "linestyle": "--", "linewidth": 1.2, "zorder": 3}
    number = others.index(name)
    if number == 0:  # below the others, so that all are seen where they meet
        wide = {"linewidth": 6.0, "alpha": 0.6, "zorder": 1.9}
        return {"color": style.VERMILION, "marker": "o", "markersize": 9, **wide}
    palette = (style.SKY, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE)
    return {
        "color": palette[number % len(palette)],
        "marker": style.MARKERS[number % len(style.MARKERS)],
        "markersize": 5,
        "linewidth": 1.6,
    }


def _draw_sends(
    schedule: Schedule, bound: float | None, finish: float, axes: "Axes"
) -> None:
    """Gantt picture with the lines of finish and bound, and who the colours are."""
    rows = rows_of(schedule)
    names, colours = draw_gantt(schedule, rows, axes)
    axes.axvline(finish, color=style.BLACK, linewidth=1.4)
    if bound is not None:
        axes.axvline(bound, color=style.BLACK, linewidth=1.4, linestyle="--")
    axes.set_xlim(0, 1.02 * max(finish, bound or 0.0))
    note = f"\n{rows.hidden} less busy links are not shown" if rows.hidden else ""
    lines = "thin bars: latency; line: finish"
    lines += "" if bound is None else "; dashed: bound"
    if bound is not None and finish <= bound * (1 + _MET):
        lines = "thin bars: latency; line: finish, which is the bound"
    style.name_axis(axes.xaxis, f"time ({lines}){note}", "s")
    _draw_scale(names, colours, axes)


def _draw_scale(names: Sequence[str], colours: Sequence[str], axes: "Axes") -> None:
    """A strip of the colours of all sources above the axes; of many some are named."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    whole = Normalize(-0.5, len(names) - 0.5)
    bar = axes.figure.colorbar(
        ScalarMappable(whole, ListedColormap(list(colours))),
        ax=axes, location="top", aspect=60, pad=0.01,
    )  # fmt: skip
    count = len(names) if len(names) <= _MOST_NAMED else _NAMED
    named = np.unique(np.linspace(0, len(names) - 1, count).round().astype(int))
    bar.set_ticks(named.tolist(), labels=[str(names[i]) for i in named])
    bar.set_label("sends by source")


def _draw_finishes(
    finishes: Mapping[str, float], bound: float | None, axes: "Axes"
) -> None:
    """Finish of every algorithm, the fastest on top, beside the bound."""
    ours, names = finishes[_OURS], []
    order = sorted(finishes.items(), key=lambda item: item[1])
    if bound is not None:
        order.insert(0, (_BOUND, bound))
        axes.axvline(bound, color=style.BLACK, linewidth=1.4, linestyle="--")
    colours = {_OURS: style.VERMILION, _BOUND: style.GREY}
    for row, (name, time) in enumerate(order):
        axes.barh(row, time, height=0.6, color=colours.get(name, style.SKY))
        more = "" if name in colours else f" ({100 * (time / ours - 1):+.3g} %)"
        names.append(f"{name.replace('_', ' ')}\n{si(time, 's')}{more}")
    style.rows_down(axes, names)
    axes.set_title("Finish")
    words = "time" if bound is None else "time (dashed: bound)"
    style.name_axis(axes.xaxis, words, "s")
    axes.set_xlim(0, 1.05 * max(*finishes.values(), bound or 0.0))
    style.few_ticks(axes.xaxis, 4)
