"""How a sweep reads and looks: a row for each combination."""

from typing import TYPE_CHECKING, Any

from .._format import Entry, plain, si
from .._tables.columns import table
from .estimate import BOARD_ONLY, assumed_line, title_line, warning_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from ...estimator import SweepResult

HEADINGS = {
    "gpu": ("GPU", "{}"),
    "dtype": ("dtype", "{}"),
    "batch": ("batch", "{}"),
    "input_len": ("in", "{}"),
    "output_len": ("out", "{}"),
    "sm_clock_set_mhz": ("SM MHz", "{:.6g}"),
    "mem_clock_mhz": ("mem MHz", "{:.6g}"),
    "power_limit_w": ("limit W", "{:.6g}"),
}
"""Columns of what can be varied."""
_TEXTS = ("gpu", "dtype")
_BEST = {
    "best_energy_per_token": "least energy per token",
    "best_energy": "least energy",
    "best_time": "least time",
}


def line(result: "SweepResult") -> str:
    """What was crossed, and how often."""
    summary = result.summary
    words = [HEADINGS[axis][0] for axis in summary["axes"]]
    return f"{summary['model']}: {len(summary['points'])} of {' x '.join(words)}"


def parts(result: "SweepResult") -> list[Any]:
    """Assumptions, the table, the best of it, and what has no answer."""
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
    said = warning_lines(summary)
    return [*head, _table(summary), *best, *failed, *said, BOARD_ONLY]


def combination(summary: Entry, point: Entry) -> str:
    """The values that a point stands for, in words."""
    return ", ".join(
        str(point[axis])
        if axis in _TEXTS
        else f"{HEADINGS[axis][0]} {plain(point[axis])}"
        for axis in ordered(summary)
        if axis in point
    )


def sweep_title(summary: Entry) -> str:
    """What all points share."""
    names = ("phase", "batch", "input_len", "output_len", "dtype")
    return title_line({"gpu": "several GPUs", **dict.fromkeys(names), **summary})


def figure(result: "SweepResult") -> "Figure":
    """Energy over time, a line for each value of what is no number."""
    from .._charts.plot_sweep import crossed_figure

    return crossed_figure(result.summary)


def ordered(summary: Entry) -> list[str]:
    """What was varied, words before numbers, as columns stand."""
    return [axis for axis in HEADINGS if axis in summary["axes"]]


def _table(summary: Entry) -> "Table":
    points = summary["points"]
    known = {key for point in points for key, x in point.items() if x is not None}
    figures = (
        ("TTFT", "ttft_s", "s"),
        ("TPOT", "tpot_s", "s"),
        ("time", "time_s", "s"),
        ("power", "avg_power_w", "{:.0f} W"),
        ("energy", "energy_j", "J"),
        ("J/token", "energy_j_per_token", lambda x: si(x, "J")),
    )
    hidden = {"time_s", "energy_j"} if "tpot_s" in known else set()
    shown = [(word, key, how) for word, key, how in figures if key in known - hidden]
    axes = [(HEADINGS[x][0], x, HEADINGS[x][1]) for x in ordered(summary)]
    columns = [
        (word, lambda point, key=key: point.get(key), how)
        for word, key, how in (*axes, *shown, ("grade", "grade", "{}"))
    ]
    return table(columns, points, left=sum(x in _TEXTS for x in summary["axes"]))
