"""NeuSight's tables of fp32 kernels, in our words."""

import re
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from diffenergy.measurements import (
    POSITIVE,
    Sheet,
    read_numbers,
    read_sheet,
    read_texts,
)
from diffenergy.measurements.importers.base import files_in, finish, name_gpus, note

NAME = "neusight"
ABOUT = "converted NeuSight kernels: fp32 GEMM, element-wise, softmax, layernorm"

_STEMS: Final = {
    "gemm_fp32.csv.gz": "neusight_gemm",
    "vector_fp32.csv.gz": "neusight_vector",
}

_OPS: Final = {
    "linear": "gemm",
    "bmm": "gemm",
    "ln": "layernorm",
}
"""Op names of NeuSight."""

_POINTWISE: Final = frozenset(
    "add addu mul mulu div divu pow powu relu gelu tanh".split()
)
"""Element-wise ops of NeuSight; those in `u` take a scalar as second operand."""

_TWO_TENSORS: Final = ("add", "mul", "div", "pow")

_VECTOR: Final = _POINTWISE | {"softmax", "ln"}
"""Ops of NeuSight's vector tables, whose shape is (batch, h)."""

_CUBLAS_COLUMNS: Final = frozenset(
    "op kernel tile_m tile_n grid_x grid_y grid_z block_x".split()
)
"""Header of NeuSight's GEMM tables: launch geometry as the profiler shows it."""

_SLICED: Final = re.compile(r"sliced1x(\d+)")
"""Part of cuBLAS's kernel names: groups of warps that share the k of a tile."""


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `neusight_gemm` and `neusight_vector`."""
    files = files_in(path, tuple(_STEMS))
    return {_STEMS[name]: _kernels(file) for name, file in files.items()}


def _kernels(file: Path) -> pd.DataFrame:
    words = "whole models (`e2e_models_fp32.csv`) are left out: no listing names them."
    return finish(note(name_gpus(translated(file)), words))


def translated(file: Path) -> pd.DataFrame:
    """Every row of a file in our columns, with a note on what was changed."""
    sheet = read_sheet(str(file))
    for name in ("gpu", "op", "dtype", "time_us"):
        if name not in sheet.columns:
            raise ValueError(
                f"{file}: there is no column for `{name}`; give a file of this format."
            )
    every = np.arange(sheet.num_rows)
    words, columns = read_texts(sheet, "op", every), dict(sheet.columns)
    ours, notes = _OPS, ()
    if columns.keys() >= _CUBLAS_COLUMNS:
        notes = _cublas(sheet, columns, words)
    elif columns.keys() >= {"batch", "h"} and _VECTOR.issuperset(words):
        _vectors(sheet, columns, words)
        ours = _OPS | dict.fromkeys(_POINTWISE, "elementwise")
    columns["op"] = np.array([ours.get(word, word) for word in words], dtype=object)
    columns["time_us"] = read_numbers(sheet, "time_us", every, POSITIVE)
    table = pd.DataFrame(columns).assign(campaign=NAME)
    table.attrs = {"file": sheet.file, "notes": list(notes)}
    return table


def _cublas(
    sheet: Sheet, columns: dict[str, np.ndarray], words: np.ndarray
) -> tuple[str, ...]:
    """GEMM tables, whose tile is the one in cuBLAS's kernel name.

    That name is column-major: its first number runs along n (`grid_x` is
    ceil(n / `tile_m`) in all A100, V100, T4 and nearly all P100 rows). Rows whose grid
    has nearer as many CTAs the other way round (some of the H100) keep their order.
    """
    printed_m, printed_n = columns["tile_m"], columns["tile_n"]
    row_major = _row_major(sheet)
    columns["tile_m"] = np.where(row_major, printed_m, printed_n)
    columns["tile_n"] = np.where(row_major, printed_n, printed_m)
    columns["threads"] = columns.pop("block_x")
    linear = words == "linear"
    columns["split_k"] = np.where(linear, columns.pop("grid_z"), "")
    columns["layout"] = np.where(linear, "tn", "nn").astype(object)
    columns["weights"] = np.where(linear, "b", "none").astype(object)
    sliced = (_SLICED.search(name) for name in columns["kernel"])
    columns["slices"] = np.array([x[1] if x else "1" for x in sliced], dtype=object)
    columns["family"] = words
    return (
        f"{sheet.file}: `tile_m` and `tile_n` are exchanged where the grid says so "
        f"({len(row_major) - row_major.sum()} of {len(row_major)} rows), since "
        "cuBLAS's kernel names are column-major; `split_k` is `grid_z` of the op "
        "'linear', `threads` is `block_x`.",
    )


def _row_major(sheet: Sheet) -> np.ndarray:
    """Whether the printed tile explains the number of CTAs better with its first
    number along m than along n."""
    every = np.arange(sheet.num_rows)
    m, n, tile_m, tile_n, across, down = (
        read_numbers(sheet, name, every, POSITIVE, needed=True)
        for name in ("m", "n", "tile_m", "tile_n", "grid_x", "grid_y")
    )

    def off(along_m: np.ndarray, along_n: np.ndarray) -> np.ndarray:
        tiles = np.ceil(m / along_m) * np.ceil(n / along_n)
        return np.abs(np.log(tiles / (across * down)))

    return off(tile_m, tile_n) < off(tile_n, tile_m)


def _vectors(sheet: Sheet, columns: dict[str, np.ndarray], words: np.ndarray) -> None:
    """Vector tables, whose shape is (`batch`, `h`)."""
    every = np.arange(sheet.num_rows)
    batch = read_numbers(sheet, "batch", every, POSITIVE, needed=True)
    length = read_numbers(sheet, "h", every, POSITIVE, needed=True)
    columns["rows"], columns["cols"] = columns.pop("batch"), columns.pop("h")
    columns["elements"] = batch * length
    columns["reads"] = np.where(np.isin(words, _TWO_TENSORS), 2.0, 1.0)
    columns["fn"] = columns["family"] = words
