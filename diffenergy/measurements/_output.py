"""Measured and predicted numbers of every row: what `evaluate --out` writes."""

from typing import Final

import numpy as np
import pandas as pd

from ._predictions import Predictions
from ._table import MeasurementTable

_NUMBERS: Final = ("time_s", "energy_j", "avg_power_w")


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
