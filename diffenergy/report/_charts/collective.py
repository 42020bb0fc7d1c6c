"""Collectives: a schedule on its links, and bandwidth by size."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...charts import (
    Axis,
    Boxes,
    Chart,
    Label,
    Line,
    Mark,
    Panel,
    Points,
    Reading,
    Rule,
    Scale,
    bars,
    colours,
    stacked,
)
from ...collectives import Schedule
from .._page.markup import si

_MOST_LINKS: Final = 48
"""Maximum number of links drawn; beyond it the busiest."""
_HIGH: Final = 0.8
"""Height of a send, as a share of a row."""
_TAIL: Final = 0.2
"""Height of its latency, during which the link is free for other sends."""
_MET: Final = 1e-6
"""Relative distance from the bound below which it counts as met."""
_MOST_NAMED: Final = 8
"""Maximum number of sources in a legend; beyond it a colour scale."""
_NAMED: Final = 6
"""Number of sources named on that colour scale."""
_OURS: Final = "this schedule"
_BOUND: Final = "bound"
_WIDE: Final = 30.0
"""Ratio of largest to smallest bandwidth above which the axis is logarithmic."""
_ROW: Final = 15.0
"""Height of a link's row (px)."""


class Rows(NamedTuple):
    """Links that are drawn, from top to bottom, and the number of hidden used links."""

    links: Int[np.ndarray, " row"]
    hidden: int


def collective_charts(
    schedule: Schedule,
    bound: float | None = None,
    baselines: Mapping[str, float] | None = None,
    title: str = "",
) -> dict[str, Chart]:
    """Return charts of a schedule: sends over time, utilization of links by medium, and
    its finish beside `bound` (s) and `baselines` (s).

    The finish is that of the last send. Raises `ValueError` for a schedule without
    sends.
    """
    if not len(schedule.sends):
        raise ValueError("the schedule has no sends; there is nothing to draw.")
    finish = float(schedule.sends.end.max())
    charts = {
        "sends": _sends(schedule, bound, finish),
        "links": _use(schedule, finish),
        "finish": _finishes({_OURS: finish, **(baselines or {})}, bound),
    }
    kind = schedule.demand.collective.replace("_", "-")
    title = title or f"{kind} on {schedule.topology.name}"
    return {"collective": stacked(title, list(charts.values())), **charts}


def bandwidth_chart(
    sizes: Sequence[float], algo_bw: Mapping[str, Sequence[float]], title: str = ""
) -> Chart:
    """Return a chart of algorithm bandwidth (B/s) over output buffer size (B), one line
    per algorithm. "bound" is dashed, the first other one is emphasised. NaN:
    unknown."""
    finite = np.concatenate([np.asarray(line, float) for line in algo_bw.values()])
    finite = finite[np.isfinite(finite)]
    order = np.argsort(sizes).tolist()
    x = [float(sizes[i]) for i in order]
    marks, number = list[Mark](), 0
    for name, line in algo_bw.items():
        y, shown = [float(line[i]) for i in order], name.replace("_", " ")
        if name == _BOUND:
            marks.append(Line(x, y, shown, "ink", 1.6, dashed=True))
        else:  # the first one below the others, so that all are seen where they meet
            colour = (1, 5, 0, 2, 3, 4)[number % 6]
            width = 2.0 if number else 6.0
            marks.append(Line(x, y, shown, colour, width, shape=number % 7))
            number += 1
    log = bool(finite.max() > _WIDE * finite.min())
    panel = Panel(
        Axis("size of the output buffer", "B", log=True),
        Axis("algorithm bandwidth", "B/s", log, not log), marks, height=280.0,
    )  # fmt: skip
    return Chart(title or "Algorithm bandwidth by size", [panel])


def _sends(schedule: Schedule, bound: float | None, finish: float) -> Chart:
    """Chart of every send on the drawn links, coloured by its chunk's source. Thin bars
    are latencies; rules mark finish and bound."""
    topology, sends, rows = schedule.topology, schedule.sends, rows_of(schedule)
    sources = np.unique(schedule.demand.source)
    names, looks = (
        [topology.nodes[node].name for node in sources],
        colours(len(sources)),
    )
    place = np.full(len(topology.links), -1)
    place[rows.links] = np.arange(len(rows.links))
    shown = np.flatnonzero(place[sends.link] >= 0)
    shown = shown[np.argsort(sends.start[shown], kind="stable")]
    row = place[sends.link[shown]].astype(float)
    block = np.searchsorted(
        sources, schedule.demand.source[sends.block[shown]]
    ).tolist()
    colour = [looks[i] for i in block]
    start, last = sends.start[shown], sends.end[shown]
    end = last - topology.latencies[sends.link[shown]]
    marks: list[Mark] = [
        _rows(end, last, row, _TAIL, colour, False),
        _rows(start, end, row, _HIGH, colour, True),
        Rule(finish, f"finish: {si(finish, 's')}", axis="x", dashed=False),
    ]
    if bound is not None:
        met = " (met)" if finish <= bound * (1 + _MET) else ""
        marks.append(Rule(bound, f"bound: {si(bound, 's')}{met}", axis="x"))
    if len(sources) <= _MOST_NAMED:
        pairs = zip(names, looks, strict=True)
        keys = [Boxes((), (), (), (), f"from {name}", look) for name, look in pairs]
        marks, scale = [*keys, *marks], None
    else:
        few = np.unique(np.linspace(0, len(names) - 1, _NAMED).round().astype(int))
        scale = Scale("sends by source", looks, {i: names[i] for i in few.tolist()})
    links = [_ends(schedule, link) for link in rows.links]
    marks += _between_media(schedule, rows)
    readings = [
        Reading(
            a, r, f"{links[int(r)]}: {si(n, 'B')} of {names[i]}, {si(a, 's')} to "
            f"{si(b, 's')}",
        )
        for a, b, r, i, n in zip(
            start.tolist(), last.tolist(), row.tolist(), block,
            sends.bytes[shown].tolist(), strict=True,
        )
    ]  # fmt: skip
    readings.sort(key=lambda reading: (reading.y, reading.x))
    caption = "A bar is a send, its colour the source of the data."
    hidden = f"; {rows.hidden} less busy links are not shown" if rows.hidden else ""
    title = f"Sends (thin bars: latency{hidden})"
    panel = Panel(
        Axis("time", "s", zero=True),
        Axis(names=links), marks, readings, scale=scale,
        height=_ROW * max(len(rows.links), 6),
    )  # fmt: skip
    return Chart(title, [panel], caption)


def _rows(
    start: np.ndarray, end: np.ndarray, row: np.ndarray, high: float,
    colour: Sequence[int | str], edged: bool,
) -> Boxes:  # fmt: skip
    low, top = (row - high / 2).tolist(), (row + high / 2).tolist()
    return Boxes(start.tolist(), end.tolist(), low, top, "", colour, edged=edged)


def _ends(schedule: Schedule, link: int) -> str:
    """Source and target of a link as text."""
    topology = schedule.topology
    one = topology.links[link]
    return f"{topology.nodes[one.source].name} → {topology.nodes[one.target].name}"


def _between_media(schedule: Schedule, rows: Rows) -> list[Mark]:
    """Rules between media, and labels with their names at the right edge."""
    media = _media(schedule)[rows.links]
    kinds = list(dict.fromkeys(media))
    if len(kinds) == 1:
        return []
    places = [np.flatnonzero(media == kind) for kind in kinds]
    first = [float(place[0]) for place in places]
    middle = [float(place.mean()) for place in places]
    marks: list[Mark] = [
        Rule(x - 0.5, "", colour="soft", dashed=False) for x in first if x
    ]
    end = 1.01 * float(schedule.sends.end.max())
    marks += [
        Label(end, x, str(kind), "right") for kind, x in zip(kinds, middle, strict=True)
    ]
    return marks


def _use(schedule: Schedule, finish: float) -> Chart:
    """Chart of the share of the finish during which links transmit, by medium: mean as
    a bar, every link as a mark. Links without sends count as idle."""
    share = 100 * busy_time(schedule) / finish
    media = _media(schedule)
    kinds, names, readings = list(dict.fromkeys(media)), [], []
    means = [float(share[media == kind].mean()) for kind in kinds]
    marks = bars(means, (), colour=colours(len(kinds)), thick=0.6)
    for row, (kind, mean) in enumerate(zip(kinds, means, strict=True)):
        mine = share[media == kind]
        x, rows = mine.tolist(), [float(row)] * len(mine)
        name = "a link" if row == 0 else ""
        marks.append(Line((min(x), max(x)), (row, row), "", "ink", 1.2))
        marks.append(Points(x, rows, name, "ink", 3, 3.0))
        words = _links_words(schedule.topology.rates[media == kind].tolist())
        names.append(f"{kind}, mean {mean:.0f} %\n{words}")
        between = f"{min(x):.0f} to {max(x):.0f} %"
        text = f"{kind}: mean {mean:.0f} % of the finish, {between}; {words}"
        readings.append(Reading(mean, row, text))
        links = np.flatnonzero(media == kind).tolist()
        ends = [_ends(schedule, link) for link in links]
        readings += [
            Reading(value, row, f"{name}: {value:.1f} % of the finish")
            for value, name in sorted(zip(x, ends, strict=True))
        ]
    x = Axis("share of the finish", "%", zero=True, high=103.0)
    panel = Panel(x, Axis(names=names), marks, readings)
    return Chart("Use of the links", [panel], half=True)


def _finishes(finishes: Mapping[str, float], bound: float | None) -> Chart:
    """Chart of the finish (s) of every algorithm, fastest on top, beside the bound."""
    ours = finishes[_OURS]
    order = sorted(finishes.items(), key=lambda item: item[1])
    if bound is not None:
        order.insert(0, (_BOUND, bound))
    looks = [{_OURS: 1, _BOUND: 7}.get(name, 5) for name, _ in order]
    texts = [
        si(time, "s") if name in (_OURS, _BOUND)
        else f"{si(time, 's')} ({100 * (time / ours - 1):+.3g} %)"
        for name, time in order
    ]  # fmt: skip
    names = [name.replace("_", " ") for name, _ in order]
    marks = bars([time for _, time in order], texts, colour=looks, thick=0.6)
    if bound is not None:
        marks.append(Rule(bound, axis="x"))
    panel = Panel(Axis("time", "s", zero=True), Axis(names=names), marks)
    return Chart("Finish", [panel], half=True)


def _media(schedule: Schedule) -> np.ndarray:
    """Medium of every link."""
    return np.array([link.medium for link in schedule.topology.links])


def _used_links(schedule: Schedule) -> Int[np.ndarray, " link"]:
    """Links with sends, grouped by medium, then ordered by their ends."""
    topology, media = schedule.topology, _media(schedule)
    used = np.unique(schedule.sends.link)
    kinds = list(dict.fromkeys(media))
    medium = np.array([kinds.index(x) for x in media[used]], int)
    ends = topology.targets[used], topology.sources[used]
    return used[np.lexsort((*ends, medium))]


def busy_time(schedule: Schedule) -> Float[np.ndarray, " link"]:
    """Return the transmission time (s) of each link, without latencies."""
    sends, rates = schedule.sends, schedule.topology.rates
    work = sends.bytes / rates[sends.link]
    return np.bincount(sends.link, work, len(rates))


def rows_of(schedule: Schedule, most: int = _MOST_LINKS) -> Rows:
    """Return the busiest links with sends, in the order of `_used_links`. Half of the
    rows are divided equally among the media, as far as each has links."""
    used = _used_links(schedule)
    media = _media(schedule)[used]
    busiest = np.argsort(-busy_time(schedule)[used], kind="stable")
    sure = max(1, most // 2 // len(set(media)))
    first = [
        link for kind in set(media) for link in busiest[media[busiest] == kind][:sure]
    ]
    order = [*first, *(link for link in busiest if link not in set(first))]
    shown = np.sort(np.array(order[:most], int))
    return Rows(used[shown], len(used) - len(shown))


def _links_words(rates: Sequence[float]) -> str:
    """Number of links of a medium and their rates, as text."""
    low, high = si(min(rates), "B/s"), si(max(rates), "B/s")
    if low == high:
        words = high
    elif low.split()[1] == high.split()[1]:
        words = f"{low.split()[0]} to {high}"
    else:
        words = f"{low} to {high}"
    return f"{len(rates)} link{'s' if len(rates) > 1 else ''}, {words}"
