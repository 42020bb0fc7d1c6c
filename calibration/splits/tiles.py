"""Hand-made tiles: one fp32 product of 4096^3 in thousands of tiles, a GPU left out."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.importers import kernel_tuner_tiles
from diffenergy.fitting._calibrate import Settings
from diffenergy.measurements import MeasurementTable

from .base import WHOLE, Data, Fold, Score, Split, as_table, on, only

FAST = 1.5
"""Tiles within this ratio of the best of their GPU are sampled once more: they are few,
and they are what a search looks for."""
ROWS = 128
"""Rows of each of the two samples of a GPU."""
_GPUS = (
    ("A100 PCIe", "a100-pcie-40gb", (0.9, 1.1), (0.941, 1.015)),
    ("V100 PCIe", "v100-pcie-32gb", (0.9, 1.1), (0.939, 1.0)),
    ("RTX 2070 Super", "rtx-2070-super", (0.9, 1.1), (0.977, 1.149)),
    ("GTX 1080 Ti", "gtx-1080-ti", (0.85, 1.1), (0.868, 1.029)),
    ("TITAN X", "titan-x-maxwell", (0.85, 1.1), (0.877, 1.0)),
    ("K20m", "k20m", (0.85, 1.2), (0.627, 1.195)),
    ("MI50", "mi50", (0.85, 1.1), (0.853, 1.033)),
)
"""Label, GPU, goal and figures of the study: rank and pick (`figures`)."""
GPUS = tuple(gpu for _, gpu, *_ in _GPUS)


@functools.cache
def _sweeps(folder: Path) -> MeasurementTable:
    """All tiles of all GPUs."""
    (table,) = kernel_tuner_tiles.read(folder / "kernel_tuner_tiles").values()
    return as_table(table)


def _gpu_out(data: Data, i: int, seed: int) -> Fold:
    table = _sweeps(data.folder)
    fitted = []
    for gpu in (*GPUS[:i], *GPUS[i + 1 :]):
        mine = table.gpu == gpu
        fast = mine & (table.time_s < FAST * table.time_s[mine].min())
        fitted += [only(table, mine), only(table, fast)]
    settings = Settings(
        seed=seed, max_rows=len(fitted) * ROWS, table_weight=WHOLE, max_steps=20
    )
    return Fold(fitted, only(table, table.gpu == GPUS[i]), settings)


def figures(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Rank correlation over all tiles; time of the tile that is predicted fastest, and
    of the best of the ten predicted fastest / that of the fastest."""
    times = measured[np.argsort(predicted, kind="stable")] / measured.min()
    rank = pd.Series(measured).corr(pd.Series(predicted), method="spearman")
    return {
        "rank": float(rank),
        "pick": float(times[0]),
        "of ten": float(times[:10].min()),
    }


def _text(rank_and_pick: tuple[float, float]) -> str:
    return "rank {:.2f}, pick {:.2f}".format(*rank_and_pick)


SPLITS = (
    Split(
        "tiles-gpu", "", "a whole GPU", len(GPUS), _gpu_out,
        tuple(
            Score(f"{label}, all tiles of an fp32 GEMM", on(gpu), _text(goal),
                  _text(study), ("time",), figures)
            for label, gpu, goal, study in _GPUS
        ),
    ),
)  # fmt: skip
