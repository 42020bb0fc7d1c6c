"""`Trace`: requests in the order of their arrival, read and checked.

Tables have the columns `COLUMNS`, or those of two public logs: the LLM inference traces
of Azure (github.com/Azure/AzurePublicDataset) and of Mooncake
(github.com/kvcache-ai/Mooncake).
"""

import dataclasses
import gzip
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ...files import csv_lines, row_place

COLUMNS: Final = ("arrival_s", "input_len", "output_len")


@dataclasses.dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival: s from the start, tokens. `notes`: what
    was assumed about the requests; `skipped`: how many were left out; `file`, `lines`:
    where they stand."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    notes: tuple[str, ...] = ()
    skipped: int = 0
    file: str = ""
    lines: tuple[int, ...] = ()

    def place(self, request: int) -> str:
        """Where request number `request` (from 0) stands, for errors."""
        if not self.file:
            return f"request {request + 1}"
        return row_place(self.file, request, self.lines)

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Arrival, prompt, output."""
        return self.arrival, self.prompt, self.output

    def up_to(self, tokens: int | float, where: str) -> "Trace":
        """Without requests of more than so many tokens in and out, with a note that
        counts them; `where`: the model, for the note and for the `ValueError` if none
        remains."""
        fits = self.prompt + self.output <= tokens
        skipped = int(np.sum(~fits))
        if skipped == len(self):
            raise ValueError(
                f"`trace` has no request within the positions of {where}; take a model "
                "with more."
            )
        note = (
            f"{skipped:,} of {len(self):,} requests are left out: they are longer than "
            f"the positions of {where}."
        )
        notes = (*self.notes, note) if skipped else self.notes
        arrival, prompt, output = (x[fits] for x in self.columns)
        lines = tuple(x for x, fit in zip(self.lines, fits, strict=False) if fit)
        return Trace(arrival, prompt, output, notes, skipped, self.file, lines)


class _Format(NamedTuple):
    """Names of the three columns; arrivals (s) of the first one's cells, whose places
    stand in errors; whether a request may have made no token."""

    columns: tuple[str, str, str]
    seconds: Callable[[Sequence[Any], Callable[[int], str]], list[float]]
    aborted: bool


def read_trace(path: str | Path) -> Trace:
    """A trace from a file, as such or with gzip (.gz): a table with `arrival_s,
    input_len, output_len`, one of Azure (`TIMESTAMP, ContextTokens, GeneratedTokens`)
    or the JSON lines of Mooncake (`timestamp` in ms, `input_length`, `output_length`;
    `hash_ids` is not used).

    A request of a public log that made no token was cut off; it counts with one, which
    an engine makes with the prompt.

    Raises `ValueError` that names line and column for what cannot be.
    """
    try:
        raw = Path(path).read_bytes()
        raw = gzip.decompress(raw) if str(path).endswith(".gz") else raw
        # spreadsheets write a byte order mark
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"`trace` '{path}' cannot be read ({error}).") from None
    is_json = text.lstrip().startswith("{")
    read = _json_rows(text, path) if is_json else _csv_rows(text, str(path))
    if not read:
        raise ValueError(f"`trace` '{path}' has no requests.")
    lines, rows = zip(*read, strict=True)
    kind = _MOONCAKE if is_json else _AZURE if "TIMESTAMP" in rows[0] else _TABLE
    for name in kind.columns:
        if name not in rows[0]:
            raise ValueError(
                f"`trace` '{path}' has no column `{name}`; needed are "
                f"{', '.join(kind.columns)}."
            )
    first, *lengths = ([row.get(x) for row in rows] for x in kind.columns)
    prompt, output = (np.array([_number(x) for x in cells]) for cells in lengths)
    notes = _notes(rows, output) if kind.aborted else ()
    if kind.aborted:
        output = np.where(output == 0, 1, output)
    unread = Trace(np.array(()), prompt, output, notes, 0, str(path), lines)
    arrival = np.array(kind.seconds(first, unread.place))
    return _checked(dataclasses.replace(unread, arrival=arrival), kind.columns)


def _csv_rows(text: str, path: str) -> list[tuple[int, dict[str, Any]]]:
    """Rows below the header, with their lines."""
    (_, header), *rows = csv_lines(text, path) or [(1, [])]
    return [(line, dict(zip(header, row, strict=False))) for line, row in rows]


def _json_rows(text: str, path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    rows = list[tuple[int, dict[str, Any]]]()
    for line, words in enumerate(text.splitlines(), 1):
        if not words.strip():
            continue
        try:
            row = json.loads(words)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(
                f"`trace`: {path}, line {line} is no JSON object; give one a line."
            )
        rows.append((line, row))
    return rows


def _notes(rows: Sequence[dict[str, Any]], output: np.ndarray) -> tuple[str, ...]:
    """What is assumed about the requests of a public log."""
    notes = []
    if none := int(np.sum(output == 0)):
        notes.append(
            f"{none:,} of {len(output):,} requests made no token; each counts with one."
        )
    if "hash_ids" in rows[0]:
        notes.append(
            "`hash_ids` of the trace is not used: every prompt is read whole, without "
            "a prefix cache."
        )
    return tuple(notes)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _numbers(cells: Sequence[Any], place: Any) -> list[float]:
    return [_number(cell) for cell in cells]


def _milliseconds(cells: Sequence[Any], place: Any) -> list[float]:
    return [_number(cell) / 1e3 for cell in cells]


def _times(cells: Sequence[Any], place: Callable[[int], str]) -> list[float]:
    """Seconds since the first date and time."""
    times = [_time(cell, row, place) for row, cell in enumerate(cells)]
    return [(time - times[0]).total_seconds() for time in times]


def _time(cell: Any, row: int, place: Callable[[int], str]) -> datetime:
    try:
        time = datetime.fromisoformat(str(cell).strip())
    except ValueError:
        raise ValueError(
            f"`trace`: {place(row)}: `TIMESTAMP` is '{cell}'; allowed are dates with "
            "times, such as 2023-11-16 18:15:46.68."
        ) from None
    # times with and without a zone cannot be subtracted
    return time if time.tzinfo else time.replace(tzinfo=UTC)


_TABLE: Final = _Format(COLUMNS, _numbers, aborted=False)
_AZURE: Final = _Format(
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _times, aborted=True
)
_MOONCAKE: Final = _Format(
    ("timestamp", "input_length", "output_length"), _milliseconds, aborted=True
)


def checked(arrival: Any, prompt: Any, output: Any) -> Trace:
    """A trace of such columns of numbers; see `read_trace`."""
    first, second, third = (np.asarray(x, float) for x in (arrival, prompt, output))
    return _checked(Trace(first, second, third), COLUMNS)


def _checked(trace: Trace, columns: tuple[str, str, str]) -> Trace:
    """The trace, whose columns errors name so."""
    if not len(trace.arrival) == len(trace.prompt) == len(trace.output) > 0:
        raise ValueError("`trace` has columns of unequal length, or no rows.")
    first = 0 if columns == COLUMNS else -math.inf
    named = zip(columns, trace.columns, strict=True)
    for (name, x), least in zip(named, (first, 1, 1), strict=True):
        bad = np.flatnonzero(~(x >= least) | ~np.isfinite(x))
        if len(bad):
            raise ValueError(
                f"`trace`: {trace.place(int(bad[0]))}: `{name}` is {x[bad[0]]:g}; "
                f"allowed are numbers{'' if least < 0 else f' from {least} on'}."
            )
    for name, x in zip(columns[1:], trace.columns[1:], strict=True):
        bad = np.flatnonzero(x % 1)
        if len(bad):
            raise ValueError(
                f"`trace`: {trace.place(int(bad[0]))}: `{name}` is {x[bad[0]]:g}; "
                "allowed are whole numbers of tokens."
            )
    back = np.flatnonzero(np.diff(trace.arrival) < 0)
    if len(back):
        row = int(back[0]) + 1
        raise ValueError(
            f"`trace`: {trace.place(row)} goes back in time (`{columns[0]}` "
            f"{trace.arrival[row]:g} after {trace.arrival[row - 1]:g}); sort it."
        )
    return trace
