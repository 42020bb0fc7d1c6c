"""Measured runs: reading tables of them, comparing them with predictions."""

from .metrics import Errors, errors, grouped, summary_json
from .output import prediction_frame
from .predictions import Predictions
from .table import Columns, MeasurementTable, read_measurements

__all__ = [
    "Columns",
    "Errors",
    "MeasurementTable",
    "Predictions",
    "errors",
    "grouped",
    "prediction_frame",
    "read_measurements",
    "summary_json",
]
