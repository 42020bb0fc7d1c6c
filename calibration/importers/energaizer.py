"""EnergAIzer's measured passes: `test/data/measurements/*/nvml/nvml_parsed.csv`.

A checkout of the artifact or one such file. Each file is a campaign, named by its
folder (a10, a100, a100_dvfs, h100), which also names the GPU where no column does.
Energy and time of a pass are in the unit that the column's name ends in; J and ms where
it has none.
"""

import re
from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements import read_sheet
from diffenergy.measurements.importers.base import (
    drop,
    finish,
    join,
    name_gpus,
    note,
    number,
    pick,
    text,
)

NAME = "energaizer"
ABOUT = "a checkout of the EnergAIzer artifact: measured passes with energy"

_COLUMNS: Final = {
    "gpu": text("gpu", "gpu_name", "device", needed=False),
    "name": text("workload", "name", "workload_name", "experiment", needed=False),
    "model": text("model", "model_name", needed=False),
    "config": text("config", "model_config", needed=False),
    "precision": text("precision", "dtype", needed=False),
    "batch": number("batch", "batch_size", needed=False),
    "seq_len": number("seq_len", "seqlen", "sequence_length", needed=False),
    "mode": text("mode", "phase", needed=False),
    "attention": text("attention", "attn", "attn_impl", needed=False),
    "sm_clock_mhz_set": number(
        "sm_clock_mhz_set", "sm_clock_set", "clock_set", "set_clock", needed=False
    ),
    "sm_clock_mhz_avg": number(
        "sm_clock_mhz_avg", "sm_clock_avg", "avg_sm_clock", "sm_clock", "clock",
        needed=False,
    ),
    "temperature_c": number(
        "temperature_c", "temperature", "avg_temperature", "temp", needed=False
    ),
    "iterations": number("iterations", "num_iterations", "num_iters", "iters"),
}  # fmt: skip
_ENERGY: Final = {
    "energy_j_per_iter": 1.0,
    "energy_per_iter": 1.0,
    "energy_j": 1.0,
    "energy": 1.0,
    "energy_mj_per_iter": 1e-3,
    "energy_mj": 1e-3,
}
_TIME: Final = {
    "time_ms_per_iter": 1.0,
    "time_per_iter": 1.0,
    "latency_ms": 1.0,
    "time_ms": 1.0,
    "time_s_per_iter": 1e3,
    "time_s": 1e3,
    "latency": 1.0,
    "time": 1.0,
}
"""Spellings of energy and time of one pass, with their scale to J and ms."""

_NAME: Final = re.compile(
    r"(?P<model>[^_]+)_(?P<config>[^_]+)_p(?P<precision>[a-z0-9]+)_b(?P<batch>\d+)"
    r"(?:_s(?P<seq_len>\d+))?_mode(?P<mode>[a-z]+)(?:_attn(?P<attention>[a-z]+))?"
    r"(?:_(?:f|freq|clk)(?P<sm_clock_mhz_set>\d+))?"
)
"""Name of a workload in the artifact, which says what ran."""

_GPUS: Final = {"a10": "a10", "a100": "a100-pcie-40gb", "h100": "h100-sxm"}
"""GPU of a campaign, by the first part of its folder's name."""
LEAST_WINDOW: Final = 5.0
"""s; runs are polled for about 31 s, those of a worker that died for 1-2 s."""


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table `measurements`: one row a measured pass, all campaigns."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; check the path.")
    files = [path] if path.is_file() else sorted(path.rglob("nvml/nvml_parsed.csv"))
    if not files:
        raise ValueError(
            f"{path} has no `nvml/nvml_parsed.csv` under it; give a checkout of the "
            f"EnergAIzer artifact."
        )
    return {"measurements": finish(name_gpus(join([_passes(f) for f in files])))}


def _passes(file: Path) -> pd.DataFrame:
    """Rows of one campaign."""
    sheet = read_sheet(str(file))
    energy = next((c for c in _ENERGY if c in sheet.columns), "energy_j_per_iter")
    time = next((c for c in _TIME if c in sheet.columns), "time_ms_per_iter")
    readings = {"energy_j_per_iter": number(energy), "time_ms_per_iter": number(time)}
    table = pick(sheet, _COLUMNS | readings)
    table["energy_j_per_iter"] *= _ENERGY[energy]
    table["time_ms_per_iter"] *= _TIME[time]
    source = file.parent.parent.name
    table["source"] = source
    if "gpu" not in table:
        table["gpu"] = _GPUS.get(source.split("_")[0].lower(), source)
    table = _named(table)
    table["avg_power_w"] = 1e3 * table["energy_j_per_iter"] / table["time_ms_per_iter"]
    table["window_s"] = table["iterations"] * table["time_ms_per_iter"] / 1e3
    if {"sm_clock_mhz_set", "sm_clock_mhz_avg"} <= set(table):
        table["throttled"] = table["sm_clock_mhz_avg"] < table["sm_clock_mhz_set"] - 5
    dead = table["window_s"] < LEAST_WINDOW
    return drop(table, dead, f"polled for less than {LEAST_WINDOW:g} s, a dead run")


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """What ran, from the columns and else from the workload's name."""
    if "name" in table:
        parts = table["name"].str.extract(_NAME)
        unread = parts["model"].isna().to_numpy()
        for field in parts:
            if field not in table and parts[field].notna().any():
                values = parts[field]
                is_number = field in ("batch", "seq_len", "sm_clock_mhz_set")
                table[field] = values.astype(float) if is_number else values.fillna("")
        table = table.rename(columns={"name": "workload"})
        if "model" in parts and unread.any():
            table = drop(table, unread, "the name does not say what ran")
    needed = ("model", "precision", "batch", "mode")
    missing = [name for name in needed if name not in table]
    if missing:
        raise ValueError(
            f"{table.attrs['file']}: there is no column for `{missing[0]}` and no "
            f"workload name that holds it; give the artifact's own file."
        )
    if "attention" not in table:
        table = note(table, "attention is not recorded: eager or unknown.")
    return table
