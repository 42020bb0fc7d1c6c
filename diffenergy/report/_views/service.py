"""View of a running service: its windows, measured against predicted."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from .._blocks import Block, Table
from .._format import UNKNOWN, Entry, si
from .._tables.lines import BOARD_ONLY, WALL, assumed_line

if TYPE_CHECKING:
    from ...charts import Chart
    from ...service import ServiceResult

_MOST_ROWS: Final = 24
_MILLION = "energy_j_per_million_output_tokens"
_FIGURES: Final = (
    ("power", "avg_power_w", "W"),
    ("energy per million tokens", _MILLION, "J"),
    ("TPOT", "tpot_s", "s"),
    ("TTFT", "ttft_s", "s"),
)
_WALL: Final = ("wall energy per million tokens", f"wall_{_MILLION}", "J")


def line(result: "ServiceResult") -> str:
    """Return a line with the service, its energy and the windows outside."""
    s = result.summary
    gpus = f"{s['num_gpus']} x {s['gpu']}" if s["num_gpus"] > 1 else s["gpu"]
    return (
        f"{s['model']} on {gpus}: {si(s[_MILLION], 'J')} per million output tokens; "
        f"{len(s['outside'])} of {s['compared']} windows outside the interval"
    )


def blocks(result: "ServiceResult") -> Iterator[Block]:
    """Yield states, errors, and windows with what was measured and predicted."""
    s = result.summary
    yield assumed_line(s)
    yield line(result)
    states = (
        ("state", lambda x: x[0]), ("windows", lambda x: x[1]["windows"]),
        ("time", lambda x: x[1]["duration_s"], "s"),
        ("energy", lambda x: x[1]["energy_j"], "J"),
    )  # fmt: skip
    yield Table(states, list(s["states"].items()))
    yield Table(
        (
            ("predicted against measured", lambda x: x[0]),
            ("windows", lambda x: s["errors"][x[1]]["windows"]),
            ("bias", lambda x: s["errors"][x[1]]["bias_pct"], "{:+.1f} %"),
            ("mean error", lambda x: s["errors"][x[1]]["mape_pct"], "{:.1f} %"),
        ),
        _FIGURES,
    )
    wall = any(x["predicted"] and x["predicted"][_WALL[1]] for x in s["windows"])
    figures = (*_FIGURES, _WALL) if wall else _FIGURES
    yield Table(
        (
            ("from (UTC)", _name),
            ("state", "state"),
            ("running", lambda x: x["running_requests"], "{:.3g}"),
            *((name, _both(key, unit)) for name, key, unit in figures),
        ),
        s["windows"],
        left=2,
        title="measured, and predicted over measured (! outside the interval)",
        most=_MOST_ROWS,
        spare=("running", _WALL[0], "state"),
    )
    yield f"grade: {s['grade'] or UNKNOWN}"
    yield WALL if s["node"] else BOARD_ONLY


def _name(entry: Entry) -> str:
    start = entry["start"]
    return UNKNOWN if start is None else start[5:16].replace("T", " ")


def _both(key: str, unit: str) -> Callable[[Entry], Any]:
    """Measured value of a window and the error of its prediction, marked where it lies
    outside; of what is not measured the prediction."""

    def text(entry: Entry) -> str | None:
        measured = entry["measured"][key]
        predicted = (entry["predicted"] or {}).get(key)
        if measured is None:
            return None if predicted is None else f"({si(predicted, unit)})"
        if predicted is None:
            return si(measured, unit)
        mark = "!" * (key in entry["outside"])
        return f"{si(measured, unit)} {100 * (predicted / measured - 1):+.0f}%{mark}"

    return text


def charts(result: "ServiceResult") -> "dict[str, Chart]":
    """Return the chart of power (W), energy per million tokens (J) and latencies (s)
    over time, measured and predicted with their intervals."""
    from ...charts import Axis, Band, Chart, Line, Panel, Points

    s = result.summary
    windows = [x for x in result.windows if x.start is not None and x.end is not None]
    entries = [x for x in s["windows"] if x["start"] is not None and x["end"]]
    if not windows:  # results of benchmarks without time: one after the other
        entries = s["windows"]
        spans = [(float(n), n + 1.0) for n in range(len(entries))]
        across = Axis("window")
    else:
        first = windows[0].start or 0.0
        pairs = (((x.start or 0.0) - first, (x.end or 0.0) - first) for x in windows)
        spans = [(a / 3600, b / 3600) for a, b in pairs]
        across = Axis(f"time since {s['start']}", "h")
    panels = []
    for name, key, unit in _FIGURES:
        measured = [x["measured"][key] for x in entries]
        if not any(measured):
            continue
        predicted = [(x["predicted"] or {}).get(key) for x in entries]
        marks: list[Any] = []
        for (a, b), x in zip(spans, entries, strict=True):
            if x["predicted"] and (ends := x["predicted"][f"{key}_p5_p95"]):
                low, high = ends
                words = "" if marks else "5 to 95 %"
                marks.append(Band([a, b], [low, low], [high, high], words, 0))
        for values, words, colour in ((predicted, "predicted", 0),
                                      (measured, "measured", 1)):  # fmt: skip
            x, y = list[float](), list[float]()
            for (a, b), value in zip(spans, values, strict=True):
                at = float("nan") if value is None else value
                x, y = [*x, a, b, b], [*y, at, at, float("nan")]
            marks.append(Line(x, y, words, colour))
        wrong = [
            ((a + b) / 2, x["measured"][key])
            for (a, b), x in zip(spans, entries, strict=True)
            if key in x["outside"]
        ]
        if wrong:
            x, y = zip(*wrong, strict=True)
            marks.append(Points(x, y, "outside", "ink", 1))
        panels.append(Panel(across, Axis(name, unit, zero=True), marks, height=160.0))
    if not panels:
        raise ValueError("no window has a measured figure, so that nothing is drawn.")
    return {"service": Chart("A service over time", panels)}
