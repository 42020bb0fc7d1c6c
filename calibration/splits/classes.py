"""Kernel classes: a class that no row of was fitted, from the others of the H200."""

import numpy as np

from diffenergy.fitting._calibrate import Settings

from .base import NONE, Data, Fold, Score, Split, column, only

_OPS = ("gemm", "context_attention", "generation_attention", "moe")
_NAMES = ("GEMM", "prefill attention", "decode attention", "MoE")
_STEPS, _ROWS = 12, 256


def _class_out(data: Data, i: int, seed: int) -> Fold:
    tables = {op: data.kernels("h200_sxm", op, "power") for op in _OPS}
    tested = tables.pop(_OPS[i])
    rows = tested.time_s > 20e-6
    if "attention" in _OPS[i]:  # heads of 512 are another kernel
        rows &= column(tested, "head_dim") < 512
    elif _OPS[i] == "gemm":  # 8-bit blocks: a floor of launches below
        rows &= (column(tested, "dtype") == "bf16") | (tested.time_s > 100e-6)
    settings = Settings(seed=seed, max_rows=4 * _ROWS, max_steps=_STEPS)
    return Fold([data.passes, *tables.values()], only(tested, rows), settings)


def _of(op: str):
    return lambda table, *_: np.full(table.num_rows, op in table.fields)


SPLITS = (
    Split(
        "classes", "class:forecast", "a whole kernel class", len(_OPS), _class_out,
        tuple(
            Score(f"H200 {name}", _of(op), NONE, NONE)
            for op, name in zip(_OPS, _NAMES, strict=True)
        ),
        seeded=False,
    ),
)  # fmt: skip
