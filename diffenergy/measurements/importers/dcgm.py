"""Scrapes of the DCGM exporter (Prometheus text): how busy each unit was, and power.

One file, or a folder of files in the order of their names. Two scrapes with time stamps
give mean power from the energy counter; else the power reading of the scrape is taken.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from .._cells import read_text
from .._series import Series
from .base import drop, finish, name_gpus, note

NAME = "dcgm"
ABOUT = "scrapes of dcgm-exporter (Prometheus text): activities, power, clocks"

_METRICS: Final = {
    "DCGM_FI_DEV_POWER_USAGE": "power",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "counter",
    "DCGM_FI_DEV_FB_USED": "memory",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MEM_CLOCK": "mem_clock_mhz",
    "DCGM_FI_DEV_GPU_TEMP": "temperature_c",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": "power_limit_w",
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "fp32_active",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "fp64_active",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active",
}
_SHARES: Final = tuple(name for name in _METRICS.values() if name.endswith("_active"))
_NEEDED: Final = ("sm_active", "dram_active")
"""Without these a scrape says too little of what the GPU did."""

_SAMPLE: Final = re.compile(r"(\w+)\{(.*)\}\s+(\S+)(?:\s+(-?\d+))?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
BLANK: Final = 2147483632.0
BLANK_COUNTER: Final = 140737488355328.0
"""DCGM's "no value": the 32-bit one and, of large numbers, the smallest other one."""

Board = dict[str, Any]
"""Readings of one GPU in one scrape."""
Sample = tuple[str, Mapping[str, str], float, float]
"""Metric, labels, value and time stamp (s)."""


def wrote(lines: Sequence[str]) -> bool:
    """Whether a file that begins so is a scrape."""
    return any(re.match(r"(# (HELP|TYPE) )?DCGM_FI_", line) for line in lines)


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table `dcgm`: one row of the op `activity` for every GPU and scrape."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; check the path.")
    rows: list[Board] = []
    instances = 0
    last: dict[str, Board] = {}
    for index, scrape in enumerate(_all_scrapes(path)):
        boards, parts = _boards(scrape)
        instances += parts
        for key, board in boards.items():
            rows.append({"scrape": index} | board | _power(board, last.get(key)))
            last[key] = board
    if not rows:
        raise ValueError(
            f"{path} has no reading of a whole GPU (`DCGM_FI_...{{gpu=...}}`)"
            + (", only MIG instances" if instances else "")
            + "; give scrapes of dcgm-exporter."
        )
    return {"dcgm": _table(rows, path, instances)}


def _all_scrapes(path: Path) -> Iterator[list[Sample]]:
    """Scrapes of a file, or of those in a folder in the order of their names."""
    files = [path]
    if path.is_dir():
        inside = (x for x in path.iterdir() if x.is_file())
        files = sorted(x for x in inside if not x.name.startswith("."))
    return (scrape for file in files for scrape in _scrapes(file))


SERIES: Final = {"power": ("power", 1.0), "counter": ("energy", 1e-3),
                 "memory": ("memory", 2.0**20)}  # fmt: skip
"""Quantity and SI unit of readings over time; the counter is in mJ, memory in MiB."""


def series(path: Path) -> list[Series]:
    """Power (W), energy counter (J) and memory in use (B) of every whole GPU over time;
    scrapes need time stamps."""
    boards: dict[str, list[Board]] = {}
    for scrape in _all_scrapes(path):
        for key, board in _boards(scrape)[0].items():
            boards.setdefault(key, []).append(board)
    all_series = []
    for key, readings in boards.items():
        for name, (quantity, scale) in SERIES.items():
            pairs = np.array([(x["stamp"], x.get(name, np.nan)) for x in readings])
            times, values = pairs[np.isfinite(pairs).all(axis=1)].T
            if len(times):
                gpu = readings[0]["gpu"]
                all_series.append(Series(quantity, key, gpu, times, scale * values))
    if not all_series:
        raise ValueError(
            f"{path} has no reading of a GPU with a time stamp; export a range of them "
            "by Prometheus (`query_range`)."
        )
    return all_series


def _table(rows: list[Board], path: Path, instances: int) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    table.attrs = {"file": str(path), "notes": []}
    for name in _METRICS.values():
        if name not in table:
            table[name] = np.nan
    if instances:
        table = note(
            table,
            f"{instances} readings of MIG instances left out: their shares are of the "
            f"instance, and the board's power is not theirs.",
        )
    table = drop(table, table["gpu"] == "", "no `modelName` says which GPU it is")
    unknown = table[list(_NEEDED)].isna().any(axis=1)
    table = drop(table, unknown, f"no reading of {' and '.join(_NEEDED)}")
    wrong = ((table[list(_SHARES)] < 0) | (table[list(_SHARES)] > 1.01)).any(axis=1)
    table = drop(table, wrong, "a share of peak outside 0 to 1")
    tensor = np.count_nonzero(table["tensor_active"] > 0)
    counted = np.count_nonzero(table["power_from"] == "counter")
    table = note(
        table,
        f"power is from the energy counter in {counted} rows, else a single reading.",
        f"the tensor pipes were busy in {tensor} rows, which the op `activity` does "
        f"not count (`tensor_active`)."
        if tensor
        else "",
    )
    table["op"] = "activity"
    table["campaign"] = "dcgm"
    table[list(_SHARES)] = table[list(_SHARES)].clip(upper=1.0)
    return finish(
        name_gpus(table).drop(columns=["power", "counter", "memory", "stamp"])
    )


# --- scrapes


def _scrapes(file: Path) -> Iterator[list[Sample]]:
    """Scrapes of a file; one begins where a HELP line or a series comes again."""
    samples, series = [], set()
    for number, line in enumerate(read_text(str(file)).splitlines(), start=1):
        words = line.split()
        if not words or words[0] == "#" and words[1:2] != ["HELP"]:
            continue
        match = _SAMPLE.fullmatch(line.strip())
        if words[0] == "#":
            key = ("HELP", words[2] if len(words) > 2 else "")
        elif match is None:
            if "{" not in line and len(words) in (2, 3):
                continue  # a metric without labels: not one of a GPU
            raise ValueError(
                f"{file}, line {number}: this is cut short or no Prometheus sample; "
                f"copy the scrape again or remove the line."
            )
        else:
            key = match.group(1, 2)
        if key in series:
            yield samples
            samples, series = [], set()
        series.add(key)
        if match is not None and match.group(1) in _METRICS:
            samples.append(_sample(match, file, number))
    if samples:
        yield samples


def _sample(match: re.Match[str], file: Path, number: int) -> Sample:
    try:
        value = float(match.group(3))
    except ValueError:
        raise ValueError(
            f"{file}, line {number}: `{match.group(1)}` is '{match.group(3)}'; allowed "
            f"is a number; correct the line."
        ) from None
    stamp = float(match.group(4)) / 1e3 if match.group(4) else np.nan
    return match.group(1), dict(_LABEL.findall(match.group(2))), value, stamp


def _boards(scrape: list[Sample]) -> tuple[dict[str, Board], int]:
    """Readings of every whole GPU, and how many there are of MIG instances.

    A series that comes once per container counts once.
    """
    boards: dict[str, Board] = {}
    instances = 0
    for metric, labels, value, stamp in scrape:
        if labels.get("GPU_I_ID"):
            instances += 1
            continue
        name = _METRICS[metric]
        key = labels.get("UUID") or f"{labels.get('Hostname')}/{labels.get('gpu')}"
        board = boards.setdefault(
            key, {"gpu": labels.get("modelName", ""), "uuid": key, "stamp": stamp}
        )
        blank = BLANK_COUNTER if name == "counter" else BLANK
        board.setdefault(name, value if abs(value) < blank else np.nan)
    return boards, instances


def _power(board: Board, before: Board | None) -> Board:
    """Mean power since the scrape before, W, or else the reading of this scrape."""

    def gain(name: str) -> float:
        return board.get(name, np.nan) - (before or {}).get(name, np.nan)

    energy, length = 1e-3 * gain("counter"), gain("stamp")  # the counter is in mJ
    if energy > 0 and length > 0:  # neither unknown nor begun anew
        power = energy / length
        return {"avg_power_w": power, "power_from": "counter", "window_s": length}
    return {"avg_power_w": board.get("power", np.nan), "power_from": "reading"}
