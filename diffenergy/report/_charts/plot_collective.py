"""Pictures of collectives: a schedule on its links, and bandwidth by size."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...collectives import Schedule
from .._format import si
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINKS: Final = 48
"""Links that are drawn; of more the busiest."""
_MOST_EDGED: Final = 1500
"""Sends up to which each has a white edge."""
_HIGH: Final = 0.8
"""Height of a send in rows."""
_TAIL: Final = 0.2
"""Height of its latency, in which the link is free for others."""
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


class Rows(NamedTuple):
    """Links that are drawn, from top to bottom, and how many others were used."""

    links: Int[np.ndarray, " row"]
    hidden: int


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
    media = set(_media(schedule))
    finishes = {_OURS: finish, **(baselines or {})}
    high = max(2.2, 0.9 + max(0.6 * len(media), 0.38 * (1 + len(finishes))))
    tall = 1.2 + 0.155 * max(len(rows.links), 6)
    figure = style.canvas(tall + high)
    parts: Any = figure.subfigures(2, 1, height_ratios=[tall, high])
    upper, lower = parts
    _draw_sends(schedule, rows, bound, finish, upper.subplots())
    use, times = lower.subplots(1, 2, width_ratios=[1, 1.1])
    _draw_use(schedule, finish, use)
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
    schedule: Schedule, rows: Rows, bound: float | None, finish: float, axes: "Axes"
) -> None:
    """Gantt picture with the lines of finish and bound, and who the colours are."""
    names, colours = _draw_gantt(schedule, rows, axes)
    axes.axvline(finish, color=style.BLACK, linewidth=1.4)
    if bound is not None:
        axes.axvline(bound, color=style.BLACK, linewidth=1.4, linestyle="--")
    axes.set_xlim(0, 1.02 * max(finish, bound or 0.0))
    note = f"\n{rows.hidden} less busy links are not shown" if rows.hidden else ""
    lines = "thin bars: latency; line: finish"
    if bound is not None:
        met = finish <= bound * (1 + _MET)
        lines += ", which is the bound" if met else "; dashed: bound"
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


def _media(schedule: Schedule) -> np.ndarray:
    """Medium of every link."""
    return np.array([link.medium for link in schedule.topology.links])


def _used_links(schedule: Schedule) -> Int[np.ndarray, " link"]:
    """Links with sends, those of the same medium together, then by their ends."""
    topology, media = schedule.topology, _media(schedule)
    used = np.unique(schedule.sends.link)
    kinds = list(dict.fromkeys(media))
    medium = np.array([kinds.index(x) for x in media[used]], int)
    ends = topology.targets[used], topology.sources[used]
    return used[np.lexsort((*ends, medium))]


def busy_time(schedule: Schedule) -> Float[np.ndarray, " link"]:
    """s that each link of the topology transmits, latency not included."""
    sends, rates = schedule.sends, schedule.topology.rates
    work = sends.bytes / rates[sends.link]
    return np.bincount(sends.link, work, len(rates))


def rows_of(schedule: Schedule, most: int = _MOST_LINKS) -> Rows:
    """The busiest links with sends, in the order of `_used_links`; each medium gets a
    fair part of half the rows, as far as it has so many links."""
    used = _used_links(schedule)
    media = _media(schedule)[used]
    busiest = np.argsort(-busy_time(schedule)[used], kind="stable")
    sure = max(1, most // 2 // len(set(media)))
    first = [
        link for kind in set(media) for link in busiest[media[busiest] == kind][:sure]
    ]
    order = [*first, *(link for link in busiest if link not in set(first))]
    kept = np.sort(np.array(order[:most], int))
    return Rows(used[kept], len(used) - len(kept))


def _draw_gantt(
    schedule: Schedule, rows: Rows, axes: "Axes"
) -> tuple[list[str], list[str]]:
    """Every send of the rows as a bar, coloured by the node its block is from; the
    latency behind it is a thin one. Returns names and colours of those nodes."""
    from matplotlib.colors import to_rgba_array

    topology, sends = schedule.topology, schedule.sends
    sources = np.unique(schedule.demand.source)
    colours = style.colours(len(sources))
    place = np.full(len(topology.links), -1)
    place[rows.links] = np.arange(len(rows.links))
    shown = np.flatnonzero(place[sends.link] >= 0)
    shown = shown[np.argsort(sends.start[shown], kind="stable")]
    row = place[sends.link[shown]]
    block = np.searchsorted(sources, schedule.demand.source[sends.block[shown]])
    colour = to_rgba_array(colours)[block]
    end = sends.end[shown] - topology.latencies[sends.link[shown]]
    look: dict[str, Any] = {"facecolors": colour, "linewidths": 0.4}
    tails, bars = (end, sends.end[shown]), (sends.start[shown], end)
    style.add_boxes(axes, *tails, row, _TAIL, edgecolors="none", **look)
    edge = "white" if len(shown) <= _MOST_EDGED else "none"
    style.add_boxes(axes, *bars, row, _HIGH, edgecolors=edge, **look)
    ends = ((topology.links[i].source, topology.links[i].target) for i in rows.links)
    named = [f"{topology.nodes[a].name} → {topology.nodes[b].name}" for a, b in ends]
    style.rows_down(axes, named)
    _mark_media(schedule, rows, axes)
    return [topology.nodes[node].name for node in sources], colours


def _draw_use(schedule: Schedule, finish: float, axes: "Axes") -> None:
    """Share of the finish that links transmit, by medium: the mean as a bar, each link
    as a tick, least to most as a line. Links without sends count as idle."""
    share = 100 * busy_time(schedule) / finish
    media = _media(schedule)
    kinds, names = list(dict.fromkeys(media)), []
    tick = {"color": style.BLACK, "markersize": 9, "mew": 0.8}
    pairs = zip(kinds, style.colours(len(kinds)), strict=True)
    for row, (kind, colour) in enumerate(pairs):
        mine = share[media == kind]
        axes.barh(row, mine.mean(), height=0.6, color=colour, alpha=0.6)
        axes.plot([mine.min(), mine.max()], [row, row], color=style.BLACK, lw=1.0)
        axes.plot(mine, np.full(len(mine), row), "|", **tick)
        words = _links_words(schedule.topology.rates[media == kind].tolist())
        names.append(f"{kind}, mean {mine.mean():.0f} %\n{words}")
    style.rows_down(axes, names)
    if len(kinds) == 1:
        axes.set_ylim(0.9, -0.9)  # a single bar does not fill the panel
    axes.set_xlim(0, 103)
    axes.set_xlabel("share of the finish, % (tick: a link)")


def _links_words(rates: Sequence[float]) -> str:
    """How many links a medium has, and their rates."""
    low, high = si(min(rates), "B/s"), si(max(rates), "B/s")
    if low == high:
        words = high
    elif low.split()[1] == high.split()[1]:
        words = f"{low.split()[0]} to {high}"
    else:
        words = f"{low} to {high}"
    return f"{len(rates)} link{'s' if len(rates) > 1 else ''}, {words}"


def _mark_media(schedule: Schedule, rows: Rows, axes: "Axes") -> None:
    """Names of the media on the right, lines between them."""
    media = _media(schedule)[rows.links]
    kinds = list(dict.fromkeys(media))
    for kind in kinds:
        mine = np.flatnonzero(media == kind)
        if mine[0] > 0:
            axes.axhline(mine[0] - 0.5, color=style.GREY, linewidth=1.0)
        if len(kinds) == 1:
            continue
        fits = len(mine) * 1.5 >= len(kind)
        axes.text(
            1.005, (mine[0] + mine[-1]) / 2, kind, rotation=270 if fits else 0,
            va="center", ha="left", fontsize=style.SMALL,
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
