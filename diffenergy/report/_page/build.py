"""`page_html`: the whole report page of one estimate."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import NamedTuple

from ... import __version__
from ...workload._listing import Listing
from .._format import Entries, Entry
from .._summaries.kernel_work import Roof, by_class
from .._views.estimate import BOARD_ONLY, title_line
from .charts.curves import Side, clock_chart, limit_chart
from .charts.figures import COLOURS
from .charts.roofline import roofline
from .charts.timeline import timelines
from .markup import embedded, escape, tag
from .parts.answer import answer, unit_words
from .parts.rests import Basis, rests_on
from .parts.tables import bars, compared, kernel_list


@dataclasses.dataclass(frozen=True)
class Content:
    """All that the page shows.

    `summary` is what `estimate --json` prints, `kernels` are those of `with_work`,
    `fitted_on` that of the corrections file; `versus` is the summary of a second GPU,
    the second one of `sides` and `bases`.
    """

    summary: Entry
    kernels: Entries
    listings: Sequence[Listing]
    roofs: Sequence[Roof]
    dram_bandwidth: float  # B/s
    power_range: Sequence[float]  # W, 5th and 95th percentile of the mean power
    power_cap: float  # W that the limiter holds
    sides: Sequence[Side]
    bases: Sequence[Basis]
    fitted_on: Entry
    notes: Sequence[str]
    command: str
    versus: Entry | None = None


def page_html(content: Content) -> str:
    """The page, complete in itself: style, script, drawings and data are in it."""
    summary, parts = content.summary, _parts(content)
    title = f"{summary['model']} on {summary['gpu']}"
    return Template(_asset("page.html")).substitute(
        title=escape(f"{title}: energy and time"),
        heading=escape(title),
        what=escape(title_line(summary).removeprefix(f"{title}: ")),
        style=_asset("page.css"),
        script=_asset("page.js"),
        links="".join(tag("a", escape(x.link), href=f"#{x.identity}") for x in parts),
        answer=answer(summary, content.sides[0], content.power_range),
        sections="".join(map(_section, parts)),
        command=escape(content.command),
        board=escape(BOARD_ONLY),
        version=escape(__version__),
        data=embedded("estimate", summary),
    )


class _Part(NamedTuple):
    """A section of the page, and how the top of the page links to it."""

    identity: str
    link: str
    heading: str
    content: str


def _parts(content: Content) -> list[_Part]:
    """The sections below the answer."""
    summary, versus, kernels = content.summary, content.versus, content.kernels
    colours, roofs = _colours(content), content.roofs
    time = timelines(content.listings, kernels, summary, colours, content.power_cap)
    roof = roofline(kernels, roofs, content.dram_bandwidth, summary, colours)
    basis = rests_on(summary, content.notes, content.bases, content.fitted_on)
    parts = [
        _Part("energy", "Energy", "Where the energy goes", _energy(content, colours)),
        _Part("time", "Time", "One pass over time", time),
        _Part("roofline", "Roofline", "What kernels are up against", roof),
        _Part("clocks", "Clocks", "Clocks and power limits", _curves(content.sides)),
        _Part("kernels", "Kernels", "Kernels", kernel_list(summary, kernels)),
    ]
    if versus is not None:
        words = f"Against {versus['gpu']}"
        parts.append(_Part("versus", words, words, compared(summary, versus)))
    return [*parts, _Part("sources", "Sources", "What it rests on", basis)]


def _section(part: _Part) -> str:
    label = f"{part.identity}-heading"
    inner = tag("h2", escape(part.heading), id=label)
    return tag("section", inner, part.content, id=part.identity, aria_labelledby=label)


def _asset(name: str) -> str:
    folder = resources.files("diffenergy.report._page")
    return (folder / name).read_text(encoding="utf-8")


def _colours(content: Content) -> dict[str, int]:
    """A colour for each kernel class, the ones that take most energy first."""
    names = by_class(content.kernels, content.summary)
    names = [name for name in names if name != "waiting for the host"]
    return {name: min(i, COLOURS - 1) for i, name in enumerate(names)}


def _energy(content: Content, colours: Mapping[str, int]) -> str:
    summary, versus = content.summary, content.versus
    units = {unit_words(k): v for k, v in summary["energy_j_by_unit"].items()}
    second, names = None, ("", "")
    if versus is not None:
        found = versus["energy_j_by_unit"].items()
        second = {unit_words(key): value for key, value in found}
        names = (summary["gpu"], versus["gpu"])
    classes = by_class(content.kernels, summary)
    energy = {name: joules for name, (_, joules) in classes.items()}
    time = {name: seconds for name, (seconds, _) in classes.items()}
    return tag(
        "div",
        bars("by-unit", "By hardware unit", units, "J", None, second, names),
        tag(
            "div",
            bars("by-class", "By kernel class", energy, "J", colours),
            bars("time-by-class", "Time by kernel class", time, "s", colours),
        ),
        class_="pair",
    )


def _curves(sides: Sequence[Side]) -> str:
    charts = [
        limit_chart(sides, key, what, unit)
        for key, what, unit in (("energy_j", "energy", "J"), ("time_s", "time", "s"))
    ]
    return clock_chart(sides) + tag("div", *charts, class_="pair")
