"""Exhaustive sweeps of CLBlast's fp32 GEMM over tiles, 4096 x 4096 x 4096."""

from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements.importers.base import (
    files_in,
    finish,
    name_gpus,
    note,
    number,
    read_columns,
    text,
)

NAME = "kernel_tuner_tiles"
ABOUT = "converted Kernel Tuner sweeps of CLBlast GEMM: time of every tile"

SIZE: Final = 4096.0
KWG: Final = 32.0
"""Depth of a main-loop step, fixed in the sweeps."""
_OWN: Final = ("mdimc", "ndimc", "mdima", "ndimb", "vwm", "vwn", "sa", "sb")
_COLUMNS: Final = {
    "gpu": text("gpu"),
    "tile_m": number("mwg"),
    "tile_n": number("nwg"),
    **{name: number(name) for name in _OWN},
    "time_us": number("time_us"),
    "time_std_us": number("time_std_us", needed=False),
    "time_min_us": number("time_min_us", needed=False),
}
_FILE: Final = "gemm_fp32_4096.csv.gz"


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table `kernel_tuner_gemm`."""
    table = read_columns(files_in(path, (_FILE,))[_FILE], _COLUMNS)
    table = name_gpus(table)
    table["op"] = "clblast_gemm"
    table["m"] = table["n"] = table["k"] = SIZE
    table["dtype"] = "fp32"
    table["tile_k"] = KWG
    table["threads"] = table["mdimc"] * table["ndimc"]
    table["campaign"] = "kernel_tuner_clblast"
    words = "the convolutions are left out: one channel, which no op describes."
    return {"kernel_tuner_gemm": finish(note(table, words))}
