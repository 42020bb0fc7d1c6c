"""Zeus: logs of `ZeusMonitor` and the training traces of the NSDI'23 artifact.

A log has one line a window with the energy of every GPU (`gpu0_energy`, J): here one
row a window and GPU, so that nothing counts twice. A trace (`summary_power_<gpu>.csv`)
has the time and mean power of a training epoch by power limit.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from .._cells import read_sheet
from .base import drop, finish, join, name_gpus, note, number, pick, text

NAME = "zeus"
ABOUT = "ZeusMonitor logs (energy of windows) and summary_power_*.csv of the artifact"

_TRACE: Final = {
    "dataset": text("dataset"),
    "network": text("network", "model"),
    "batch_size": number("batch_size", "batch"),
    "optimizer": text("optimizer"),
    "power_limit_w": number("power_limit", "power_limit_w"),
    "time_s": number("time_per_epoch", "time_per_epoch_s"),
    "avg_power_w": number("average_power", "avg_power_w"),
    "gpu": text("gpu", needed=False),
}
_BOARDS: Final = {
    "v100": "Tesla V100-PCIE-32GB",
    "p100": "Tesla P100-PCIE-16GB",
    "rtx6000": "Quadro RTX 6000",
    "a40": "NVIDIA A40",
}
"""GPU in the name of a trace; PCIe boards, by their range of limits."""
_ENERGY: Final = re.compile(r"gpu(\d+)_energy")


def wrote(lines: Sequence[str]) -> bool:
    """Whether a file that begins so is a log of `ZeusMonitor`."""
    return {"window_name", "elapsed_time"} <= {x.strip() for x in lines[0].split(",")}


def read(path: Path) -> dict[str, pd.DataFrame]:
    """One table for every file of the two kinds; other files in a folder are left."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; check the path.")
    files = [path] if path.is_file() else sorted(path.glob("*.csv"))
    tables = {}
    for file in files:
        columns = read_sheet(str(file)).columns
        if "elapsed_time" in columns:
            tables[f"zeus_{file.stem}"] = _windows(file)
        elif {"optimizer", "dataset"} <= columns.keys():
            tables[f"zeus_{file.stem}"] = _trace(file)
        elif path.is_file():
            raise ValueError(
                f"{file}: this is no log of ZeusMonitor (columns `elapsed_time`, "
                f"`gpu0_energy`, ...) and no power trace (`dataset`, `network`, "
                f"`time_per_epoch`, ...); give one of them."
            )
    if not tables:
        raise ValueError(f"{path} has no log or trace of Zeus; give the file itself.")
    return tables


def _windows(file: Path) -> pd.DataFrame:
    """Rows of a log: one for every window and GPU."""
    sheet = read_sheet(str(file))
    boards = [found for c in sheet.columns if (found := _ENERGY.fullmatch(c))]
    if not boards:
        raise ValueError(
            f"{file}: there is no column `gpu0_energy`; a log without the energy of a "
            f"GPU says nothing; measure with `ZeusMonitor(gpu_indices=[0])`."
        )
    wanted = {
        "start": number("start_time", needed=False),
        "workload": text("window_name", "window"),
        "time_s": number("elapsed_time"),
    }
    parts = []
    for found in boards:
        part = pick(sheet, wanted | {"energy_j": number(found.group())})
        part["gpu_index"] = int(found.group(1))
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


def _trace(file: Path) -> pd.DataFrame:
    """Rows of a trace: one epoch of training under a power limit."""
    table = pick(read_sheet(str(file)), _TRACE)
    if "gpu" not in table:
        word = file.stem.rsplit("_", 1)[-1].lower()
        table["gpu"] = _BOARDS.get(word, word)
    program = table["dataset"] + "/" + table["network"] + "/" + table["optimizer"]
    table["workload"] = program + "/b" + table["batch_size"].map("{:g}".format)
    table["campaign"] = "zeus_nsdi23"
    over = table["avg_power_w"] > 1.05 * table["power_limit_w"]
    why = "more than 1.05 x the power limit, which the board cannot hold"
    return finish(name_gpus(drop(table, over, why)))
