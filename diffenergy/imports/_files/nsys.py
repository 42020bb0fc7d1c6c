"""Nsight Systems: the SQLite export (`nsys export --type sqlite`), the summary of
kernels and the list of them (`nsys stats --format csv`). None of them has shapes."""

import contextlib
import csv
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from .._launches import Launch, Trace, one_gpu
from .._request import ImportRequest

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_NAMES: Final = ("demangledName", "shortName", "mangledName")
_GRID: Final = ("gridX", "gridY", "gridZ")
_BLOCK: Final = ("blockX", "blockY", "blockZ")


def read(path: str, request: ImportRequest) -> Trace:
    """Launches of an export, a list or a summary.

    Raises `ValueError` for a file without kernels, or of a form that is not known.
    """
    with Path(path).open("rb") as file:
        exported = file.read(15) == b"SQLite format 3"
    return _read_export(path) if exported else _read_list(path)


def _read_export(path: str) -> Trace:
    """The SQLite export; tables and columns are looked up, as versions differ."""
    uri = f"file:{quote(str(Path(path).resolve()))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as base:
            return _read_database(base, path)
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{path} is no whole SQLite file ({error}); export the report again: `nsys "
            "export --type sqlite`."
        ) from None


def _read_database(base: sqlite3.Connection, path: str) -> Trace:
    tables = {row[0] for row in base.execute("select name from sqlite_master")}
    if _KERNELS not in tables:
        raise ValueError(
            f"{path} has no kernels (table {_KERNELS}); record them with `nsys profile "
            "--trace cuda`, and export the report again."
        )
    columns = _columns(base, _KERNELS)
    name = next((x for x in _NAMES if x in columns), None)
    if not {"start", "end"} <= columns or name is None or "StringIds" not in tables:
        raise ValueError(
            f"{path}: the table {_KERNELS} lacks times or names of kernels; export the "
            "report again with a newer nsys."
        )
    fields = ["start", "end", "deviceId", "streamId", *_GRID, *_BLOCK]
    picked = [f"k.{x}" if x in columns else "0" for x in fields]
    shared = [x for x in ("staticSharedMemory", "dynamicSharedMemory") if x in columns]
    picked.append(" + ".join(f"ifnull(k.{x}, 0)" for x in shared) or "0")
    query = (
        f"select {', '.join(picked)}, s.value from {_KERNELS} k "
        f"left join StringIds s on s.id = k.{name} order by k.start"
    )
    launches, names = [], {}
    for start, end, device, stream, *rest, kernel in base.execute(query):
        if end < start:
            raise ValueError(
                f"{path}: a kernel ends before it starts (duration {end - start} ns); "
                "export the report again."
            )
        text = names.setdefault(kernel, str(kernel or "unnamed"))
        grid, block = tuple(map(int, rest[:3])), tuple(map(int, rest[3:6]))
        launches.append(
            Launch(
                text, (end - start) / 1e3, start / 1e3, int(stream or 0),
                int(device or 0), grid, block, int(rest[6] or 0),
            )
        )  # fmt: skip
    if not launches:
        raise ValueError(f"{path}: the table {_KERNELS} is empty; record a longer run.")
    copies: dict[int, float] = {}
    for table in tables.intersection(_COPIES):
        if {"start", "end", "deviceId"} <= _columns(base, table):
            query = f"select deviceId, sum(end - start) from {table} group by deviceId"
            for device, total in base.execute(query):
                copies[int(device)] = copies.get(int(device), 0.0) + total / 1e3
    gpu, about = None, _columns(base, "TARGET_INFO_GPU")
    if {"id", "name"} <= about:
        rows = base.execute("select id, name from TARGET_INFO_GPU")
        gpus = {int(x): str(name)[:60] for x, name in rows if name}
        remedy = "one report; profile one of them (CUDA_VISIBLE_DEVICES)"
        gpu = one_gpu(gpus, {x.device for x in launches}, path, remedy)
    return Trace("nsys", launches, gpu, copies)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"pragma table_info({table})")}


def _read_list(path: str) -> Trace:
    """A CSV of `nsys stats`: sums by kernel, or one line a launch."""
    rows = csv_rows(path, ("Name",))
    launches = list(_launches(rows, path))
    if not launches:
        raise ValueError(f"{path} lists no kernel; record a longer run.")
    first = rows[0][1]
    device = first.get("Device")
    gpu = re.sub(r"\s*\(\d+\)$", "", device)[:60] if device else None
    return Trace("nsys", launches, gpu, timed="Start (ns)" in first)


def _launches(
    rows: Sequence[tuple[int, dict[str, str]]], path: str
) -> Iterator[Launch]:
    for line, row in rows:
        name = row.get("Name") or ""
        if not name or name.startswith("[CUDA mem"):
            continue
        where = f"{path}, line {line}"
        if "Duration (ns)" in row:
            yield Launch(
                name, _number(row, "Duration (ns)", where) / 1e3,
                _number(row, "Start (ns)", where) / 1e3,
                int(_number(row, "Strm", where, 0.0)),
                grid=_triple(row, "Grd"), block=_triple(row, "Blk"),
            )  # fmt: skip
        else:
            total = _number(row, "Total Time (ns)", where) / 1e3
            count = int(_number(row, "Instances", where, 1.0))
            if count > 0:
                yield Launch(name, total / count, times=count)


def _triple(row: dict[str, str], word: str) -> tuple[int, ...]:
    values = [row.get(f"{word}{axis}") for axis in "XYZ"]
    plain = [int(x) for x in values if x and x.isdigit()]
    return tuple(plain) if len(plain) == 3 else ()


def _number(
    row: dict[str, str], column: str, where: str, default: float | None = None
) -> float:
    """A number of a row, thousands separated or not; of 0 or more."""
    text = (row.get(column) or "").replace(",", "").strip()
    if not text and default is not None:
        return default
    return amount(text, f"{where}: `{column}`")


def amount(text: str, what: str) -> float:
    """A number, thousands separated or not; raises `ValueError` if `what` is below 0 or
    none."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{what} is '{text[:20]}'; allowed is a number from 0 on.")
    return value


def csv_rows(path: str, needed: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Rows, each with its line in the file, of a CSV that begins somewhere below lines
    of progress: its header is the first line with the columns `needed`."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for place, line in enumerate(text):
        header = next(csv.reader([line]), [])
        if all(x in header for x in needed) and len(header) > len(needed):
            reader: Any = csv.DictReader(text[place:], restval="")
            return [
                (place + reader.line_num, dict(row))
                for row in reader
                if any(row.values())
            ]
    raise ValueError(
        f"{path}: no line names the columns {', '.join(needed)}; write the file with "
        "`--format csv`."
    )
