"""Logs of `nvidia-smi --query-gpu=... --format=csv -l 1` (or `-lms`): busy windows.

Power is integrated over every stretch in which a GPU was busy: utilisation above zero
or, where that was not logged, power well above idle. Without a header the columns must
be timestamp, name, index, power.draw, clocks.sm, clocks.mem, temperature.gpu,
utilization.gpu, power.limit.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from ...files import csv_lines
from .._cells import Sheet, bad_cell, read_sheet, read_text, sheet_of
from .._series import Series, read_times
from .base import (
    blank_missing,
    drop,
    finish,
    join,
    name_gpus,
    note,
    notes_of,
    number,
    pick,
    place_of,
    text,
)

NAME = "nvidia_smi"
ABOUT = "logs of nvidia-smi --query-gpu=... --format=csv: energy of busy windows"

_COLUMNS: Final = {
    "time": text("timestamp"),
    "gpu": text("name", "gpu_name"),
    "gpu_index": text("index", "uuid", "gpu_uuid", "pci.bus_id", needed=False),
    "power": number("power.draw", "power.draw.average", "power.draw.instant"),
    "sm_clock_mhz_avg": number(
        "clocks.current.sm", "clocks.sm", "clocks.gr", needed=False
    ),
    "mem_clock_mhz": number(
        "clocks.current.memory", "clocks.mem", "clocks.current.mem", needed=False
    ),
    "temperature_c": number("temperature.gpu", needed=False),
    "utilization": number("utilization.gpu", needed=False),
    "power_limit_w": number("enforced.power.limit", "power.limit", needed=False),
}
_NO_HEADER: Final = (
    "timestamp", "name", "index", "power.draw", "clocks.sm", "clocks.mem",
    "temperature.gpu", "utilization.gpu", "power.limit",
)  # fmt: skip
_UNITS: Final = {
    "power": "W",
    "enforced": "W",
    "clocks": "MHz",
    "utilization": "%",
    "temperature": "",
    "memory": "MiB",
}
"""Unit by the first part of a column's name."""

_STAMP: Final = re.compile(r"\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d")
GAP: Final = 5.0
"""Sampling periods without a sample after which a window ends."""
IDLE_SHARE: Final = 0.2
"""Share of the way from the lowest to the highest power above which a GPU is busy."""


def wrote(lines: Sequence[str]) -> bool:
    """Whether a file that begins so is such a log."""
    cells = [cell.strip().partition(" [")[0] for cell in lines[0].split(",")]
    if "timestamp" in cells:
        return any(cell.partition(".")[0] in _UNITS for cell in cells)
    return bool(_STAMP.match(cells[0])) and any(x.endswith(" W") for x in cells)


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table of the file's name: one row for every busy window of every GPU."""
    sheet = _units_off(_sheet(path))
    samples = pick(sheet, _COLUMNS)
    samples["time"] = read_times(sheet, "timestamp")[0]
    if "gpu_index" not in samples:
        samples["gpu_index"] = samples["gpu"]
        samples = note(samples, "no `index` was logged: one GPU of each name is taken.")
    samples = drop(samples, samples["power"].isna(), "no power was read")
    stem = re.sub(r"[^\w-]+", "_", path.name.split(".")[0])
    table = _all_windows(samples)
    table["workload"] = stem
    table["campaign"] = "nvidia-smi"
    words = "a row is a window: divide time and energy by the number of passes in it."
    return {f"nvidia_smi_{stem}": finish(name_gpus(note(table, words)))}


def series(path: Path) -> list[Series]:
    """Power (W) and memory in use (B) of every GPU over time."""
    sheet = _units_off(_sheet(path))
    times, local = read_times(sheet, "timestamp")
    memory = number("memory.used", needed=False)
    which = text("uuid", "gpu_uuid", "pci.bus_id", "index", "name", needed=False)
    samples = pick(sheet, _COLUMNS | {"memory": memory, "gpu_index": which})
    readings = []
    for key, board in samples.groupby("gpu_index", sort=True):
        at, gpu = times[board.index.to_numpy()], str(board["gpu"].iloc[0])
        for name, scale in (("power", 1.0), ("memory", 2.0**20)):
            if name in board:
                values = scale * np.asarray(board[name], float)
                read = np.isfinite(values)
                each = at[read], values[read], None, local
                readings += [Series(name, str(key), gpu, *each)] if read.any() else []
    return readings


# --- cells


def _sheet(path: Path) -> Sheet:
    """Cells of a log with or without header, columns without their unit."""
    text = read_text(str(path))
    if _STAMP.match(text.lstrip()):
        content = csv_lines(text, str(path), skipinitialspace=True)
        lines, rows = zip(*[x for x in content if any(x[1])], strict=True)
        for line, row in zip(lines, rows, strict=True):
            if len(row) != len(_NO_HEADER):
                raise ValueError(
                    f"{path}, line {line}: the log has no header and the row "
                    f"{len(row)} cells; allowed are {len(_NO_HEADER)}: "
                    f"{', '.join(_NO_HEADER)}; log without `noheader`."
                )
        return sheet_of(str(path), _NO_HEADER, rows, lines)
    return read_sheet(str(path))


def _units_off(sheet: Sheet) -> Sheet:
    """`sheet` with bare numbers; units in header and cells must be nvidia-smi's own."""
    columns = {}
    for name, cells in blank_missing(sheet).columns.items():
        bare, _, unit = name.partition(" [")
        expected = _UNITS.get(bare.split(".")[0])
        if expected is None:
            columns[bare] = cells
            continue
        if unit and unit.rstrip("]") != expected:
            raise ValueError(
                f"{sheet.file}: the column `{name}` is not in {expected}; log it with "
                f"nvidia-smi's own units."
            )
        split = [str(c).split() for c in cells]
        for row, parts in enumerate(split):
            if len(parts) > 1 and parts[1:] != [expected]:
                raise bad_cell(sheet, row, name, f"a number in {expected}")
        columns[bare] = np.array([p[0] if p else "" for p in split], dtype=object)
    return sheet.with_columns(columns)


# --- windows


def _all_windows(samples: pd.DataFrame) -> pd.DataFrame:
    """Busy windows of every GPU, one after the other."""
    file, notes = samples.attrs["file"], samples.attrs["notes"]
    place = samples.attrs["place"]
    parts = []
    for _, board in samples.groupby("gpu_index", sort=True):
        begin = float(samples["time"].iloc[0])
        board.attrs = {"file": file, "notes": [], "begin": begin, "place": place}
        parts.append(_windows(board))
    table = join(parts) if parts else samples
    if not parts or not len(table):
        raise ValueError(
            f"{file}: no GPU was busy in this log, or its power was not read; log "
            f"`power.draw` while the workload runs."
        )
    all_notes = [*notes, *(words for part in parts for words in notes_of(part))]
    table.attrs = {"file": file, "notes": list(dict.fromkeys(all_notes))}
    return table


def _windows(board: pd.DataFrame) -> pd.DataFrame:
    """Busy windows of one GPU, from its samples in order of time."""
    time = board["time"].to_numpy()
    steps = np.diff(time)
    if (steps < 0).any():
        row = int(board.index[1:][steps < 0][0])
        raise ValueError(
            f"{place_of(board, row)}: the time stamp is before the one "
            f"above; give logs of one recording, one file each."
        )
    moving = steps[steps > 0]
    period = float(np.median(moving)) if len(moving) else 0.0
    busy, words = _busy(board)
    breaks = np.flatnonzero((np.diff(busy) != 0) | (steps > GAP * period)) + 1
    ends = [0, *breaks, len(board)]
    spans = [
        slice(a, b) for a, b in zip(ends, ends[1:], strict=False) if busy[a:b].any()
    ]
    begin = board.attrs["begin"]
    rows = [_window(board.iloc[span], begin) for span in spans]
    table = pd.DataFrame(rows)
    table.attrs = {"file": board.attrs["file"], "notes": []}
    if rows:
        short = table["time_s"] <= 0
        table = drop(table, short, "a busy window of one sample has no length")
    return note(table, words)


def _busy(board: pd.DataFrame) -> tuple[np.ndarray, str]:
    """Whether each sample is busy, and a note on how that was decided."""
    use = board["utilization"] if "utilization" in board else None
    if use is not None and np.any(use.notna()):
        return (use.fillna(0) > 0).to_numpy().astype(int), ""
    power = board["power"].to_numpy()
    low, high = np.quantile(power, [0.0, 0.95])
    if high - low < IDLE_SHARE * high:
        return np.ones(len(power), dtype=int), "no utilisation: all samples count."
    bound = low + IDLE_SHARE * (high - low)
    return (power > bound).astype(int), f"no utilisation: busy is above {bound:.0f} W."


def _window(samples: pd.DataFrame, begin: float) -> dict[str, object]:
    """One row: power integrated by the trapezoid rule, the rest averaged; the log
    begins at `begin`."""
    time, power = samples["time"].to_numpy(), samples["power"].to_numpy()
    length = float(time[-1] - time[0])
    energy = float(np.trapezoid(power, time))
    means = ("sm_clock_mhz_avg", "mem_clock_mhz", "temperature_c", "power_limit_w")
    return {
        "gpu": samples["gpu"].iloc[0],
        "gpu_index": samples["gpu_index"].iloc[0],
        "start_s": float(time[0]) - begin,
        "time_s": length,
        "window_s": length,
        "energy_j": energy,
        "avg_power_w": energy / length if length > 0 else np.nan,
        "samples": len(samples),
        **{name: samples[name].mean() for name in means if name in samples},
    }
