"""CodeCarbon's `emissions.csv`: GPU energy of runs; CPU and memory are not the board.

`gpu_energy` (kWh) is the sum over all GPUs of the run: each row here is one board, the
mean of them. Rows of one run grow as it goes on: the last one counts.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from .._cells import read_sheet
from .._series import Series, read_times
from .base import (
    drop,
    files_in,
    finish,
    name_gpus,
    note,
    number,
    pick,
    place_of,
    text,
)

NAME = "codecarbon"
ABOUT = "CodeCarbon's emissions.csv: GPU energy of whole runs"

_COLUMNS: Final = {
    "timestamp": text("timestamp", needed=False),
    "workload": text("project_name"),
    "run_id": text("run_id"),
    "task": text("task_name", needed=False),
    "time_s": number("duration"),
    "gpu_power": number("gpu_power", needed=False),
    "gpu_energy": number("gpu_energy"),
    "gpu_count": number("gpu_count", needed=False),
    "gpu": text("gpu_model"),
}
JOULES_PER_KWH: Final = 3.6e6
AGREE: Final = 2.0
"""Factor within which power x duration and energy agree where both are right."""
_BOARDS: Final = re.compile(r"(?:(\d+)\s*x\s*)?(.*)")
"""`gpu_model`: how many, and which."""


def wrote(lines: Sequence[str]) -> bool:
    """Whether a file that begins so is `emissions.csv`."""
    return {"run_id", "emissions"} <= {x.strip() for x in lines[0].split(",")}


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table `codecarbon`: one row a run."""
    file = path
    if not path.is_file():
        file = files_in(path, ("emissions.csv",))["emissions.csv"]
    table = _last_of_runs(pick(read_sheet(str(file)), _COLUMNS))
    none = table["gpu_energy"].isna() | (table["gpu_energy"] == 0)
    table = drop(table, none, "`gpu_energy` is 0 or empty: no GPU was measured")
    table = _per_board(table)
    table["avg_power_w"] = table["energy_j"] / table["time_s"]
    table["window_s"] = table["time_s"]
    table["campaign"] = "codecarbon"
    return {"codecarbon": finish(name_gpus(table))}


def series(path: Path) -> list[Series]:
    """Energy (J) of one GPU from each row of a run to the next one: the mean of those
    that the run used."""
    sheet = read_sheet(str(path))
    stamps = read_times(sheet, "timestamp") if "timestamp" in sheet.columns else None
    if stamps is None:
        raise ValueError(
            f"{path}: there is no column `timestamp`, so that no time is known; give "
            "CodeCarbon's own file."
        )
    ends, local = stamps
    table = pick(sheet, _COLUMNS)
    table["end"], table["start"] = ends, ends - table["time_s"].to_numpy(float)
    table = _per_board(table).sort_values("end", kind="stable")
    keys = [c for c in ("run_id", "task") if c in table]
    runs = table.groupby(keys, sort=False)
    joules = runs["energy_j"].diff().fillna(table["energy_j"])
    begin = runs["end"].shift().fillna(table["start"]).to_numpy(float)
    valid = ((joules > 0) & (table["end"] > begin)).to_numpy()
    times, ends = begin[valid], table["end"].to_numpy(float)[valid]
    values = joules.to_numpy(float)[valid]
    gpu = str(table["gpu"].iloc[0]) if len(table) else ""
    boards = int(np.max(table["gpu_count"].to_numpy(), initial=0))
    each = (times, values, ends, local)
    return [Series("energy", str(x), gpu, *each) for x in range(boards)]


def _last_of_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of every run (and task): its energies hold those of the others."""
    if "timestamp" in table:
        table = table.sort_values("timestamp", kind="stable")
    keys = [c for c in ("run_id", "task") if c in table]
    earlier = table.duplicated(keys, keep="last")
    return drop(table, earlier, "a later row of the same run holds their energy")


def _per_board(table: pd.DataFrame) -> pd.DataFrame:
    """Energy in J of one GPU; runs whose GPUs are unclear are left out."""
    table = table.copy()
    parts = table["gpu"].str.extract(_BOARDS)
    named = parts[0].astype(float)
    count = table["gpu_count"] if "gpu_count" in table else named
    count = count.fillna(named).fillna(1.0)
    unclear = (count < 1) | (named.notna() & (named != count))
    table["gpu"], table["gpu_count"] = parts[1], count
    table["energy_j"] = table["gpu_energy"] * JOULES_PER_KWH / count
    table = drop(table, unclear, "`gpu_count` and `gpu_model` do not agree")
    several = np.count_nonzero(table["gpu_count"] > 1)
    words = f"{several} runs used several GPUs: a row is the mean of them."
    table = note(table, words if several else "", *_disagreeing(table))
    return table.drop(columns=["gpu_energy", "gpu_power"], errors="ignore")


def _disagreeing(table: pd.DataFrame) -> list[str]:
    """Runs whose `gpu_power` x `duration` is far from `gpu_energy`."""
    if "gpu_power" not in table:
        return []
    expected = table["gpu_power"] * table["time_s"] / JOULES_PER_KWH
    ratio = table["gpu_energy"] / expected
    far = (table["gpu_power"] > 0) & ((ratio > AGREE) | (ratio < 1 / AGREE))
    return [
        f"{place_of(table, row)}: `gpu_energy` is {ratio[row]:.2g} x `gpu_power` x "
        "`duration`; the energy is taken, check the run."
        for row in table.index[far.to_numpy()]
    ]
