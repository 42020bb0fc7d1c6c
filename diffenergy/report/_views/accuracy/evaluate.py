"""How errors against measured runs read and look: tables, and the picture of predicted
against measured values."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ....measurements import MeasurementTable, Predictions, error_figures
from ..._charts import style
from ..._format import QUANTITIES, UNKNOWN, Entries, Entry
from ..._tables.columns import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

    from ....fitting import EvaluateResult

_LEGEND: Final = (
    "in percent of the measured value; (bias) is above 0 if predicted too high"
)
_QUANTITIES: Final = (
    ("time_s", "time", "s"),
    ("avg_power_w", "power", "W"),
    ("energy_j", "energy", "J"),
)
_MOST_GROUPS: Final = 6
"""Colours of a picture; the groups with fewest rows share grey beyond."""
_MOST_BARS: Final = 150
"""Points whose intervals can still be told apart."""
_WIDEST: Final = 100.0
"""% of error at which the distribution is cut; what lies beyond is in its last bars."""
_COVERED: Final = 99.0
"""% of many rows within the ends of their distribution."""
_BINS: Final = 20
"""Most bars on either side of 0."""
_HEADROOM: Final = 1.25
"""Factor between the outermost points and the edges."""


def line(result: "EvaluateResult") -> str:
    """Rows and mean absolute errors."""
    return errors_line(result.summary)


def errors_line(summary: Entry) -> str:
    """Rows and mean absolute errors of them."""
    found = {word: summary[f"{word}_mape_pct"] for word in QUANTITIES}
    said = (f"{w} {UNKNOWN if x is None else f'{x:.1f} %'}" for w, x in found.items())
    return f"{summary['rows']} rows, mean errors {', '.join(said)}"


def parts(result: "EvaluateResult") -> list[Any]:
    """Errors of all rows, then by group."""
    summary = result.summary
    found = [f"{summary['rows']} rows, {summary['skipped']} skipped", _errors(summary)]
    if summary["groups"]:
        found.append(_by_group(summary["groups"], result.by))
    return [*found, _LEGEND]


def figure(result: "EvaluateResult") -> "Figure":
    """Predicted against measured, and the errors' distribution."""
    return accuracy_figure(result.table, result.predictions)


def _errors(summary: Entry) -> "Table":
    """Error figures of time, power and energy."""

    def of(figure: str) -> Callable[[str], Any]:
        return lambda word: summary[f"{word}_{figure}"]

    columns = (
        ("", str),
        ("rows", of("rows")),
        ("MAPE", of("mape_pct"), "{:.1f}"),
        ("median", of("median_pct"), "{:.1f}"),
        ("bias", of("bias_pct"), "{:+.1f}"),
        ("P90", of("p90_pct"), "{:.1f}"),
    )
    return table(columns, QUANTITIES)


def _by_group(groups: Entries, by: Sequence[str]) -> "Table":
    """Mean absolute error and, in brackets, bias of each group."""
    name = ", ".join(by)
    columns = [
        (name, lambda group: ", ".join(str(group[x]) or UNKNOWN for x in by)),
        ("rows", "rows"),
        *(
            (word, lambda group, word=word: _mape_and_bias(group, word))
            for word in QUANTITIES
            if any(group[f"{word}_rows"] for group in groups)
        ),
    ]
    return table(columns, groups, fold=[name])


def _mape_and_bias(group: Entry, word: str) -> str | None:
    if group[f"{word}_mape_pct"] is None:
        return None
    return f"{group[f'{word}_mape_pct']:.1f} ({group[f'{word}_bias_pct']:+.1f})"


class _Pairs(NamedTuple):
    """Measured and predicted values of a quantity, SI; 5 and 95 % of the predictions
    if known; the colours."""

    read: Float[np.ndarray, " part"]
    made: Float[np.ndarray, " part"]
    interval: Float[np.ndarray, "2 part"] | None
    group: Int[np.ndarray, " part"]


@style.house()
def accuracy_figure(table: MeasurementTable, predictions: Predictions) -> "Figure":
    """A row for each quantity that was measured: predicted against measured with
    colours by op (by GPU if there is one op), beside it the relative errors.

    Raises `ValueError` if nothing was measured and predicted.
    """
    names, group = _groups(table, predictions)
    found = [(_pairs(table, predictions, q[0], group), *q[1:]) for q in _QUANTITIES]
    shown = [panel for panel in found if len(panel[0].read)]
    if not shown:
        raise ValueError(
            "no row was both measured and predicted, so that `--plot` has nothing to "
            "show; see the reasons in `--out rows.csv`."
        )
    figure = style.canvas(0.5 + 3.2 * len(shown))
    panels = figure.subplots(len(shown), 2, squeeze=False)
    for (left, right), (pairs, word, unit) in zip(panels, shown, strict=True):
        _draw_parity(pairs, names, left)
        for axis, what in ((left.xaxis, "measured"), (left.yaxis, "predicted")):
            style.name_axis(axis, f"{what} {word}", unit)
        _draw_errors(pairs, word, right)
    _draw_legend(figure, panels[0, 0])
    return figure


def _draw_legend(figure: "Figure", axes: "Axes") -> None:
    """One legend for all panels; its markers have one size."""
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False
    )
    for handle in legend.get_lines():
        handle.set_markersize(6)


def _pairs(
    table: MeasurementTable,
    predictions: Predictions,
    key: str,
    group: Int[np.ndarray, " row"],
) -> _Pairs:
    """Rows with a measured and a predicted value, and their intervals if known."""
    read, made = getattr(table, key), getattr(predictions, key)
    known = np.isfinite(read) & np.isfinite(made) & (read > 0) & (made > 0)
    known &= np.asarray(predictions.skipped == "", dtype=bool)
    ends = [getattr(predictions, f"{key}_{end}") for end in ("p5", "p95")]
    interval = None if ends[0] is None else np.array(ends)[:, known]
    return _Pairs(read[known], made[known], interval, group[known])


def _groups(
    table: MeasurementTable, predictions: Predictions
) -> tuple[list[str], Int[np.ndarray, " row"]]:
    """Names of the colours, those of most rows first, and the group of every row."""
    live = np.asarray(predictions.skipped == "", dtype=bool)
    pairs = zip(table.op, table.workload, strict=True)
    what = np.array([str(op or name or "model") for op, name in pairs])
    if len(set(what[live])) < 2:
        what = table.gpu.astype(str)
    found, count = np.unique(what[live], return_counts=True)
    order = found[np.argsort(-count, kind="stable")].tolist()
    names = order[:_MOST_GROUPS]
    place = {name: min(i, _MOST_GROUPS) for i, name in enumerate(order)}
    if len(order) > _MOST_GROUPS:
        names.append(f"{len(order) - _MOST_GROUPS} others")
    return names, np.array([place.get(name, 0) for name in what.tolist()], int)


def _draw_parity(pairs: _Pairs, names: Sequence[str], axes: "Axes") -> None:
    """Points on logarithmic axes of one scale, the line of equality, +-25 %."""
    bars = pairs.interval if len(pairs.read) <= _MOST_BARS else None
    every = np.concatenate(
        [pairs.read, pairs.made, [] if bars is None else bars.ravel()]
    )
    ends = np.array([np.nanmin(every) / _HEADROOM, np.nanmax(every) * _HEADROOM])
    axes.plot(ends, ends, color=style.BLACK, linewidth=1.0, label="equal")
    dotted = {"linestyle": ":", "color": style.BLACK, "linewidth": 1.0}
    for factor, label in ((0.8, "0.8 and 1.25 times"), (1.25, "_")):
        axes.plot(ends, factor * ends, **dotted, label=label)
    size = float(np.clip(60 / np.sqrt(len(pairs.read)), 1.5, 5.0))
    colours = [*style.PALETTE[:_MOST_GROUPS], style.GREY]
    for number, name in enumerate(names):
        mine, colour = pairs.group == number, colours[number]
        x, y = pairs.read[mine], pairs.made[mine]
        if bars is not None:
            label = "line: 5 to 95 %" if number == 0 else "_"
            low, high = bars[:, mine]
            axes.vlines(x, low, high, color=colour, alpha=0.5, lw=1.2, label=label)
        axes.plot(
            x, y, style.MARKERS[number], color=colour, markersize=size, alpha=0.7,
            mew=0, label=name, zorder=2.5,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        style.log_ticks(axis)


def _draw_errors(pairs: _Pairs, word: str, axes: "Axes") -> None:
    """Histogram of signed errors; rows beyond the ends are in the outer bars."""
    found = error_figures(pairs.read, pairs.made)
    signed = 100 * (pairs.made / pairs.read - 1)
    size = np.abs(signed)
    widest = float(np.percentile(size, _COVERED) if found.n >= 100 else size.max())
    end = min(_WIDEST, max(5.0, 5.0 * math.ceil(widest / 5.0)))
    bins = 2 * min(_BINS, max(5, round(math.sqrt(found.n))))
    edges = np.linspace(-end, end, bins + 1).tolist()
    axes.hist(np.clip(signed, -end, end), bins=edges, color=style.SKY)
    axes.axvline(0, color=style.BLACK, linewidth=1.0)
    axes.set_title(f"MAPE {found.mape:.1f} %, median {found.median:.1f} %")
    beyond = " (ends: and beyond)" if (size > end).any() else ""
    axes.set_xlabel(f"error of {word}, %{beyond}")
    axes.set_ylabel(f"rows of {found.n:,}")
    axes.set_xlim(-end, end)
    style.few_ticks(axes.yaxis, whole=True)
