"""`Trace`: requests in the order of their arrival, read and checked."""

import csv
import dataclasses
import gzip
import io
import math
from pathlib import Path
from typing import Any, Final

import numpy as np

COLUMNS: Final = ("arrival_s", "input_len", "output_len")


@dataclasses.dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival: s from the start, tokens."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray

    def __len__(self) -> int:
        return len(self.arrival)


def read_trace(path: str | Path) -> Trace:
    """A trace from a table with `arrival_s, input_len, output_len` (.csv, .csv.gz).

    Raises `ValueError` that names row and column for what cannot be.
    """
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if str(path).endswith(".gz") else raw).decode()
        rows = list(csv.DictReader(io.StringIO(text)))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"`trace` '{path}' cannot be read ({error}).") from None
    if not rows:
        raise ValueError(f"`trace` '{path}' has no requests.")
    for name in COLUMNS:
        if name not in rows[0]:
            raise ValueError(
                f"`trace` '{path}' has no column `{name}`; needed are "
                f"{', '.join(COLUMNS)}."
            )
    arrival, prompt, output = ([_cell(row[x]) for row in rows] for x in COLUMNS)
    return checked(arrival, prompt, output, f"'{path}'")


def _cell(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def checked(arrival: Any, prompt: Any, output: Any, where: str = "given") -> Trace:
    """A trace of such columns of numbers; see `read_trace`."""
    found = Trace(*(np.asarray(x, float) for x in (arrival, prompt, output)))
    if not len(found.arrival) == len(found.prompt) == len(found.output) > 0:
        raise ValueError(f"`trace` {where} has columns of unequal length, or no rows.")
    named = zip(COLUMNS, dataclasses.astuple(found), strict=True)
    for (name, x), least in zip(named, (0, 1, 1), strict=True):
        bad = np.flatnonzero(~(x >= least) | ~np.isfinite(x))
        if len(bad):
            raise ValueError(
                f"`trace` {where} has `{name}` {x[bad[0]]:g} in row {bad[0]}; allowed "
                f"are numbers from {least} on."
            )
    for name, x in zip(COLUMNS[1:], (found.prompt, found.output), strict=True):
        bad = np.flatnonzero(x % 1)
        if len(bad):
            raise ValueError(
                f"`trace` {where} has `{name}` {x[bad[0]]:g} in row {bad[0]}; allowed "
                "are whole numbers of tokens."
            )
    back = np.flatnonzero(np.diff(found.arrival) < 0)
    if len(back):
        row = int(back[0]) + 1
        raise ValueError(
            f"`trace` {where} goes back in time in row {row} (`arrival_s` "
            f"{found.arrival[row]:g} after {found.arrival[row - 1]:g}); sort it."
        )
    return found
