"""The page of an estimate: from a checked request to what it shows, and its HTML."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...estimator import EstimateDetails, Roof, Step, rest_label, totals_by_class
from ...workload import Listing
from .._format import Entries, Entry
from .._tables.lines import title_line
from .charts.curves import Side, clock_chart, limit_chart
from .charts.figures import COLOURS
from .charts.roofline import roofline
from .charts.timeline import timelines
from .document import Part, document
from .markup import tag
from .parts.answer import answer, unit_words
from .parts.rests import Basis, rests_on
from .parts.serving import served_part
from .parts.steps import step_part
from .parts.tables import bars, compared, kernel_list

if TYPE_CHECKING:
    from ...serving import ServingResult


@dataclasses.dataclass(frozen=True)
class Content:
    """All that the page shows.

    `summary` is what `estimate --json` prints, `kernels` are those of `with_work`,
    `fitted_on` that of the corrections file; `versus` is the summary of a second GPU,
    the second one of `sides` and `bases`, `notes` its warnings; `step`: of training on
    many GPUs, whose `kernels` are those of the mean GPU; `served`: the model behind an
    engine.
    """

    summary: Entry
    kernels: Entries
    listings: Sequence[Listing]
    roofs: Sequence[Roof]
    dram_bandwidth: float  # B/s
    power_cap: float  # W that the limiter holds
    sides: Sequence[Side]
    bases: Sequence[Basis]
    fitted_on: Entry
    notes: Sequence[str]
    command: str
    versus: Entry | None = None
    step: Step | None = None
    served: "ServingResult | None" = None


def page_html(content: Content) -> str:
    """The page, complete in itself: style, script, drawings and data are in it."""
    summary = content.summary
    heading = f"{summary['model']} on {summary['gpu']}"
    return document(
        heading,
        title_line(summary).removeprefix(f"{heading}: "),
        answer(summary, content.sides[0]),
        _parts(content),
        content.command,
        ("estimate", summary),
        f"{heading}: energy and time",
    )


def _parts(content: Content) -> list[Part]:
    """The sections below the answer."""
    summary, versus, kernels = content.summary, content.versus, content.kernels
    colours, roofs = _colours(content), content.roofs
    over = "One pass over time"
    if content.step is None:
        time = timelines(content.listings, kernels, summary, colours, content.power_cap)
    else:
        over, time = "The step over time", step_part(summary, content.step.timeline)
    own = [x for x in kernels if content.step is None or x["op"] != "collective"]
    roof = roofline(own, roofs, content.dram_bandwidth, colours)
    basis = rests_on(summary, content.notes, content.bases, content.fitted_on)
    parts = [
        Part("energy", "Energy", "Where the energy goes", _energy(content, colours)),
        Part("time", "Time", over, time),
        Part("roofline", "Roofline", "What kernels are up against", roof),
        Part("clocks", "Clocks", "Clocks and power limits", _curves(content.sides)),
        Part("kernels", "Kernels", "Kernels", kernel_list(summary, kernels)),
    ]
    if content.served is not None:
        served = served_part(content.served)
        parts.insert(3, Part("serving", "Serving", "Served under load", served))
    if versus is not None:
        words = f"Against {versus['gpu']}"
        parts.append(Part("versus", words, words, compared(summary, versus)))
    return [*parts, Part("sources", "Sources", "What it rests on", basis)]


def _colours(content: Content) -> dict[str, int]:
    """A colour for each kernel class, the ones that take most energy first."""
    names = totals_by_class(content.kernels, content.summary)
    names.pop(rest_label(content.summary), None)
    return {name: min(i, COLOURS - 1) for i, name in enumerate(names)}


def _energy(content: Content, colours: Mapping[str, int]) -> str:
    summary, versus = content.summary, content.versus
    units = {unit_words(k): v for k, v in summary["energy_j_by_unit"].items()}
    second, names = None, ("", "")
    if versus is not None:
        second = {unit_words(k): v for k, v in versus["energy_j_by_unit"].items()}
        names = (summary["gpu"], versus["gpu"])
    classes = totals_by_class(content.kernels, summary)
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


def page(
    details: EstimateDetails,
    versus: EstimateDetails | None,
    command: str,
    served: "ServingResult | None" = None,
) -> Content:
    """The page of an estimate, and of the same on a second GPU; `command`: the line
    that gives its numbers; `served`: the model under load."""
    every = [details, *([] if versus is None else [versus])]
    result = details.result
    return Content(
        summary=result.summary,
        kernels=details.kernels,
        listings=result.listings,
        roofs=details.roofs,
        dram_bandwidth=details.dram_bandwidth,
        power_cap=details.power_limit,
        sides=[
            Side(x.gpu["name"], x.clocks, x.limits, x.result.summary) for x in every
        ],
        bases=[Basis(x.gpu, x.constants) for x in every],
        fitted_on=details.fitted_on,
        notes=[f"{x.gpu['name']}: {y}" for x in every[1:] for y in x.result.warnings],
        command=command,
        versus=None if versus is None else versus.result.summary,
        step=result.step,
        served=served,
    )
