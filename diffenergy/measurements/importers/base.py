"""Functions of all importers: find files, read columns, name GPUs, keep notes."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from ...files import row_place
from ...imports import bundled_gpu
from .._cells import (
    ANY_NUMBER,
    Sheet,
    name_list,
    read_numbers,
    read_sheet,
    read_texts,
)

_MISSING: Final = (
    "na", "n/a", "[n/a]", "none", "null", "<na>", "[not supported]", "[not available]",
    "[unknown error]", "[insufficient permissions]",
)  # fmt: skip
"""Words of tools, in lower case, for a missing number."""

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


class Column(NamedTuple):
    """A column of a table: its spellings in order of preference."""

    spellings: tuple[str, ...]
    is_number: bool = True
    needed: bool = True


def number(*spellings: str, needed: bool = True) -> Column:
    """Column of numbers."""
    return Column(spellings, True, needed)


def text(*spellings: str, needed: bool = True) -> Column:
    """Column of words."""
    return Column(spellings, False, needed)


# --- files


def files_in(path: Path, names: Sequence[str]) -> dict[str, Path]:
    """Those of the files `names` that are in the folder `path`, or `path` itself.

    Raises `ValueError` if there is none.
    """
    if path.is_dir():
        files = {name: path / name for name in names if (path / name).is_file()}
    elif path.exists():
        files = {path.name: path} if path.name in names else {}
    else:
        raise ValueError(f"{path}: no such file or folder; check the path.")
    if not files:
        raise ValueError(
            f"{path} is none of {name_list(names)} and has none of them; give the file "
            f"or its folder."
        )
    return files


def read_columns(path: Path, columns: Mapping[str, Column]) -> pd.DataFrame:
    """These `columns` of a CSV file, by our names."""
    return pick(read_sheet(str(path)), columns)


def blank_missing(sheet: Sheet) -> Sheet:
    """`sheet` with empty cells where a tool wrote a word for "no value"."""
    columns = {}
    for name, cells in sheet.columns.items():
        empty = [word for word in set(cells) if word.strip().lower() in _MISSING]
        columns[name] = np.where(np.isin(cells, empty), "", cells)
    return sheet.with_columns(columns)


def pick(sheet: Sheet, columns: Mapping[str, Column]) -> pd.DataFrame:
    """These `columns` of a sheet, by our names; numbers are floats, NaN if empty.

    Columns that are not needed and not there stay away. Raises `ValueError` at a
    needed column that is absent and at a cell that is no number.
    """
    every = np.arange(sheet.num_rows)
    spellings = {
        name: _spelling(sheet, name, column) for name, column in columns.items()
    }
    used = {spelling for spelling in spellings.values() if spelling}
    sheet = blank_missing(sheet.with_columns({s: sheet.columns[s] for s in used}))
    table = pd.DataFrame(index=every)
    for name, spelling in spellings.items():
        if spelling and columns[name].is_number:
            table[name] = read_numbers(sheet, spelling, every, ANY_NUMBER)
        elif spelling:
            table[name] = pd.Series(read_texts(sheet, spelling, every), dtype=object)
    # pandas copies attributes deeply with every table, functions alone by reference
    place = lambda row: sheet.place(row)  # noqa: E731
    table.attrs = {"file": sheet.file, "notes": [], "place": place}
    return table


def _spelling(sheet: Sheet, name: str, column: Column) -> str | None:
    spelling = next((s for s in column.spellings if s in sheet.columns), None)
    if spelling is None and column.needed:
        raise ValueError(
            f"{sheet.file}: there is no column for `{name}`; allowed are "
            f"{name_list(column.spellings)}; there are {name_list(sheet.columns)}; "
            f"give a file of this format."
        )
    return spelling


def check_texts(table: pd.DataFrame, column: str, allowed: Collection[str]) -> None:
    """Raises `ValueError` at the first word of `column` that is not `allowed`."""
    wrong = ~table[column].isin(list(allowed)).to_numpy()
    if wrong.any():
        row = table.index[wrong.argmax()]
        raise ValueError(
            f"{place_of(table, row)}: `{column}` is '{table[column][row]}'; allowed is "
            f"{name_list(allowed)}; correct the cell or remove the row."
        )


def place_of(table: pd.DataFrame, row: int) -> str:
    """File and line of the row that `pick` read as `row`, for errors."""
    place = table.attrs.get("place")
    return place(row) if place else row_place(table.attrs.get("file", "table"), row, ())


# --- notes


def notes_of(table: pd.DataFrame) -> list[str]:
    """Notes of an importer on its table: rows left out, with the reason."""
    return list(table.attrs.get("notes", ()))


def note(table: pd.DataFrame, *words: str) -> pd.DataFrame:
    """`table` with further notes."""
    noted = table.copy()
    noted.attrs = {**table.attrs, "notes": [*notes_of(table), *filter(None, words)]}
    return noted


def drop(table: pd.DataFrame, wrong: Any, why: str) -> pd.DataFrame:
    """`table` without the rows that are `wrong` (booleans, one a row).

    A note says how many there were, and `why`.
    """
    mask = np.asarray(wrong, dtype=bool)
    if not mask.any():
        return table
    words = f"{mask.sum()} of {len(mask)} rows left out: {why}."
    return note(table.loc[~mask], words)


def join(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables one after the other, with the notes of all."""
    whole = pd.concat(tables, ignore_index=True)
    notes = [words for table in tables for words in notes_of(table)]
    files = dict.fromkeys(table.attrs.get("file", "table") for table in tables)
    whole.attrs = {"file": ", ".join(files), "notes": notes}
    return whole


# --- words


def name_gpus(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with bundled names in `gpu`; rows of other GPUs are left out."""
    names = {word: bundled_gpu(word) for word in table["gpu"].unique()}
    named = table.assign(gpu=table["gpu"].map(lambda word: names[word] or ""))
    for word, name in names.items():
        if not name:
            there = np.asarray(table.loc[named.index, "gpu"] == word)
            named = drop(named, there, f"there is no GPU file for '{word}'")
    return named


def finish(table: pd.DataFrame) -> pd.DataFrame:
    """`table` as it is written: checked, rows once, GPU and op first.

    Zero readings become empty. Rows that cannot be true are left out with a note.
    Raises `ValueError` if the values of a column are in another unit than its name
    says, and if no row is left.
    """
    for column in [c for c in _ZERO_IS_MISSING if c in table]:
        zeros = table[column] == 0
        if count := np.count_nonzero(zeros):
            table = note(table, f"`{column}` is 0 in {count} rows: taken as missing.")
            table[column] = table[column].where(~zeros)
    for column in [c for c in _PLAUSIBLE if c in table]:
        table = _plausible(table, column)
    time = next((c for c in TIMES if c in table), None)
    if time:
        timeless = table["op"] == "activity" if "op" in table else False
        table = drop(table, table[time].isna() & ~timeless, f"no `{time}`")
    table = drop(table, table.duplicated(), "the same row is there before")
    if not len(table):
        reasons = " ".join(notes_of(table)) or "the file has no rows."
        raise ValueError(
            f"{table.attrs.get('file', 'table')}: no row is left: {reasons}"
        )
    filled = table.loc[:, table.notna().any() & (table != "").any()]
    front = [name for name in FIRST if name in filled]
    ordered = filled[front + [name for name in filled if name not in front]]
    return ordered.reset_index(drop=True)


def _plausible(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """`table` without rows outside the range; most of them outside is a wrong unit."""
    low, high = _PLAUSIBLE[column]
    values = table[column].to_numpy(dtype=float)
    present = values[~np.isnan(values)]
    wrong = (values < low) | (values > high)
    if len(present) and 2 * wrong.sum() > len(present):
        raise ValueError(
            f"{table.attrs.get('file', 'table')}: `{column}` is {np.median(present):g} "
            f"in the median; allowed is {low:g} to {high:g}; the source seems to be in "
            f"another unit, convert it."
        )
    return drop(table, wrong, f"`{column}` is not within {low:g} to {high:g}")
