"""Words of public data sets that differ from ours: ops, columns, tile order."""

import dataclasses
from typing import Final

import numpy as np

from .cells import POSITIVE, Sheet, numbers, texts

FIELD_ALIASES: Final = {"family": "kernel_source", "bytes": "message_bytes"}
"""Column that serves where the field's own name is no column (AIConfigurator)."""

_OPS: Final = {
    "linear": "gemm",
    "bmm": "gemm",
    "matmul": "gemm",
    "ln": "layernorm",
}
"""Op names of NeuSight and LLMCompass."""

_POINTWISE: Final = frozenset(
    "add addu mul mulu div divu pow powu relu gelu tanh".split()
)
"""Element-wise ops of NeuSight; those in `u` take a scalar as second operand."""

_VECTOR: Final = _POINTWISE | {"softmax", "ln"}
"""Ops of NeuSight's vector tables, whose shape is (batch, h)."""

_CUBLAS_COLUMNS: Final = frozenset(
    "op kernel tile_m tile_n grid_x grid_y grid_z block_x".split()
)
"""Header of NeuSight's GEMM tables: launch geometry as the profiler shows it."""


def translate(sheet: Sheet) -> tuple[Sheet, tuple[str, ...]]:
    """`sheet` in our words, and notes on what was changed.

    Known are the op names of NeuSight and LLMCompass and the shapes of NeuSight's two
    tables. Files with other words come back as they are.
    """
    if "op" not in sheet.columns:
        return sheet, ()
    words = texts(sheet, "op", np.arange(sheet.num_rows))
    columns = dict(sheet.columns)
    ours, notes = _OPS, ()
    if columns.keys() >= _CUBLAS_COLUMNS:
        notes = _cublas(sheet.file, columns, words)
    elif columns.keys() >= {"batch", "h"} and _VECTOR.issuperset(words):
        _vectors(sheet, columns, words)
        ours = _OPS | dict.fromkeys(_POINTWISE, "elementwise")
    columns["op"] = np.array([ours.get(word, word) for word in words], dtype=object)
    return dataclasses.replace(sheet, columns=columns), notes


def _cublas(
    file: str, columns: dict[str, np.ndarray], words: np.ndarray
) -> tuple[str, ...]:
    """NeuSight's GEMM tables, whose tile is the one in cuBLAS's kernel name.

    That name is column-major: its first number runs along n (`grid_x` is
    ceil(n / `tile_m`) in all A100, V100, T4 and nearly all P100 rows).
    """
    columns["tile_m"], columns["tile_n"] = columns["tile_n"], columns["tile_m"]
    columns["threads"] = columns.pop("block_x")
    columns["split_k"] = np.where(words == "linear", columns.pop("grid_z"), "")
    return (
        f"{file}: `tile_m` and `tile_n` are exchanged, since cuBLAS's kernel names are "
        f"column-major; `split_k` is `grid_z` of the op 'linear', `threads` is "
        f"`block_x`.",
    )


def _vectors(sheet: Sheet, columns: dict[str, np.ndarray], words: np.ndarray) -> None:
    """NeuSight's vector tables, whose shape is (`batch`, `h`)."""
    every = np.arange(sheet.num_rows)
    batch = numbers(sheet, "batch", every, POSITIVE, needed=True)
    length = numbers(sheet, "h", every, POSITIVE, needed=True)
    columns["rows"], columns["cols"] = columns.pop("batch"), columns.pop("h")
    columns["elements"] = batch * length
    columns["fn"] = words
