"""Attention on a GPU that was left out, by kernel family."""

import numpy as np

from diffenergy.fitting._calibrate import Settings
from diffenergy.measurements import MeasurementTable

from .base import NONE, WHOLE, Data, Fold, Mask, Score, Split, column
from .kernels import GPUS

_OPS = {"context_attention": "prefill", "generation_attention": "decode"}
_FAMILIES = (
    ("H100", "h100-sxm", "FlashAttention 3", "fa3", (9, 6), (8.5, 5.9)),
    ("H200", "h200-sxm", "FlashAttention 3", "fa3", (9, 6), (9.1, 6.0)),
    ("A100", "a100-sxm-80gb", "FlashAttention 2", "flash_attention", None, None),
    ("B200", "b200-sxm", "TensorRT-LLM", "trtllm", None, None),
    ("L40S", "l40s", "all families", "", None, None),
)
"""Label, GPU, kernel family, part of its name in the tables, goals and figures of the
study for prefill and decode."""
_SISTERS = {"h100_sxm": "h200_sxm", "h200_sxm": "h100_sxm"}
"""GPUs that run the same kernels: what one needs is fitted to the other alone."""
_ROWS = 1024
"""Fitted rows, over all GPUs."""


def _gpu_out(op: str, data: Data, i: int, seed: int) -> Fold:
    tables = {gpu: data.kernels(gpu, op, "latency") for gpu in GPUS}
    tested = tables.pop(GPUS[i])
    sister = _SISTERS.get(GPUS[i])
    fitted = [tables[sister]] if sister else list(tables.values())
    settings = Settings(seed=seed, max_rows=_ROWS, table_weight=WHOLE, max_steps=15)
    return Fold(fitted, tested, settings)


def _family(gpu: str, part: str) -> Mask:
    def rows(table: MeasurementTable, *_: object) -> np.ndarray:
        named = [part in name for name in column(table, "family").astype(str)]
        return (table.gpu == gpu) & np.array(named) & (column(table, "head_dim") < 512)

    return rows


def _split(op: str, place: int) -> Split:
    def fold(data: Data, i: int, seed: int) -> Fold:
        return _gpu_out(op, data, i, seed)

    def of(figures: tuple[float, float] | None):
        return NONE if figures is None else (figures[place], None, None)

    scores = tuple(
        Score(
            f"{label} {_OPS[op]} attention, {family}",
            _family(gpu, part),
            of(goals),
            of(studied),
            ("time",),
        )
        for label, gpu, family, part, goals, studied in _FAMILIES
    )
    name = f"{_OPS[op]}-gpu"
    return Split(name, f"{op}:forecast", "a whole GPU", len(GPUS), fold, scores)


SPLITS = tuple(_split(op, place) for place, op in enumerate(_OPS))
