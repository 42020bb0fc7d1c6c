"""Predictions for the rows of a measurement table and their errors, over all rows and
by group."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from ._table import MeasurementTable

QUANTITIES: Final = {"time": "time_s", "power": "avg_power_w", "energy": "energy_j"}
"""Word in the summary -> array of the table and of the predictions."""

_GROUP_ARRAYS: Final = ("gpu", "op", "workload", "campaign", "kind", "file")
"""Arrays of the table that serve as groups where the files have no such column."""

READINGS: Final = ("time_s", "energy_j", "avg_power_w")
"""Measured and predicted quantities, in the order of tables."""


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted readings, one a row of a `MeasurementTable`, NaN on skipped rows.

    `_p5` and `_p95` bound the central 90 % of a prediction; None while there is no
    interval. `grade` is `calibrated`, `forecast`, `datasheet` or "". `skipped` is the
    reason why a row was not predicted, "" if it was.
    """

    time_s: Float[np.ndarray, " row"]
    energy_j: Float[np.ndarray, " row"]
    avg_power_w: Float[np.ndarray, " row"]
    grade: Shaped[np.ndarray, " row"]
    skipped: Shaped[np.ndarray, " row"]
    time_s_p5: Float[np.ndarray, " row"] | None = None
    time_s_p95: Float[np.ndarray, " row"] | None = None
    energy_j_p5: Float[np.ndarray, " row"] | None = None
    energy_j_p95: Float[np.ndarray, " row"] | None = None
    avg_power_w_p5: Float[np.ndarray, " row"] | None = None
    avg_power_w_p95: Float[np.ndarray, " row"] | None = None


def prediction_frame(table: MeasurementTable, predictions: Predictions) -> pd.DataFrame:
    """Every row of a `table` in input order: its cells as read, then `predictions`.

    Added are `file` (if there are several), `row` (0-based data row of its file), the
    measured `time_s`, `energy_j`, `avg_power_w` in SI, each `_pred` with `_pred_p5` and
    `_pred_p95`, `grade` and `skipped`; a column of the input by such a name gives way.
    What is not known is NaN, an empty cell in CSV.
    """
    blank = np.full(table.num_rows, np.nan)
    added: dict[str, np.ndarray] = {}
    if len(set(table.file)) > 1:
        added["file"] = table.file
    added["row"] = table.row
    added |= {name: getattr(table, name) for name in READINGS}
    for name in READINGS:
        added[f"{name}_pred"] = getattr(predictions, name)
        for bound in ("p5", "p95"):
            interval = getattr(predictions, f"{name}_{bound}")
            added[f"{name}_pred_{bound}"] = blank if interval is None else interval
    added["grade"] = predictions.grade
    added["skipped"] = predictions.skipped
    cells = table.frame.drop(columns=[c for c in added if c in table.frame])
    return pd.concat([cells, pd.DataFrame(added)], axis=1)


@dataclasses.dataclass(frozen=True)
class Errors:
    """Relative errors (predicted - measured) / measured, in percent.

    Over the `n` rows that have both numbers; None where there is no such row.
    """

    n: int
    mape: float | None = None
    median: float | None = None
    """Median of the absolute errors."""
    bias: float | None = None
    """Mean of the signed errors."""
    p90: float | None = None
    """90th percentile of the absolute errors, linear between rows."""

    def figures(self, word: str) -> dict[str, Any]:
        """The errors by the keys of JSON; `word`: the quantity."""
        return {
            f"{word}_rows": self.n,
            f"{word}_mape_pct": self.mape,
            f"{word}_median_pct": self.median,
            f"{word}_bias_pct": self.bias,
            f"{word}_p90_pct": self.p90,
        }


def error_figures(
    measured: Float[np.ndarray, " row"], predicted: Float[np.ndarray, " row"]
) -> Errors:
    """Error figures of one quantity, in %; rows with NaN on either side are left out.

    `measured` and `predicted` are in the same unit; the error is that of `predicted`
    as a share of `measured`.

    >>> error_figures(np.array([1.0, 2.0]), np.array([1.5, 1.0])).mape
    50.0
    """
    both = np.isfinite(measured) & np.isfinite(predicted)
    if not both.any():
        return Errors(0)
    signed = 100 * (predicted[both] / measured[both] - 1)
    size = np.abs(signed)
    return Errors(
        n=int(both.sum()),
        mape=float(size.mean()),
        median=float(np.median(size)),
        bias=float(signed.mean()),
        p90=float(np.percentile(size, 90)),
    )


def errors_by_group(
    table: MeasurementTable, predictions: Predictions, by: Sequence[str]
) -> list[dict[str, Any]]:
    """One dict a group of rows of `table` with equal cells in the columns `by`, in
    input order, with the errors of `predictions` (`de.fitting.predict`).

    Keys: the columns of `by`, `rows` and `skipped` (of `rows`), then for time, power
    and energy `_rows` (those compared), `_mape_pct`, `_median_pct`, `_bias_pct`,
    `_p90_pct`, None where nothing was measured.

    Raises `ValueError` for a column that is not in the files.
    """
    if not by:
        return []
    keys = pd.DataFrame({column: group_cells(table, column) for column in by})
    groups = keys.groupby(list(keys), sort=False).indices.values()
    return [
        keys.iloc[rows[0]].to_dict() | _figures(table, predictions, rows)
        for rows in sorted(groups, key=lambda rows: rows[0])
    ]


def summary_json(
    table: MeasurementTable, predictions: Predictions, by: Sequence[str] = ()
) -> dict[str, Any]:
    """JSON of `evaluate`: errors of the `predictions` of a `table`, over all
    rows and by group.

    `rows` counts every row that was read, `skipped` those of them that the model could
    not predict; the errors are over the others.
    """
    whole = _figures(table, predictions, np.arange(table.num_rows))
    return whole | {"groups": errors_by_group(table, predictions, by)}


def group_cells(table: MeasurementTable, column: str) -> np.ndarray:
    """Cells of the `column` of a `table` by which its rows are grouped.

    Raises `ValueError` for a column that is not there."""
    if column in table.frame:
        return table.frame[column].to_numpy(object)
    if column in _GROUP_ARRAYS:
        return getattr(table, column)
    names = ", ".join(f"`{name}`" for name in (*table.frame, *_GROUP_ARRAYS))
    raise ValueError(f"`by` is '{column}'; allowed are the columns {names}.")


def _figures(
    table: MeasurementTable, predictions: Predictions, rows: Int[np.ndarray, " part"]
) -> dict[str, Any]:
    live = rows[predictions.skipped[rows] == ""]
    figures: dict[str, Any] = {"rows": len(rows), "skipped": len(rows) - len(live)}
    for word, name in QUANTITIES.items():
        errors = error_figures(
            getattr(table, name)[live], getattr(predictions, name)[live]
        )
        figures |= errors.figures(word)
    return figures
