"""NeuSight's tables of fp32 kernels, whose words `measurements.read` knows."""

from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements import read_sheet
from diffenergy.measurements.importers.base import (
    files_in,
    finish,
    name_gpus,
    note,
    number,
    pick,
    text,
)

NAME = "neusight"
ABOUT = "converted NeuSight kernels: fp32 GEMM, element-wise, softmax, layernorm"

_NUMBERS: Final = (
    "batch",
    "m",
    "n",
    "k",
    "h",
    "time_us",
    "tile_m",
    "tile_n",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
)
_STEMS: Final = {
    "gemm_fp32.csv.gz": "neusight_gemm",
    "vector_fp32.csv.gz": "neusight_vector",
}


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `neusight_gemm` and `neusight_vector`, in NeuSight's own columns."""
    files = files_in(path, tuple(_STEMS))
    return {_STEMS[name]: _kernels(file) for name, file in files.items()}


def _kernels(file: Path) -> pd.DataFrame:
    sheet = read_sheet(str(file))
    wanted = {
        name: number(name) if name in _NUMBERS else text(name) for name in sheet.columns
    }
    needed = {name: text(name) for name in ("gpu", "op", "dtype")}
    table = pick(sheet, needed | {"time_us": number("time_us")} | wanted)
    table["campaign"] = "neusight"
    words = "whole models (`e2e_models_fp32.csv`) are left out: no listing names them."
    return finish(note(name_gpus(table), words))
