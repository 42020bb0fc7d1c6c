"""`Predictions`: what the model says about each row of a measurement table."""

import dataclasses
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from ._table import MeasurementTable

_NUMBERS: Final = ("time_s", "energy_j", "avg_power_w")


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
    """Every row in input order: its cells as read, then what was found about it.

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
    added |= {name: getattr(table, name) for name in _NUMBERS}
    for name in _NUMBERS:
        added[f"{name}_pred"] = getattr(predictions, name)
        for bound in ("p5", "p95"):
            interval = getattr(predictions, f"{name}_{bound}")
            added[f"{name}_pred_{bound}"] = blank if interval is None else interval
    added["grade"] = predictions.grade
    added["skipped"] = predictions.skipped
    kept = table.frame.drop(columns=[c for c in added if c in table.frame])
    return pd.concat([kept, pd.DataFrame(added)], axis=1)
