"""gpmTOOL's microbenchmarks: board power over core and memory clocks, no times.

Rows of the op `activity`: the utilisations are those at the default clocks.
"""

from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements import read_sheet
from diffenergy.measurements.importers.base import (
    drop,
    files_in,
    finish,
    name_gpus,
    number,
    pick,
    text,
)

NAME = "gpmtool"
ABOUT = "converted gpmTOOL microbenchmarks: power and utilisations over clocks"

_RUN: Final = {
    "gpu": text("gpu"),
    "benchmark_id": text("benchmark_id"),
    "avg_power_w": number("avg_power_w"),
    "sm_clock_mhz": number("sm_clock_mhz"),
    "mem_clock_mhz": number("mem_clock_mhz"),
}
_REFERENCES: Final = {
    "titan-x-maxwell": (975.0, 3505.0),
    "titan-xp": (1404.0, 5705.0),
    "k40c": (875.0, 3004.0),
}
"""Default core and memory clock, MHz, at which the utilisations were counted."""
LOWEST, HIGHEST = -1e-3, 1.01
"""Utilisations beyond these are broken counters, within them rounding."""
_FILE: Final = "microbenchmark_power.csv.gz"


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table `gpmtool`."""
    sheet = read_sheet(str(files_in(path, (_FILE,))[_FILE]))
    shares = [name for name in sheet.columns if name.startswith("util_")]
    if not shares:
        raise ValueError(
            f"{sheet.file}: there is no column `util_...`; check the file."
        )
    table = pick(sheet, _RUN | {name: number(name) for name in shares})
    broken = ((table[shares] < LOWEST) | (table[shares] > HIGHEST)).any(axis=1)
    table = drop(table, broken, f"a utilisation outside {LOWEST:g} to {HIGHEST:g}")
    table[shares] = table[shares].clip(0.0, 1.0)
    table["series"] = table["gpu"] + "/" + table["benchmark_id"]
    table = name_gpus(table)
    unknown = ~table["gpu"].isin(list(_REFERENCES))
    table = drop(table, unknown, "the clocks of the utilisations are not known")
    for index, name in enumerate(("sm_clock_ref_mhz", "mem_clock_ref_mhz")):
        table[name] = [_REFERENCES[gpu][index] for gpu in table["gpu"]]
    table["op"] = "activity"
    table["campaign"] = "gpmtool"
    return {"gpmtool": finish(table)}
