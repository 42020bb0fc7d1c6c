"""Last step of every importer: checks that hold for all tables, order of columns."""

from typing import Final

import numpy as np
import pandas as pd

from .base import drop, note, notes_of

FIRST: Final = ("gpu", "op", "workload", "model")
TIMES: Final = ("time_us", "time_ms_per_iter", "time_s")

_ZERO_IS_MISSING: Final = (
    "avg_power_w", "avg_power_ref_w", "energy_j", "energy_j_per_iter", "power_limit_w",
    "sm_clock_mhz", "sm_clock_mhz_set", "sm_clock_mhz_avg", "mem_clock_mhz",
    "temperature_c",
)  # fmt: skip
"""No meter was running: none of these is ever 0 on a GPU that works."""

_PLAUSIBLE: Final = {
    "avg_power_w": (2.0, 3000.0),
    "power_limit_w": (10.0, 3000.0),
    "sm_clock_mhz": (50.0, 5000.0),
    "sm_clock_mhz_set": (50.0, 5000.0),
    "sm_clock_mhz_avg": (50.0, 5000.0),
    "mem_clock_mhz": (50.0, 40000.0),
    "temperature_c": (-40.0, 130.0),
    "time_us": (0.2, 1e9),
    "time_ms_per_iter": (1e-3, 1e8),
    "time_s": (1e-6, 1e8),
}
"""Range that one GPU can show, in the column's unit. The power of idle boards is above
2 W, a launch alone takes longer than 0.2 us."""


def finish(table: pd.DataFrame) -> pd.DataFrame:
    """`table` as it is written: checked, rows once, GPU and op first.

    Zero readings become empty. Rows that cannot be true are left out with a note.
    Raises `ValueError` if the values of a column are in another unit than its name
    says, and if no row is left.
    """
    table = _zeros_as_missing(table)
    for column in [c for c in _PLAUSIBLE if c in table]:
        table = _plausible(table, column)
    time = next((c for c in TIMES if c in table), None)
    if time:
        timeless = table["op"] == "activity" if "op" in table else False
        table = drop(table, table[time].isna() & ~timeless, f"no `{time}`")
    table = drop(table, table.duplicated(), "the same row is there before")
    if not len(table):
        said = " ".join(notes_of(table)) or "the file has no rows."
        raise ValueError(f"{table.attrs.get('file', 'table')}: no row is left: {said}")
    kept = table.loc[:, table.notna().any() & (table != "").any()]
    front = [name for name in FIRST if name in kept]
    ordered = kept[front + [name for name in kept if name not in front]]
    result = ordered.reset_index(drop=True)
    result.attrs = dict(table.attrs)
    return result


def _zeros_as_missing(table: pd.DataFrame) -> pd.DataFrame:
    for column in [c for c in _ZERO_IS_MISSING if c in table]:
        zeros = table[column] == 0
        count = np.count_nonzero(zeros)
        if count:
            table = note(table, f"`{column}` is 0 in {count} rows: taken as missing.")
            table[column] = table[column].where(~zeros)
    return table


def _plausible(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """`table` without rows outside the range; most of them outside is a wrong unit."""
    low, high = _PLAUSIBLE[column]
    values = table[column].to_numpy(dtype=float)
    given = values[~np.isnan(values)]
    wrong = (values < low) | (values > high)
    if len(given) and 2 * wrong.sum() > len(given):
        raise ValueError(
            f"{table.attrs.get('file', 'table')}: `{column}` is {np.median(given):g} "
            f"in the median; allowed is {low:g} to {high:g}; the source seems to be in "
            f"another unit, convert it."
        )
    return drop(table, wrong, f"`{column}` is not within {low:g} to {high:g}")
