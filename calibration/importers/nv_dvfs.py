"""NV-DVFS-Benchmark: CUDA programs at many clocks, as rows of the op `activity`.

Every row carries the activities, time and power of its series at the reference clock,
so that time and power at the other clocks can be predicted from them.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from diffenergy.hardware import read_gpu
from diffenergy.measurements.importers.base import (
    drop,
    files_in,
    finish,
    name_gpus,
    note,
    number,
    read_columns,
    text,
)

NAME = "nv_dvfs"
ABOUT = "converted NV-DVFS-Benchmark: activities at a reference clock, power at others"

_SERIES: Final = ("gpu", "benchmark", "kernel", "input")
_ACTIVITIES: Final = (
    "sm_active",
    "sm_occupancy",
    "dram_active",
    "fp32_active",
    "fp64_active",
)
_RUN: Final = {
    "gpu": text("gpu"),
    "benchmark": text("benchmark"),
    "kernel": text("kernel"),
    "input": text("input"),
    "sm_clock_mhz": number("sm_clock_mhz"),
    "mem_clock_mhz": number("mem_clock_mhz"),
    "time_us": number("time_us"),
    "avg_power_w": number("avg_power_w"),
}
_DCGM: Final = (
    _RUN | {"suite": text("suite")} | {name: number(name) for name in _ACTIVITIES}
)
_NVPROF: Final = _RUN | {
    "source_file": text("source_file"),
    "dram_bytes": number("dram_bytes"),
    "flop_sp": number("flop_sp"),
    "flop_dp": number("flop_dp"),
    "achieved_occupancy": number("achieved_occupancy"),
}
_REFERENCES: Final = {
    "v100-pcie": (1087.0, 877.0),
    "quadro-rtx-8000": (1305.0, 6500.0),
    "gtx-1080-ti": (1800.0, 5000.0),
}
"""Core and memory clock of the reference run, MHz, by the beginning of a GPU's name;
elsewhere the middle ones of a campaign."""

_STEMS: Final = {
    "v100_rtx8000_dcgm.csv.gz": "nv_dvfs_dcgm",
    "older_gpus_nvprof.csv.gz": "nv_dvfs_nvprof",
}


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `nv_dvfs_dcgm` and `nv_dvfs_nvprof`, as far as their files are there."""
    readers = {"nv_dvfs_dcgm": _dcgm, "nv_dvfs_nvprof": _nvprof}
    files = files_in(path, tuple(_STEMS))
    stems = {_STEMS[name]: file for name, file in files.items()}
    return {stem: readers[stem](file) for stem, file in stems.items()}


def _dcgm(file: Path) -> pd.DataFrame:
    """V100 and RTX 8000, whose activities DCGM read."""
    table = read_columns(file, _DCGM)
    v100 = table["gpu"].str.contains("V100")
    slow = v100 & (table["sm_clock_mhz"] == 405)
    jumps = (
        (table["benchmark"] == "mixbench-cuda-alt")
        & (table["kernel"] == "benchmark_double")
        & ((table["input"] == "input024") | v100 & (table["input"] == "input019"))
    )
    table = drop(table, slow, "V100 at 405 MHz, which ran at another clock")
    table = drop(table, jumps[table.index], "mixbench inputs whose time jumps")
    table["campaign"] = "nv_dvfs_dcgm"
    return _finished(name_gpus(table), [*_SERIES])


def _nvprof(file: Path) -> pd.DataFrame:
    """Older GPUs: activities from counters and the rates of our GPU files."""
    table = read_columns(file, _NVPROF)
    table = drop(table, table["dram_bytes"].isna(), "no counters (RTX 2070 SUPER)")
    table = name_gpus(table)
    table["campaign"] = table["source_file"].str.partition("@")[0]
    table = _from_counters(table)
    table["sm_occupancy"] = table["achieved_occupancy"].clip(upper=1.0)
    gone = ["dram_bytes", "flop_sp", "flop_dp", "achieved_occupancy"]
    table = note(table.drop(columns=gone), "`sm_active` was not counted: taken as 1.")
    return _finished(table, [*_SERIES, "source_file"])


def _from_counters(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with `dram_active`, `fp32_active`, `fp64_active`: rate over peak."""
    cards = {name: read_gpu(name).values for name in table["gpu"].unique()}

    def of(field: str) -> np.ndarray:
        return np.array([cards[name][field] for name in table["gpu"]])

    counted = table.copy()
    time = 1e-6 * table["time_us"]
    clocks = of("num_sms") * 1e6 * table["sm_clock_mhz"]
    rate = of("dram_bandwidth") * 1e6 * table["mem_clock_mhz"] / of("mem_clock")
    counted["dram_active"] = table["dram_bytes"] / (time * rate)
    for width, flop in (("fp32", "flop_sp"), ("fp64", "flop_dp")):
        peak = clocks * of(f"fma_flop_per_cycle_{width}")
        counted[f"{width}_active"] = table[flop] / (time * peak)
    return counted


def _finished(table: pd.DataFrame, series: list[str]) -> pd.DataFrame:
    """`table` with the reference run of every series joined to all its rows."""
    table = table.copy()
    table["series"] = table[series].agg("/".join, axis=1)
    activities = [name for name in _ACTIVITIES if name in table]
    at_reference = _at_reference(table)
    reference = table.loc[at_reference, ["series", *activities, *_REFERENCE_COLUMNS]]
    reference = reference.drop_duplicates("series").rename(columns=_REFERENCE_COLUMNS)
    reference = reference.set_index("series")
    without = ~table["series"].isin(reference.index)
    table = drop(table, without, "the series has no run at the reference clocks")
    for name in reference:
        table[name] = table["series"].map(reference[name])
    above = (table[activities] > 1).any(axis=1)
    table = drop(table, above, "an activity above 1: more than the GPU's peak")
    table["op"] = "activity"
    return finish(table)


_REFERENCE_COLUMNS: Final = {
    "time_us": "time_ref_us",
    "avg_power_w": "avg_power_ref_w",
    "sm_clock_mhz": "sm_clock_ref_mhz",
    "mem_clock_mhz": "mem_clock_ref_mhz",
}


def _at_reference(table: pd.DataFrame) -> np.ndarray:
    """Which rows were run at the reference clocks of their GPU and campaign."""
    core = table["sm_clock_mhz"].to_numpy()
    memory = table["mem_clock_mhz"].to_numpy()
    groups = (table["gpu"] + "/" + table["campaign"]).to_numpy(dtype=object)
    at = np.zeros(len(table), dtype=bool)
    for group in dict.fromkeys(groups):
        here = groups == group
        known = (pair for name, pair in _REFERENCES.items() if group.startswith(name))
        pair = next(known, (_middle(core[here]), _middle(memory[here])))
        at |= here & (core == pair[0]) & (memory == pair[1])
    return at


def _middle(clocks: np.ndarray) -> float:
    """The middle one of the clocks there are, the upper one of two."""
    distinct = np.unique(clocks)
    return float(distinct[len(distinct) // 2])
