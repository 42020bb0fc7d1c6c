"""Workload rows: the listing that a row names, or the model and the run it asks for."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ._cells import POSITIVE, Sheet, names, numbers, one_of, require
from ._shapes import DTYPE_WORDS

MODES: Final = ("prefill", "decode", "generate", "train", "forward")
"""What a workload row that names a model may ask for."""

MODEL_COLUMNS: Final = (
    "model", "config", "precision", "batch", "seq_len", "output_len", "mode",
    "attention",
)  # fmt: skip


def listing_names(
    sheet: Sheet, rows: np.ndarray, workloads: Mapping[str, Any]
) -> np.ndarray:
    """Listing name of every row, "" where the row has none."""
    found = np.full(sheet.num_rows, "", dtype=object)
    if not len(rows) or "workload" not in sheet.columns:
        return found

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

    found[rows] = names(sheet, "workload", rows, resolve, "model" not in sheet.columns)
    return found


def model_requests(sheet: Sheet, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Columns that name a model and its run, for workload rows without a listing."""
    if not len(rows):
        return {}
    for column in ("model", "precision", "batch", "seq_len", "mode"):
        require(sheet, column, "a row that names no `workload` needs it")
    mode = one_of("mode", {name: name for name in MODES})
    precision = one_of("precision", DTYPE_WORDS)

    def text(column: str, needed: bool = False) -> np.ndarray:
        if column not in sheet.columns:
            return np.full(len(rows), "", dtype=object)
        return names(sheet, column, rows, str, needed)

    def number(column: str, needed: bool = False) -> np.ndarray:
        if column not in sheet.columns:
            return np.full(len(rows), np.nan)
        return numbers(sheet, column, rows, POSITIVE, needed)

    return {
        "model": text("model", needed=True),
        "config": text("config"),
        "precision": names(sheet, "precision", rows, precision, needed=True),
        "batch": number("batch", needed=True),
        "seq_len": number("seq_len"),
        "output_len": number("output_len"),
        "mode": names(sheet, "mode", rows, mode, needed=True),
        "attention": text("attention"),
    }
