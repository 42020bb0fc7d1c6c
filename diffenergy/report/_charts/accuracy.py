"""Predicted against measured values, and the distribution of their errors."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...charts import (
    Axis,
    Boxes,
    Chart,
    Line,
    Mark,
    Panel,
    Points,
    Reading,
    Rule,
)
from ...measurements import MeasurementTable, Predictions, error_figures
from .._page.markup import si

_QUANTITIES: Final = (
    ("time_s", "time", "s"),
    ("avg_power_w", "power", "W"),
    ("energy_j", "energy", "J"),
)
_MOST_GROUPS: Final = 6
"""Maximum number of groups with their own colour; the smallest others share grey."""
_MOST_BARS: Final = 150
"""Maximum number of points drawn with their intervals."""
_MOST_POINTS: Final = 2000
"""Maximum number of points with a tooltip; of more every second, third ..."""
_WIDEST: Final = 100.0
"""Error (%) at which the histogram is cut; its outer bars include all beyond."""
_COVERED: Final = 99.0
"""Percentage of the errors that the histogram's range covers, from 100 rows on."""
_BINS: Final = 20
"""Maximum number of bars on either side of 0."""
_HEADROOM: Final = 1.25
"""Factor between the outermost points and the axes' ends."""


class _Pairs(NamedTuple):
    """Measured and predicted values of a quantity (SI units), the predictions' 5th and
    95th percentiles if known, and colour groups."""

    read: Float[np.ndarray, " part"]
    predicted: Float[np.ndarray, " part"]
    interval: Float[np.ndarray, "2 part"] | None
    group: Int[np.ndarray, " part"]


def accuracy_charts(
    table: MeasurementTable, predictions: Predictions
) -> dict[str, Chart]:
    """Return a chart with a row for each measured quantity: predicted against measured,
    coloured by op (by GPU if there is one op), and a histogram of the relative errors.

    Raises `ValueError` if nothing was measured and predicted.
    """
    names, group = _groups(table, predictions)
    panels = []
    for key, word, unit in _QUANTITIES:
        pairs = _pairs(table, predictions, key, group)
        if len(pairs.read):
            panels += [_parity(pairs, names, word, unit), _errors(pairs, word)]
    if not panels:
        raise ValueError(
            "no row was both measured and predicted, so that `--plot` has nothing to "
            "show; see the reasons in `--out rows.csv`."
        )
    return {"accuracy": Chart("Predicted against measured", panels, columns=2)}


def _pairs(
    table: MeasurementTable,
    predictions: Predictions,
    key: str,
    group: Int[np.ndarray, " row"],
) -> _Pairs:
    """Rows with a measured and a predicted value, and their intervals if known."""
    read, predicted = getattr(table, key), getattr(predictions, key)
    live = np.isfinite(read) & np.isfinite(predicted) & (read > 0) & (predicted > 0)
    live &= np.asarray(predictions.skipped == "", dtype=bool)
    ends = [getattr(predictions, f"{key}_{end}") for end in ("p5", "p95")]
    interval = None if ends[0] is None else np.array(ends)[:, live]
    return _Pairs(read[live], predicted[live], interval, group[live])


def _groups(
    table: MeasurementTable, predictions: Predictions
) -> tuple[list[str], Int[np.ndarray, " row"]]:
    """Names of the colour groups, largest first, and the group of every row."""
    live = np.asarray(predictions.skipped == "", dtype=bool)
    pairs = zip(table.op, table.workload, strict=True)
    what = np.array([str(op or name or "model") for op, name in pairs])
    if len(set(what[live])) < 2:
        what = table.gpu.astype(str)
    labels, count = np.unique(what[live], return_counts=True)
    order = labels[np.argsort(-count, kind="stable")].tolist()
    names = order[:_MOST_GROUPS]
    place = {name: min(i, _MOST_GROUPS) for i, name in enumerate(order)}
    if len(order) > _MOST_GROUPS:
        names.append(f"{len(order) - _MOST_GROUPS} others")
    return names, np.array([place.get(name, 0) for name in what.tolist()], int)


def _parity(pairs: _Pairs, names: Sequence[str], word: str, unit: str) -> Panel:
    """Scatter panel on equal logarithmic axes, with lines of equality and of factors
    0.8 and 1.25."""
    spans = pairs.interval if len(pairs.read) <= _MOST_BARS else None
    every = np.concatenate(
        [pairs.read, pairs.predicted, [] if spans is None else spans.ravel()]
    )
    low, high = float(np.nanmin(every)) / _HEADROOM, float(np.nanmax(every)) * _HEADROOM
    marks: list[Mark] = [Line((low, high), (low, high), "equal", "ink", 1.2)]
    for factor, name in ((0.8, "0.8 and 1.25 times"), (1.25, "")):
        x = (max(low, low / factor), min(high, high / factor))
        ends = [factor * a for a in x]
        marks.append(Line(x, ends, name, "soft", 1.2, dashed=True))
    size = float(np.clip(60 / np.sqrt(len(pairs.read)), 1.5, 4.0))
    for number, name in enumerate(names):
        mine, colour = pairs.group == number, number if number < _MOST_GROUPS else 7
        x, y = pairs.read[mine].tolist(), pairs.predicted[mine].tolist()
        if spans is not None:
            # each interval is a line of its own, apart from the next one by NaN
            across = [a for value in x for a in (value, value, math.nan)]
            ends = zip(*spans[:, mine].tolist(), strict=True)
            up = [a for pair in ends for a in (*pair, math.nan)]
            words = "line: 5 to 95 %" if number == 0 else ""
            marks.append(Line(across, up, words, colour, 1.2))
        marks.append(Points(x, y, name, colour, number, size))
    every_nth = math.ceil(len(pairs.read) / _MOST_POINTS)
    readings = [
        Reading(
            a, b, f"{names[g]}: measured {si(a, unit)}, predicted {si(b, unit)} "
            f"({100 * (b / a - 1):+.1f} %)",
        )
        for a, b, g in zip(
            pairs.read.tolist()[::every_nth], pairs.predicted.tolist()[::every_nth],
            pairs.group.tolist()[::every_nth], strict=True,
        )
    ]  # fmt: skip
    x, y = (
        Axis(f"{what} {word}", unit, log=True, low=low, high=high)
        for what in ("measured", "predicted")
    )
    return Panel(x, y, marks, readings, word.capitalize(), height=240.0)


def _errors(pairs: _Pairs, word: str) -> Panel:
    """Histogram panel of signed errors (%)."""
    errors = error_figures(pairs.read, pairs.predicted)
    signed = 100 * (pairs.predicted / pairs.read - 1)
    size = np.abs(signed)
    widest = float(np.percentile(size, _COVERED) if errors.n >= 100 else size.max())
    end = min(_WIDEST, max(5.0, 5.0 * math.ceil(widest / 5.0)))
    bins = 2 * min(_BINS, max(5, round(math.sqrt(errors.n))))
    counts, edges = np.histogram(np.clip(signed, -end, end), bins, (-end, end))
    left, right = edges[:-1].tolist(), edges[1:].tolist()
    boxes = Boxes(left, right, [0.0] * bins, counts.tolist(), "", 5, edged=True)
    readings = [
        Reading((a + b) / 2, n, f"error of {word} {a:+.3g} to {b:+.3g} %: {n} rows")
        for a, b, n in zip(left, right, counts.tolist(), strict=True)
    ]
    beyond = " (ends: and beyond)" if (size > end).any() else ""
    x = Axis(f"error of {word}{beyond}", "%", low=-end, high=end)
    y = Axis(f"rows of {errors.n:,}", zero=True, whole=True)
    title = f"MAPE {errors.mape:.1f} %, median {errors.median:.1f} %"
    zero = Rule(0.0, axis="x", dashed=False)
    return Panel(x, y, [boxes, zero], readings, title, height=240.0)
