"""`Series`: what a log says of one quantity over time, and how times are read."""

from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from ._cells import Sheet, bad_cell

_FROM_MS: Final = 1e11
"""Above this a number is a time in ms since 1970 and not in s: s reach it in 5138."""


class Series(NamedTuple):
    """Readings of one quantity of one GPU or server over time.

    `quantity`: what is read; `key` distinguishes GPUs or servers of a log and is never
    shown; `name`: of the GPU, as the log spells it; `times`: s since 1970; `values`: in
    SI, W of "power", J of "energy". With `ends` (s) the values are totals from `times`
    to them, else readings at `times`. `local`: whether times are those of a clock whose
    zone the log does not name.
    """

    quantity: str
    key: str
    name: str
    times: np.ndarray
    values: np.ndarray
    ends: np.ndarray | None = None
    local: bool = False


def read_times(sheet: Sheet, column: str) -> tuple[np.ndarray, bool]:
    """Times of a `column` of a `sheet` in s since 1970, and whether their clock has no
    named zone; numbers are s or ms since 1970.

    Raises `ValueError` at the first cell that is no time.
    """
    cells = pd.Series([str(x).strip() for x in sheet.columns[column]])
    numbers = np.asarray(pd.to_numeric(cells, errors="coerce"), float)
    if np.isfinite(numbers).all():
        return np.where(numbers > _FROM_MS, numbers / 1e3, numbers), False
    zone = cells.str.contains(r"(?:Z|[+-]\d\d:?\d\d)$") & cells.str.contains(":")
    stamps = cells.str.replace("/", "-").str.replace("T", " ")
    times = pd.to_datetime(stamps, format="ISO8601", errors="coerce", utc=True)
    if times.isna().any():
        row = int(times.isna().to_numpy().argmax())
        raise bad_cell(sheet, row, column, "a time such as 2024/05/01 10:00:00.5")
    start = pd.Timestamp(0, tz="UTC")
    return (times - start).dt.total_seconds().to_numpy(), not zone.all()
