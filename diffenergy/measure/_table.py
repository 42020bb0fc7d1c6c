"""The file of measurements: rows appended one by one, safe against any ending."""

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..files import check_target, csv_lines

Cells = dict[str, str]

KERNEL_COLUMNS: Final = (
    "op", "batch", "m", "n", "k", "rows", "cols", "fn", "elements", "reads", "writes",
    "q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "dtype", "out_dtype",
    "tensor_core", "zero_share",
)  # fmt: skip
"""Fields of the listing format; empty cells mean their defaults."""

STATE_COLUMNS: Final = (
    "contents", "copies", "start", "repeat", "sm_clock_mhz_set", "power_limit_w_set",
)  # fmt: skip
"""State that a point asks for."""

COLUMNS: Final = (
    "gpu", "class", *KERNEL_COLUMNS, *STATE_COLUMNS,
    "time_us", "avg_power_w", "energy_j", "sm_clock_mhz_avg", "mem_clock_mhz",
    "power_limit_w", "temperature_c", "iterations", "window_s", "run_s", "gap_s",
    "previous", "power_source", "sampled_power_w", "throttle", "shared_gpu", "ecc",
    "campaign", "measured_at", "device", "driver", "cuda", "runner", "software",
)  # fmt: skip
KEY: Final = ("gpu", *KERNEL_COLUMNS, *STATE_COLUMNS)
"""Columns that identify a point."""


def cell(value: Any) -> str:
    """Text of a value as the file has it; empty where it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.8g}"
    return " ".join(str(value).split())


def key(cells: Mapping[str, str]) -> tuple[str, ...]:
    """Key that identifies a point."""
    return tuple(cells.get(name, "") for name in KEY)


def series_path(path: Path) -> Path:
    """Path of the samples of each row."""
    return path.with_name(path.name.removesuffix(".csv") + ".series.jsonl")


def state_path(path: Path) -> Path:
    """Path of the board's former state while it is changed."""
    return path.with_name(path.name.removesuffix(".csv") + ".restore.json")


def finished(path: Path) -> list[Cells]:
    """Whole rows of a file of measurements; none if there is no file.

    Raises `ValueError` if it is another kind of file.
    """
    text = _whole(path)
    if not text:
        return []
    (_, header), *rows = csv_lines(text, str(path)) or [(1, [])]
    if tuple(header) != COLUMNS:
        raise ValueError(
            f"`file` is '{path}', whose columns are not those that `measure` writes; "
            "give another name."
        )
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"`file` is '{path}', where line {line} has {len(row)} cells instead "
                f"of {len(header)}; remove the line or give another name."
            )
    return [dict(zip(header, row, strict=True)) for _, row in rows]


class Table:
    """A file of measurements and its series, open for more rows.

    A last line that was cut off is dropped, and a series without its row.
    """

    def __init__(self, path: Path):
        check_target(path, [])
        check_target(series_path(path), [])
        self._path = path
        self.rows = finished(path)
        self.repaired = path.exists() and _cut(path, len(_whole(path).encode()))
        if not self.rows and not _whole(path):
            _append(path, _line(COLUMNS))
        self._trim_series()

    def append(self, cells: Mapping[str, str], series: Mapping[str, Any]) -> None:
        """Writes a row, its series first, and waits until both are on the disk."""
        number = {"row": len(self.rows)}
        _append(series_path(self._path), json.dumps({**number, **series}) + "\n")
        _append(self._path, _line([cells.get(name, "") for name in COLUMNS]))
        self.rows.append(dict(cells))

    def _trim_series(self) -> None:
        path = series_path(self._path)
        if not path.exists():
            return
        keep = 0
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n") or _number(line) >= len(self.rows):
                break
            keep += len(line)
        _cut(path, keep)


def _number(line: bytes) -> float:
    """Row that a line of the series belongs to."""
    try:
        return float(json.loads(line)["row"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _whole(path: Path) -> str:
    """Text of a file up to its last line break; "" if it has no whole line.

    Raises `ValueError` for what cannot have been cut off from our file.
    """
    if not path.exists():
        return ""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if not whole and not _line(COLUMNS).encode().startswith(content):
        raise ValueError(
            f"`file` is '{path}', which `measure` did not write; give another name."
        )
    try:
        return whole.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"`file` is '{path}', which is no text; give another name."
        ) from None


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _append(path: Path, text: str) -> None:
    with path.open("ab", buffering=0) as stream:
        stream.write(text.encode())
        os.fsync(stream.fileno())


def _cut(path: Path, size: int) -> bool:
    """Truncates a file to `size` bytes; returns whether that dropped anything."""
    if path.stat().st_size <= size:
        return False
    os.truncate(path, size)
    return True
