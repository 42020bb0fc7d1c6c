"""Reading one CSV file: its cells as text, then columns of them as numbers or names."""

import dataclasses
import gzip
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from ..files import csv_lines, row_place


@dataclasses.dataclass(frozen=True, eq=False)
class Sheet:
    """Columns of one file, every cell still text; the header is not a row. `lines`: of
    the file, on which the rows begin; none where they are no lines of it."""

    file: str
    columns: dict[str, np.ndarray]
    num_rows: int
    lines: Sequence[int] = ()

    def with_columns(self, columns: dict[str, np.ndarray]) -> "Sheet":
        """The same rows with other columns."""
        return dataclasses.replace(self, columns=columns)

    def place(self, row: int) -> str:
        """File and line of data row `row` (0-based), for errors."""
        return row_place(self.file, row, self.lines)


@dataclasses.dataclass(frozen=True)
class CellRange:
    """Numbers that a column allows; `words` says so in an error."""

    words: str
    low: float = -np.inf
    open_low: bool = False

    def holds(self, values: np.ndarray) -> np.ndarray:
        above = values > self.low if self.open_low else values >= self.low
        return above & np.isfinite(values)


ANY_NUMBER: Final = CellRange("a finite number")
POSITIVE: Final = CellRange("a number above 0", 0.0, open_low=True)
NOT_NEGATIVE: Final = CellRange("a number of at least 0", 0.0)


def read_sheet(file: str) -> Sheet:
    """Cells of `file` (CSV in UTF-8 with a header, plain or gzip).

    Blank lines are no rows. Raises `ValueError` in one sentence for whatever keeps the
    file from being a table.
    """
    content = csv_lines(read_text(file), file)
    if not content:
        raise ValueError(f"{file}: the file is empty; give one with a header and rows.")
    header = [name.strip() for name in content[0][1]]
    for name in header:
        if header.count(name) > 1:
            raise ValueError(
                f"{file}: column `{name}` is there {header.count(name)} times; allowed "
                f"is once; rename or remove the others."
            )
    rows = content[1:]
    if not rows:
        raise ValueError(
            f"{file}: there is a header but no data row; add the measured rows."
        )
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{file}, line {line}: the row has {len(row)} cells; allowed are "
                f"{len(header)} as in the header; correct the row."
            )
    lines, cells = zip(*rows, strict=True)
    return sheet_of(file, header, cells, lines)


def sheet_of(
    file: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    lines: Sequence[int] = (),
) -> Sheet:
    """Columns of rows that are as long as the header, and their `lines` in the file."""
    columns = {
        name: np.array(cells, dtype=object)
        for name, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
    return Sheet(file, columns, len(rows), lines)


def read_text(file: str) -> str:
    """Text of `file` (UTF-8, plain or gzip). Raises `ValueError` in one sentence."""
    path = Path(file)
    try:
        content = path.read_bytes()
    except IsADirectoryError:
        raise ValueError(
            f"{file} is a folder; give a .csv or .csv.gz file in it."
        ) from None
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; check the path.") from None
    except OSError as error:
        raise ValueError(
            f"{file} cannot be read: {error.strerror}; give a readable .csv file."
        ) from None
    if path.suffix == ".gz" or content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise ValueError(
                f"{file} is cut short or no gzip file; copy it again or unpack it."
            ) from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is not UTF-8 (byte {error.start}); save it as UTF-8 text."
        ) from None


def require_column(sheet: Sheet, column: str, remedy: str) -> None:
    """Raises `ValueError` with `remedy` if `sheet` has no such column."""
    if column not in sheet.columns:
        raise ValueError(
            f"{sheet.file}: column `{column}` is missing; there are "
            f"{name_list(sheet.columns)}; {remedy}."
        )


def name_list(names: Iterable[str]) -> str:
    """`names` in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def bad_cell(sheet: Sheet, row: int, column: str, allowed: str) -> ValueError:
    """The error about the cell of `column` in data row `row` (0-based) of a `sheet`,
    where `allowed` says what may stand there."""
    value = str(sheet.columns[column][row]).strip()
    shown = f"'{value}'" if value else "empty"
    return ValueError(
        f"{sheet.place(row)}: `{column}` is {shown}; allowed is {allowed}; "
        f"correct the cell or remove the row."
    )


def read_numbers(
    sheet: Sheet,
    column: str,
    rows: np.ndarray,
    allowed: CellRange,
    needed: bool = False,
) -> np.ndarray:
    """Cells of `column` in `rows` of a `sheet` as floats; empty and `nan` cells give
    NaN.

    Raises `ValueError` at the first cell that is no number, is outside `allowed` or,
    where the value is `needed`, is not there.
    """
    cells = sheet.columns[column][rows]
    values = np.asarray(pd.to_numeric(cells, errors="coerce"), dtype=float)
    absent = np.isnan(values)
    blank = np.zeros_like(absent)
    blank[absent] = [str(c).strip().lower() in ("", "nan") for c in cells[absent]]
    wrong = ~allowed.holds(values) & ~(blank & (not needed))
    if wrong.any():
        raise bad_cell(sheet, int(rows[wrong.argmax()]), column, allowed.words)
    return values


def read_texts(sheet: Sheet, column: str, rows: np.ndarray) -> np.ndarray:
    """Cells of `column` in `rows` of a `sheet` without surrounding blanks."""
    return np.array([c.strip() for c in sheet.columns[column][rows]], dtype=object)


def read_names(
    sheet: Sheet,
    column: str,
    rows: np.ndarray,
    resolve: Callable[[str], str],
    needed: bool = False,
) -> np.ndarray:
    """Cells of `column` in `rows` of a `sheet`, each replaced by `resolve` of it.

    What `resolve` raises becomes an error that names file and line. Empty cells stay
    empty unless the value is `needed`.
    """
    codes, distinct = pd.factorize(read_texts(sheet, column, rows))
    resolved = np.array(distinct, dtype=object)
    for code, name in enumerate(distinct):
        try:
            if name:
                resolved[code] = resolve(name)
        except ValueError as error:
            row = int(rows[(codes == code).argmax()])
            raise ValueError(f"{sheet.place(row)}: {error}") from None
    names = resolved[codes]
    if needed and (names == "").any():
        raise bad_cell(sheet, int(rows[(names == "").argmax()]), column, "a name")
    return names


def one_of(
    column: str, allowed: Mapping[str, str], remedy: str = "correct the cell"
) -> Callable[[str], str]:
    """Resolver for `names`: looks words up, or raises with all that are `allowed`."""

    def resolve(word: str) -> str:
        if word not in allowed:
            raise ValueError(
                f"`{column}` is '{word}'; allowed are {', '.join(allowed)}; {remedy}."
            )
        return allowed[word]

    return resolve
