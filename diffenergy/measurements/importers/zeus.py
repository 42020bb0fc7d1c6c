"""Logs of `ZeusMonitor`.

A log has one line a window with the energy of every GPU (`gpu0_energy`, J): here one
row a window and GPU, so that nothing counts twice.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from .._cells import read_sheet
from .._series import Series
from .base import drop, finish, join, note, number, pick, text

NAME = "zeus"
ABOUT = "logs of ZeusMonitor: energy of windows"

_ENERGY: Final = re.compile(r"gpu(\d+)_energy")


def wrote(lines: Sequence[str]) -> bool:
    """Whether a file that begins so is a log of `ZeusMonitor`."""
    return {"window_name", "elapsed_time"} <= {x.strip() for x in lines[0].split(",")}


def read(path: Path) -> dict[str, pd.DataFrame]:
    """One table for every log; other files in a folder are left."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; check the path.")
    files = [path] if path.is_file() else sorted(path.glob("*.csv"))
    logs = [x for x in files if "elapsed_time" in read_sheet(str(x)).columns]
    if not logs:
        raise ValueError(
            f"{path} is no log of ZeusMonitor (columns `elapsed_time`, `gpu0_energy`, "
            "...), and has none; give the file itself."
        )
    return {f"zeus_{file.stem}": _windows(file) for file in logs}


def series(path: Path) -> list[Series]:
    """Energy (J) of every GPU in the outermost windows, whose energy holds those of the
    others."""
    sheet = read_sheet(str(path))
    begin, length = number("start_time"), number("elapsed_time")
    windows = pick(sheet, {"start": begin, "length": length})
    start = np.asarray(windows["start"], float)
    end = start + np.asarray(windows["length"], float)
    order = np.lexsort((-end, start))
    latest = np.maximum.accumulate(np.append(-np.inf, end[order][:-1]))
    outer = order[start[order] >= latest]
    readings = []
    for column in (x for c in sheet.columns if (x := _ENERGY.fullmatch(c))):
        joules = np.asarray(pick(sheet, {"j": number(column.group())})["j"], float)
        rows = outer[joules[outer] > 0]
        each = start[rows], joules[rows], end[rows]
        readings.append(Series("energy", column.group(1), "", *each))
    return readings


def _windows(file: Path) -> pd.DataFrame:
    """Rows of a log: one for every window and GPU."""
    sheet = read_sheet(str(file))
    boards = [column for c in sheet.columns if (column := _ENERGY.fullmatch(c))]
    if not boards:
        raise ValueError(
            f"{file}: there is no column `gpu0_energy`; a log without the energy of a "
            f"GPU says nothing; measure with `ZeusMonitor(gpu_indices=[0])`."
        )
    columns = {
        "start": number("start_time", needed=False),
        "workload": text("window_name", "window"),
        "time_s": number("elapsed_time"),
    }
    parts = []
    for column in boards:
        part = pick(sheet, columns | {"energy_j": number(column.group())})
        part["gpu_index"] = int(column.group(1))
        parts.append(part)
    table = join(parts)
    table.attrs["file"] = str(file)
    table["avg_power_w"] = table["energy_j"] / table["time_s"]
    table["window_s"] = table["time_s"]
    table["campaign"] = "zeus"
    nested = _nested(parts[0])
    table = note(
        table.drop(columns="start", errors="ignore"),
        "the log does not name the GPU: give `--gpu` with this table.",
        f"{nested} windows lie inside another one, whose energy holds theirs: do not "
        f"add them up."
        if nested
        else "",
    )
    dead = table["energy_j"].isna() | (table["energy_j"] == 0)
    return finish(drop(table, dead, "no energy was read"))


def _nested(windows: pd.DataFrame) -> int:
    """Windows that begin and end within another one."""
    if "start" not in windows:
        return 0
    start = windows["start"].to_numpy(dtype=float)
    end = start + windows["time_s"].to_numpy(dtype=float)
    order = np.lexsort((-end, start))
    latest = np.maximum.accumulate(end[order])
    return int((end[order][1:] <= latest[:-1]).sum())
