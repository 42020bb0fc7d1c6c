"""View of a sweep: a row for each combination."""

from typing import TYPE_CHECKING

from .._blocks import Block, Table
from .._format import Entry, plain, si
from .._tables.lines import (
    BOARD_ONLY,
    MODELLED,
    assumed_line,
    title_line,
    warning_lines,
)

if TYPE_CHECKING:
    from ...charts import Chart
    from ...estimator import SweepResult

HEADINGS = {
    "gpu": ("GPU", "{}"),
    "engine": ("engine", "{}"),
    "dtype": ("dtype", "{}"),
    "tp": ("tp", "{}"),
    "ep": ("ep", "{}"),
    "num_gpus": ("GPUs", "{}"),
    "batch": ("batch", "{}"),
    "input_len": ("in", "{}"),
    "output_len": ("out", "{}"),
    "sm_clock_set_mhz": ("SM MHz", "{:.6g}"),
    "mem_clock_mhz": ("mem MHz", "{:.6g}"),
    "power_limit_w": ("limit W", "{:.6g}"),
}
"""Heading and format of each axis that can be varied."""
_TEXTS = ("gpu", "engine", "dtype")
_BEST = {
    "best_energy_per_token": "least energy per token",
    "best_energy": "least energy",
    "best_time": "least time",
}

SCOPE = MODELLED


def line(result: "SweepResult") -> str:
    """Return a line with the number of points and the axes."""
    summary = result.summary
    words = [HEADINGS[axis][0] for axis in summary["axes"]]
    return f"{summary['model']}: {len(summary['points'])} of {' x '.join(words)}"


def blocks(result: "SweepResult") -> list[Block]:
    """Return assumptions, the table, the best points, and failed combinations."""
    summary = result.summary
    points = summary["points"]
    best = [
        f"{words}: {combination(summary, points[summary[key]])}"
        for key, words in _BEST.items()
        if summary[key] is not None
    ]
    failed = [
        f"{combination(summary, point)}: {point['error']}"
        for point in points
        if "error" in point
    ]
    head = [assumed_line(summary), sweep_title(summary)]
    warnings = warning_lines(summary)
    return [*head, _table(summary), *best, *failed, *warnings, BOARD_ONLY]


def combination(summary: Entry, point: Entry) -> str:
    """Return the axis values of a point as text."""
    return ", ".join(
        str(point[axis])
        if axis in _TEXTS
        else f"{HEADINGS[axis][0]} {plain(point[axis])}"
        for axis in ordered_axes(summary)
        if axis in point
    )


def sweep_title(summary: Entry) -> str:
    """Return a title line with what all points share."""
    names = ("phase", "batch", "input_len", "output_len", "dtype")
    return title_line({"gpu": "several GPUs", **dict.fromkeys(names), **summary})


def ordered_axes(summary: Entry) -> list[str]:
    """Return the varied axes, words before numbers, in column order."""
    return [axis for axis in HEADINGS if axis in summary["axes"]]


def _table(summary: Entry) -> Table:
    points = summary["points"]
    present = {key for point in points for key, x in point.items() if x is not None}
    figures = (
        ("TTFT", "ttft_s", "s"),
        ("TPOT", "tpot_s", "s"),
        ("time", "time_s", "s"),
        ("power", "avg_power_w", "{:.0f} W"),
        ("energy", "energy_j", "J"),
        ("J/token", "energy_j_per_token", lambda x: si(x, "J")),
    )
    hidden = {"time_s", "energy_j"} if "tpot_s" in present else set()
    shown = [(word, key, how) for word, key, how in figures if key in present - hidden]
    axes = [(HEADINGS[x][0], x, HEADINGS[x][1]) for x in ordered_axes(summary)]
    columns = [
        (word, lambda point, key=key: point.get(key), how)
        for word, key, how in (*axes, *shown, ("grade", "grade", "{}"))
    ]
    texts = sum(x in _TEXTS for x in summary["axes"])
    return Table(columns, points, left=texts, spare=("grade", "TTFT", "power"))


def charts(result: "SweepResult") -> "dict[str, Chart]":
    """Return a chart of energy over time, a line for each combination of the other
    axes."""
    from .._charts.plans import crossed_chart

    summary = result.summary
    points = [point for point in summary["points"] if "error" not in point]
    across, lines = crossed_lines(summary, points)
    word = HEADINGS[across][0] if across else ""
    chart = crossed_chart(points, across, word, lines, sweep_title(summary))
    return {"sweep": chart}


def crossed_lines(
    summary: Entry, points: list[Entry]
) -> tuple[str | None, dict[str, list[Entry]]]:
    """The numeric axis with most values (None if all are words), and the points of each
    combination of the other axes in rising order of it."""
    axes = ordered_axes(summary)
    numbers = [axis for axis in axes if axis not in _TEXTS]
    across = max(numbers, key=lambda a: len({p[a] for p in points}), default=None)
    lines: dict[str, list[Entry]] = {}
    if across is not None:
        points = sorted(points, key=lambda point: point[across])
    for point in points:
        rest = {**summary, "axes": [axis for axis in axes if axis != across]}
        lines.setdefault(combination(rest, point), []).append(point)
    return across, lines
