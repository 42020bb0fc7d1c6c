"""Kernels or workload of a row. Kernel rows: the fields of an op, checked, defaults
filled in. Workload rows: the named listing, or the model and its run."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..dtypes import DTYPES, SYNONYMS
from ..kernels import COMMON_FIELDS, REQUIRED, Field, Op
from ._cells import (
    ANY_NUMBER,
    POSITIVE,
    CellRange,
    Sheet,
    one_of,
    read_names,
    read_numbers,
    require_column,
)
from ._columns import FIELD_ALIASES

DTYPE_WORDS: Final = {name: name for name in DTYPES} | SYNONYMS
_FLAGS: Final = {"true": "1", "True": "1", "1": "1"} | dict.fromkeys(
    ("false", "False", "0"), "0"
)
_ARRAY_TYPES: Final = {"size": float, "share": float, "bool": bool}
"""Of a field's kind; those of words are objects."""
MODES: Final = ("prefill", "decode", "generate", "train", "forward")
"""What a workload row that names a model may ask for."""
MODEL_COLUMNS: Final = (
    "model", "config", "precision", "batch", "seq_len", "output_len", "mode",
    "attention",
)  # fmt: skip


def op_columns(sheet: Sheet, op: Op, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Every field of `op` for `rows` of the file, by name.

    Sizes and shares are floats, flags booleans, dtypes (canonical names) and text
    strings. An absent column or an empty cell means the field's default. Shares are
    readings of counters, which may be broken: see `broken_shares`.
    """
    values: dict[str, np.ndarray] = {}
    for name in op.moved:
        if name in sheet.columns:
            cells = read_numbers(sheet, name, rows, ANY_NUMBER)
            if np.nan_to_num(cells).any():
                raise ValueError(f"{sheet.file}: {op.misplaced(name)}.")
    for field in _all_fields(op):
        column = _column(sheet, field)
        if column is None and field.default is REQUIRED:
            require_column(sheet, field.name, f"the op '{op.name}' needs it")
        if column is None:
            values[field.name] = _default(field, values, len(rows))
        else:
            values[field.name] = _field(sheet, column, field, rows, values)
    for part, whole in op.divisions:
        _check_divides(sheet, rows, values, part, whole)
    return values


def broken_shares(op: Op, values: dict[str, np.ndarray]) -> np.ndarray:
    """Reason why a row of `op_columns` cannot be predicted (a share not in 0-1); else
    ""."""
    shares = [field.name for field in _all_fields(op) if field.kind == "share"]
    reasons = np.full(len(values["count"]), "", dtype=object)
    for name in shares:
        for row in np.flatnonzero((values[name] < 0) | (values[name] > 1)):
            reasons[row] = reasons[row] or (
                f"`{name}` is {values[name][row]:g}, which is no share from 0 to 1"
            )
    return reasons


def op_column_names(op: Op) -> set[str]:
    """Columns that `op_columns` looks for."""
    names = {field.name for field in _all_fields(op)}
    return names | {alias for name, alias in FIELD_ALIASES.items() if name in names}


def _all_fields(op: Op) -> tuple[Field, ...]:
    """Fields of the op, then those of every op that it does not define itself."""
    names = {field.name for field in op.fields}
    return (*op.fields, *(field for field in COMMON_FIELDS if field.name not in names))


def _column(sheet: Sheet, field: Field) -> str | None:
    candidates = (field.name, FIELD_ALIASES.get(field.name, ""))
    return next((c for c in candidates if c and c in sheet.columns), None)


def _default(field: Field, values: Mapping[str, Any], num_rows: int) -> np.ndarray:
    """Default of a field, which may follow from the columns before it."""
    default = field.default(values) if callable(field.default) else field.default
    return np.full(num_rows, default, dtype=_ARRAY_TYPES.get(field.kind, object))


def _field(
    sheet: Sheet,
    column: str,
    field: Field,
    rows: np.ndarray,
    before: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Cells of a field, empty ones filled from its default."""
    needed = field.default is REQUIRED
    if field.kind in ("size", "share"):
        least = CellRange(f"a number of at least {field.minimum:g}", field.minimum)
        allowed = ANY_NUMBER if field.kind == "share" else least
        values = read_numbers(sheet, column, rows, allowed, needed)
        absent = np.isnan(values)
    else:
        values = read_names(sheet, column, rows, _resolver(field, column), needed)
        absent = values == ""
        if field.kind == "bool":
            values = values == "1"
    if absent.any() and not needed:
        values = np.where(absent, _default(field, before, len(rows)), values)
    return values


def _resolver(field: Field, column: str) -> Callable[[str], str]:
    if field.kind == "dtype":
        return one_of(column, DTYPE_WORDS)
    if field.kind == "bool":
        return one_of(column, _FLAGS)

    def word(text: str) -> str:
        if not field.takes(text):
            raise ValueError(
                f"`{column}` is '{text}'; allowed are {', '.join(field.words)}; "
                "correct the cell."
            )
        return text

    return word


def _check_divides(
    sheet: Sheet,
    rows: np.ndarray,
    values: Mapping[str, np.ndarray],
    part: str,
    whole: str,
) -> None:
    rest = np.mod(values[whole], values[part])
    if rest.any():
        index = int(rest.argmax())
        raise ValueError(
            f"{sheet.place(int(rows[index]))}: `{whole}` is "
            f"{values[whole][index]:g}, which `{part}` {values[part][index]:g} does "
            f"not divide; correct one of them."
        )


def listing_names(
    sheet: Sheet, rows: np.ndarray, workloads: Mapping[str, Any]
) -> np.ndarray:
    """Listing name of every row, "" where the row has none."""
    names = np.full(sheet.num_rows, "", dtype=object)
    if not len(rows) or "workload" not in sheet.columns:
        return names

    def resolve(name: str) -> str:
        if name not in workloads:
            near = difflib.get_close_matches(name, workloads, n=1)
            raise ValueError(
                f"`workload` is '{name}'; allowed are the names of the "
                f"{len(workloads)} listings given with --workloads"
                + (f" (the nearest is '{near[0]}')" if near else "")
                + "; give the listing file that has it."
            )
        return name

    names[rows] = read_names(
        sheet, "workload", rows, resolve, "model" not in sheet.columns
    )
    return names


def model_requests(sheet: Sheet, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that name a model and its run, for workload rows without a listing."""
    if not len(rows):
        return {}
    for column in ("model", "precision", "batch", "seq_len", "mode"):
        require_column(sheet, column, "a row that names no `workload` needs it")
    mode = one_of("mode", {name: name for name in MODES})
    precision = one_of("precision", DTYPE_WORDS)

    def text(column: str, needed: bool = False) -> np.ndarray:
        if column not in sheet.columns:
            return np.full(len(rows), "", dtype=object)
        return read_names(sheet, column, rows, str, needed)

    def number(column: str, needed: bool = False) -> np.ndarray:
        if column not in sheet.columns:
            return np.full(len(rows), np.nan)
        return read_numbers(sheet, column, rows, POSITIVE, needed)

    return {
        "model": text("model", needed=True),
        "config": text("config"),
        "precision": read_names(sheet, "precision", rows, precision, needed=True),
        "batch": number("batch", needed=True),
        "seq_len": number("seq_len"),
        "output_len": number("output_len"),
        "mode": read_names(sheet, "mode", rows, mode, needed=True),
        "attention": text("attention"),
    }
