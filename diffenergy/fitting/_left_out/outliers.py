"""`flagged`: measured rows that cannot be true, each with the limit that it breaks."""

import dataclasses

import numpy as np

from ...measurements import MeasurementTable, Predictions
from .checked import READINGS, Flag, rows_of
from .rules import RULES


def flagged(table: MeasurementTable, predicted: Predictions) -> list[Flag]:
    """Rows of `table` that cannot be true, in order, each with its plainest reason.

    `predicted`: predictions of the readings; rows without are held against physical
    limits only.
    """
    rows = rows_of(table, predicted)
    flags: dict[int, Flag] = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for rule in RULES:
            for finding in rule(rows):
                for i in map(int, np.flatnonzero(finding.where)):
                    if i not in flags:
                        flags[i] = rows.flag(finding, i)
    return [flags[i] for i in sorted(flags)]


def without(table: MeasurementTable, flags: list[Flag]) -> MeasurementTable:
    """The table without the readings of the flagged rows."""
    held = np.isin(np.arange(table.num_rows), [flag.index for flag in flags])
    kept = {name: np.where(held, np.nan, getattr(table, name)) for name in READINGS}
    return dataclasses.replace(table, **kept)
