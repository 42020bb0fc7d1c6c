"""Sends of a collective, drawn: links over time, and how busy the links are."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...collectives._schedule.schedule import Schedule
from .._format import si
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection

_MOST_LINKS: Final = 48
"""Links that are drawn; of more the busiest."""
_MOST_EDGED: Final = 1500
"""Sends up to which each has a white edge."""
_HIGH: Final = 0.8
"""Height of a send in rows."""
_TAIL: Final = 0.2
"""Height of its latency, in which the link is free for others."""


class Rows(NamedTuple):
    """Links that are drawn, from top to bottom, and how many others were used."""

    links: Int[np.ndarray, " row"]
    hidden: int


def _used_links(schedule: Schedule) -> Int[np.ndarray, " link"]:
    """Links with sends, those of the same medium together, then by their ends."""
    topology = schedule.topology
    used = np.unique(schedule.sends.link)
    media = list(dict.fromkeys(link.medium for link in topology.links))
    medium = np.array([media.index(topology.links[i].medium) for i in used], int)
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
    used, topology = _used_links(schedule), schedule.topology
    media = np.array([topology.links[link].medium for link in used])
    busiest = np.argsort(-busy_time(schedule)[used], kind="stable")
    sure = max(1, most // 2 // len(set(media)))
    first = [
        link for kind in set(media) for link in busiest[media[busiest] == kind][:sure]
    ]
    order = [*first, *(link for link in busiest if link not in set(first))]
    kept = np.sort(np.array(order[:most], int))
    return Rows(used[kept], len(used) - len(kept))


def draw_gantt(
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
    edged = len(shown) <= _MOST_EDGED
    tails = _bars(end, sends.end[shown], row, _TAIL, colour, False)
    axes.add_collection(tails, autolim=False)
    bars = _bars(sends.start[shown], end, row, _HIGH, colour, edged)
    axes.add_collection(bars, autolim=False)
    names = [_link_name(schedule, link) for link in rows.links.tolist()]
    style.rows_down(axes, names)
    _mark_media(schedule, rows, axes)
    return [topology.nodes[node].name for node in sources], colours


def draw_use(schedule: Schedule, finish: float, axes: "Axes") -> None:
    """Share of the finish that links transmit, by medium: the mean as a bar, each link
    as a tick, least to most as a line. Links without sends count as idle."""
    share = 100 * busy_time(schedule) / finish
    media = [link.medium for link in schedule.topology.links]
    kinds = list(dict.fromkeys(media))
    names = []
    for row, (kind, colour) in enumerate(
        zip(kinds, style.colours(len(kinds)), strict=True)
    ):
        mine = share[np.array([medium == kind for medium in media], bool)]
        axes.barh(row, mine.mean(), height=0.6, color=colour, alpha=0.6)
        axes.plot([mine.min(), mine.max()], [row, row], color=style.BLACK, lw=1.0)
        axes.plot(
            mine, np.full(len(mine), row), "|", color=style.BLACK, markersize=9, mew=0.8
        )
        names.append(
            f"{kind}, mean {mine.mean():.0f} %\n{_links_words(schedule, kind)}"
        )
    style.rows_down(axes, names)
    if len(kinds) == 1:
        axes.set_ylim(0.9, -0.9)  # a single bar does not fill the panel
    axes.set_xlim(0, 103)
    axes.set_xlabel("share of the finish, % (tick: a link)")


def _links_words(schedule: Schedule, kind: str) -> str:
    """How many links a medium has, and their rates."""
    rates = [x.rate for x in schedule.topology.links if x.medium == kind]
    low, high = si(min(rates), "B/s"), si(max(rates), "B/s")
    if low == high:
        words = high
    elif low.split()[1] == high.split()[1]:
        words = f"{low.split()[0]} to {high}"
    else:
        words = f"{low} to {high}"
    return f"{len(rates)} link{'s' if len(rates) > 1 else ''}, {words}"


def _bars(
    begin: Float[np.ndarray, " send"],
    end: Float[np.ndarray, " send"],
    row: Int[np.ndarray, " send"],
    height: float,
    colour: Float[np.ndarray, "send 4"],
    edged: bool,
) -> "PolyCollection":
    """Rectangles from `begin` to `end`, s, centred on their rows."""
    from matplotlib.collections import PolyCollection

    low, high = row - height / 2, row + height / 2
    across = np.stack([begin, end, end, begin], axis=1)
    down = np.stack([low, low, high, high], axis=1)
    return PolyCollection(
        list(np.stack([across, down], axis=2)),
        facecolors=colour,
        edgecolors="white" if edged else "none",
        linewidths=0.4,
    )


def _link_name(schedule: Schedule, link: int) -> str:
    nodes, found = schedule.topology.nodes, schedule.topology.links[link]
    return f"{nodes[found.source].name} → {nodes[found.target].name}"


def _mark_media(schedule: Schedule, rows: Rows, axes: "Axes") -> None:
    """Names of the media on the right, lines between them."""
    media = [schedule.topology.links[link].medium for link in rows.links]
    kinds = list(dict.fromkeys(media))
    for kind in kinds:
        mine = [row for row, medium in enumerate(media) if medium == kind]
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
