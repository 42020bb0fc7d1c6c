"""The page of an estimate: its result, and the data behind it."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ...charts import Chart
from ...estimator import (
    EstimateDetails,
    is_training_step,
    rest_label,
    totals_by_class,
)
from ...workload import kernel_name
from .._blocks import Block, Section, Table
from .._charts.curves import Side, curve_charts
from .._charts.estimate import parts_chart
from .._charts.power import power_charts
from .._charts.roofline import roofline
from .._charts.steps import step_charts
from .._charts.timeline import timelines
from .._format import (
    QUANTITIES,
    UNKNOWN,
    Entries,
    Entry,
    change,
    longest,
    percent,
    plain,
    si,
    unit_words,
)
from .._tables.comparison import comparison_table
from .._tables.kernels import limit_words
from .._tables.lines import (
    BOARD_ONLY,
    assumed_line,
    grade_words,
    memory_lines,
    modelled,
    title_line,
    warning_lines,
)
from .._tables.steps import step_blocks
from .._views.estimate import host_line, phase_table, totals
from .document import build_page

if TYPE_CHECKING:
    from ...serving import ServingResult

_GRADES: Final = {
    "calibrated": "measurements of this GPU and kind of work were fitted",
    "transferred": "measurements of a GPU of its architecture were fitted",
    "forecast": "measurements of other GPUs were fitted, none of this case",
    "datasheet": "nothing was fitted: data sheets and priors, assumed widths",
}
_SLOWER: Final = 1.05
"""Largest time relative to the estimate's at which energy savings are suggested."""
_WORTH: Final = 0.005
"""Least share of the energy saved that is worth a line."""
_LIMITS: Final = {
    "host": "The host, which cannot launch fast enough,",
    "power": "The power limit",
    "dram": "DRAM bandwidth",
    "tensor": "The tensor cores' rate",
    "fma": "The CUDA cores' rate",
    "latency": "Latency (too little work in flight)",
    "occupancy": "Occupancy (too few CTAs for the SMs)",
    "launch": "Launching kernels",
    "smem": "Shared-memory bandwidth",
    "l2": "L2 bandwidth",
    "issue": "Instruction issue",
    "sfu": "The special-function rate",
    "link": "Link bandwidth",
    "exchange": "Waiting for other GPUs",
}
_COLOURS: Final = 8
"""Number of colours of the palette."""
_BY_CLASS: Final = (
    ("energy-by-class", "By kernel class", "J", 1),
    ("time-by-class", "Time by kernel class", "s", 0),
)
_NUMBERS: Final = (
    ("field", "field"),
    ("value", "value", plain),
    *((word, word) for word in ("unit", "quality", "year", "source")),
)
_CONSTANTS: Final = (
    ("constant", "name"),
    ("what it is", "what"),
    ("value", "value", "{:.4g}"),
    ("unit", "unit"),
    ("basis", "basis"),
    ("made of", "built"),
    ("std of ln", "spread"),
)


def estimate_page(
    every: Sequence[EstimateDetails],
    command: str,
    served: "ServingResult | None" = None,
) -> str:
    """Return the HTML page of an estimate and, if given, of the same workload on a
    second GPU. `command`: the command that prints its numbers; `served`: the model as a
    server under load."""
    summary = every[0].result.summary
    blocks = [*_result_blocks(every[0]), *_sections(every, served)]
    return build_page(title_line(summary), blocks, summary, command, modelled(summary))


# --- the result


def _result_blocks(details: EstimateDetails) -> Iterator[Block]:
    """Summary sentence, totals, phases, and cheaper clocks or limits."""
    summary = details.result.summary
    yield _sentence(summary)
    yield from totals(summary)
    yield from memory_lines(summary)
    yield from warning_lines(summary)
    grades = dict.fromkeys((summary["grades"]["time"], summary["grades"]["power"]))
    words = "; ".join(f"{grade}: {_GRADES[grade]}" for grade in grades)
    yield (
        f"grade: {grade_words(summary)} ({words}). Ranges are the 5th to 95th "
        "percentile, from errors of held-out measurements."
    )
    yield phase_table(summary)
    yield host_line(summary)
    yield _advice(details)


def _sentence(summary: Entry) -> str:
    energy = summary["energy_j"]
    unit, most = max(summary["energy_j_by_unit"].items(), key=lambda item: item[1])
    pace = _LIMITS.get(summary["limited_by"], summary["limited_by"])
    return (
        f"{si(energy, 'J')} in {si(summary['time_s'], 's')}; "
        f"{percent(most / energy, 0)} of the energy goes to {unit_words(unit)}. "
        f"{pace} sets the pace."
    )


def _advice(details: EstimateDetails) -> Block:
    """Table of clocks and power limits that take less energy."""
    chosen = details.result.summary
    near = [x for x in details.clocks if x["time_s"] <= _SLOWER * chosen["time_s"]]
    within = f"the least energy within {100 * (_SLOWER - 1):.0f} % of the time"
    clock = "SM clock {sm_clock_set_mhz:.0f} MHz"
    options = {
        f"{clock}, {within}": near,
        f"{clock}, the least energy of all clocks": details.clocks,
        "Power limit {power_limit_w:.0f} W, the least energy": details.limits,
    }
    cheaper: dict[int, Entry] = {}  # once where two options are one point
    for words, points in options.items():
        least = min(points, key=lambda x: x["energy_j"], default=None)
        if least and least["energy_j"] <= (1 - _WORTH) * chosen["energy_j"]:
            cheaper.setdefault(id(least), {**least, "words": words.format(**least)})
    if not cheaper:
        return "No other SM clock or power limit saves more than 0.5 % of the energy."

    def against(key: str) -> Callable[[Entry], float]:
        return lambda point: 100 * (point[key] / chosen[key] - 1)

    columns = (
        ("cheaper setting", "words"),
        ("energy", against("energy_j"), change),
        ("time", against("time_s"), change),
    )
    return Table(columns, cheaper.values(), fold=("cheaper setting",))


# --- the sections


def _sections(
    every: Sequence[EstimateDetails], served: "ServingResult | None"
) -> Iterator[Section]:
    result, kernels = every[0].result, every[0].kernels
    summary, step = result.summary, result.step
    charts = page_charts(every, served)

    def charts_named(*names: str) -> list[Block]:
        return [chart for name, chart in charts.items() if name.startswith(names)]

    energy = charts_named("energy-by-unit", "energy-by-class", "time-by-class")
    yield Section("Where the energy goes", energy, "Energy")
    if step is None:
        yield Section("One pass over time", charts_named("timeline-", "power"), "Time")
    else:
        over = [*charts_named("stages", "power"), *step_blocks(summary)]
        yield Section("The step over time", over, "Time")
    yield Section("Kernels on the roofline", charts_named("roofline"), "Roofline")
    if served is not None:
        lines = [x for x in served.blocks(charts=False) if x != BOARD_ONLY]
        under_load = [*lines, *charts_named("serving-")]
        yield Section("Served under load", under_load, "Serving")
    curves = charts_named("clocks", "energy-by-limit", "time-by-limit")
    yield Section("Clocks and power limits", curves, "Clocks")
    yield _kernels(summary, kernels)
    for other in every[1:]:
        yield _against(summary, other.result.summary)
    yield Section("Data behind the figures", list(_sources(every)), "Sources")


def page_charts(
    every: Sequence[EstimateDetails], served: "ServingResult | None" = None
) -> dict[str, Chart]:
    """Charts of an estimate's page by name; with a second GPU's curves and the serving
    charts if given."""
    details = every[0]
    result, kernels = details.result, details.kernels
    summary, step = result.summary, result.step
    classes = totals_by_class(kernels, summary)
    names = [name for name in classes if name != rest_label(summary)]
    looks = {name: min(i, _COLOURS - 1) for i, name in enumerate(names)}
    launched = [x for x in kernels if step is None or x["op"] != "collective"]
    charts = {
        "roofline": roofline(launched, details.roofs, details.dram_bandwidth, looks)
    }
    if step is None:
        args = (result.listings, kernels, summary, looks, details.power_limit)
        charts |= timelines(*args) | power_charts(summary, result.curves)
    else:
        charts |= step_charts(summary, step.timeline)
        charts |= power_charts(summary, result.curves)
    charts["energy-by-unit"] = _units([x.result.summary for x in every])
    for key, title, unit, i in _BY_CLASS:
        parts = {name: both[i] for name, both in classes.items()}
        charts[key] = parts_chart(title, parts, unit, looks)
    sides = [Side(x.gpu["name"], x.clocks, x.limits, x.result.summary) for x in every]
    under_load = (
        served.charts() if served is not None and served.costs is not None else {}
    )
    charts |= {f"serving-{x}": y for x, y in under_load.items() if not y.joined}
    return charts | curve_charts(sides)


def _units(summaries: Entries) -> Chart:
    """Chart of energy (J) by hardware unit, of one GPU or two."""
    first, *second = (
        {unit_words(k): v for k, v in x["energy_j_by_unit"].items()} for x in summaries
    )
    if not second:
        return parts_chart("By hardware unit", first, "J")
    names = (summaries[0]["gpu"], summaries[1]["gpu"])
    return parts_chart("By hardware unit", first, "J", None, second[0], names)


def _kernels(summary: Entry, kernels: Entries) -> Section:
    """Section with all launched kernels, sorted by falling total time."""
    live, rest = longest(kernels)
    busy = sum(k["count"] * k["time_s"] for k in kernels if k["time_s"])
    columns = [
        ("kernel", kernel_name),
        ("class", "class"),
        *([("phase", "phase")] if len(summary["phases"]) > 1 else []),
        ("launches", "count", "{:g}"),
        ("time", lambda k: k["count"] * k["time_s"], "s"),
        ("share", lambda k: k["count"] * k["time_s"] / busy, percent),
        ("energy", lambda k: k["count"] * k["energy_j"], "J"),
        ("power", lambda k: k["energy_j"] / k["time_s"], "{:.0f} W"),
        ("a launch", "time_s", "s"),
        ("compute", lambda k: k["flop"] / k["time_s"], _rate("FLOP/s")),
        ("DRAM", lambda k: k["dram_bytes"] / k["time_s"], _rate("B/s")),
        ("limited by", limit_words),
    ]
    whose = " of the mean GPU" if is_training_step(summary) else ""
    note = (
        f"{len(live)} kernels{whose}, those that take most time first; press a "
        "heading to sort. Time and energy are of all launches, the share is of the "
        "GPU's time; energy includes idle and leakage power while the kernel runs."
        f"{rest}"
    )
    left = len(columns) - 9
    table = Table(columns, live, left=left, sorted_by="time", fold=["limited by"])
    return Section("Kernels", [table], note=note)


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: si(value, unit) if value else "none"


def _against(summary: Entry, other: Entry) -> Section:
    """Section that compares two summaries, with ratios."""
    note = (
        f"The same workload; {other['gpu']} with its own default clocks and power "
        f"limit ({assumed_line(other)})."
    )
    table = comparison_table({summary["gpu"]: summary, other["gpu"]: other})
    return Section(f"Against {other['gpu']}", [*totals(other), table], note=note)


def _sources(every: Sequence[EstimateDetails]) -> Iterator[Block]:
    """Assumptions, corrections, expected errors, and tables of GPU numbers and
    constants."""
    fitted_on = every[0].fitted_on
    yield assumed_line(every[0].result.summary)
    for other in every[1:]:
        yield from (f"{other.gpu['name']}: {x}" for x in other.result.warnings)
    yield from (_fit(x.gpu, fitted_on) for x in every)
    yield from _errors(every[0].gpu)
    names = ", ".join(fitted_on.get("sources", ()))
    origin = f"Fitted on: {names}." if names else "Nothing was fitted: all are priors."
    for details in every:
        name, values = details.gpu["name"], details.gpu["values"]
        numbers = [{**x, "field": field} for field, x in values.items()]
        yield _folded(f"Numbers of {name}", _NUMBERS, numbers)
        title = f"Constants of the model for {name}"
        yield _folded(title, _CONSTANTS, details.constants, origin)


def _folded(title: str, columns: Sequence, entries: Entries, note: str = "") -> Section:
    folds = [name for name, *shown in columns if len(shown) == 1]
    table = Table(columns, entries, fold=folds)
    return Section(f"{title} ({len(entries)})", [table], note=note, folded=True)


def _fit(gpu: Entry, fitted_on: Entry) -> str:
    levels = gpu["corrections"]["levels"]
    served = ", ".join(levels) or "unavailable"
    text = f"Corrections applied to {gpu['name']}: {served}. "
    names = [x.removeprefix("gpu:") for x in levels if x.startswith("gpu:")]
    of_kinds = {
        key.partition(":")[2]: rows
        for key, rows in fitted_on.get("rows", {}).items()
        if key.partition(":")[0] in (*names, gpu["name"])
    }
    if of_kinds:
        words = (
            f"{kind} {rows['time']} times, {rows['power']} powers"
            for kind, rows in of_kinds.items()
        )
        text += f"Its measured rows in the fit: {', '.join(words)}."
    else:
        text += "The fit has no measured rows of it."
    return text


def _errors(gpu: Entry) -> Iterator[Block]:
    """Table of the errors to expect: those of held-out measurements, by kind of row."""
    expected = gpu["corrections"]["expected"]
    if not expected:
        return
    columns = [
        ("kind of row", "kind"),
        ("grade of time", lambda x: x["grades"]["time"]),
        ("of power", lambda x: x["grades"]["power"]),
        ("errors of", lambda x: ", ".join(x["over"]) or UNKNOWN),
        *((f"{x}, mean", f"{x}_mape_pct", "{:.3g} %") for x in QUANTITIES),
        *((f"{x}, 95 %", f"{x}_interval_pct", "+{:.3g} %") for x in QUANTITIES),
    ]
    title = f"Errors to expect for {gpu['name']}: mean and 95th percentile"
    yield Table(columns, expected, title=title, left=4)
    yield "Errors of held-out measurements, by kind of row."
