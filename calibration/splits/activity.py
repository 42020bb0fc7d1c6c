"""Programs known by their activities: clocks and benchmarks left out."""

from collections.abc import Callable, Sequence

import numpy as np

from diffenergy.corrections import CorrectionsFile, prior_file
from diffenergy.fitting._calibrate import Settings
from diffenergy.hardware import idle_power, read_gpu
from diffenergy.measurements import MeasurementTable

from .base import NONE, WHOLE, Data, Fold, Score, Split, folds_of, on, only

_CALIBRATED = {
    "v100-pcie-16gb": (705, 1087, 1380),
    "quadro-rtx-8000": (870, 1305, 1710),
}
"""SM clocks (MHz) of fitted rows; the middle one is the reference."""
_FOLDS = 6


def _clock(table: MeasurementTable) -> np.ndarray:
    return table.frame["sm_clock_mhz"].to_numpy().astype(float)


def _unseen(gpu: str) -> CorrectionsFile:
    """Priors as if the GPU's V(f) curve and idle power, which its file takes from all
    clocks, were those of any GPU: knee at 0.75 of the top clock, V there 1.25 or (not a
    data-centre card) 1.4 of the floor, half of the rise linear; idle 0.15 TDP."""
    values, start = read_gpu(gpu).values, prior_file()
    top, knee = values["sm_clock_max"], 0.75 * values["sm_clock_max"]
    rise = values["vf_floor_voltage"] * (0.25 if "v100" in gpu else 0.4)
    above = top - knee
    spec = read_gpu(gpu).spec
    start.levels[f"gpu:{gpu}"] |= {
        "voltage_knee": knee / values["vf_knee_clock"],
        "voltage_slope": rise / 2 / above / values["vf_slope"],
        "voltage_curvature": rise / 2 / above**2 / values["vf_curvature"],
        "idle_scale": 0.15 * values["tdp"] / float(idle_power(spec, spec.sm_clock_max)),
    }
    return start


def _clocks(gpu: str) -> Callable[[Data, int, int], Fold]:
    """Three clocks of every program fitted, the others predicted."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.imported("nv_dvfs", "nv_dvfs_dcgm")
        mine = table.gpu == gpu
        fitted = mine & np.isin(_clock(table), _CALIBRATED[gpu])
        settings = Settings(seed=seed, table_weight=WHOLE)
        tested = only(table, mine & ~fitted)
        return Fold([only(table, fitted)], tested, settings, _unseen(gpu))

    return fold


def _left_out(
    table: MeasurementTable, gpu: str, column: str, i: int
) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the GPU, those of fold `i` of its benchmarks)"""
    mine = table.gpu == gpu
    names = table.frame[column].to_numpy().astype(str)
    order = np.unique(names[mine])
    order = order[np.random.default_rng(0).permutation(len(order))]
    return mine, mine & (folds_of(names, order, _FOLDS) == i)


def _programs(gpu: str) -> Callable[[Data, int, int], Fold]:
    """Six folds of benchmarks, at all clocks but the reference."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.imported("nv_dvfs", "nv_dvfs_dcgm")
        mine, left_out = _left_out(table, gpu, "benchmark", i)
        tested = only(table, left_out & (_clock(table) != _CALIBRATED[gpu][1]))
        settings = Settings(seed=seed, table_weight=WHOLE)
        return Fold([only(table, mine & ~left_out)], tested, settings, _unseen(gpu))

    return fold


def _benchmarks(gpu: str) -> Callable[[Data, int, int], Fold]:
    """Six folds of micro-benchmarks, at all clock pairs."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.imported("gpmtool", "gpmtool")
        mine, left_out = _left_out(table, gpu, "benchmark_id", i)
        settings = Settings(seed=seed, table_weight=WHOLE, max_rows=2048, max_steps=20)
        return Fold([only(table, mine & ~left_out)], only(table, left_out), settings)

    return fold


def _clock_split(
    gpu: str, label: str, goal: Sequence[float], study: Sequence[float]
) -> Split:
    score = Score(label, on(gpu), tuple(goal), tuple(study))  # pyright: ignore
    left_out = "clocks, one power reading each"
    return Split(
        f"clocks-{gpu}", "activity:calibrated", left_out, 1, _clocks(gpu), (score,),
        seeded=False, part=("gpu", "sm_clock_mhz"),
    )  # fmt: skip


def _program_split(gpu: str, label: str, study: Sequence[float]) -> Split:
    score = Score(label, on(gpu), NONE, tuple(study))  # pyright: ignore
    left_out = "benchmarks, one power reading each"
    return Split(
        f"programs-{gpu}", "", left_out, _FOLDS, _programs(gpu), (score,), seeded=False
    )  # fmt: skip


def _benchmark_split(gpu: str, label: str, goal: float, study: float) -> Split:
    score = Score(label, on(gpu), (None, goal, None), (None, study, None), ("power",))
    return Split(
        f"gpmtool-{gpu}", "activity:calibrated", "benchmarks", _FOLDS,
        _benchmarks(gpu), (score,), seeded=False,
    )  # fmt: skip


SPLITS = (
    _clock_split("v100-pcie-16gb", "V100, CUDA programs", (4, 2.5, 3), (3.9, 2.5, 2.9)),
    _clock_split(
        "quadro-rtx-8000", "RTX 8000, CUDA programs", (2.5, 2.5, 3), (2.3, 2.5, 3.1)
    ),
    _program_split("v100-pcie-16gb", "V100, CUDA programs", (3.6, 2.3, 2.7)),
    _program_split("quadro-rtx-8000", "RTX 8000, CUDA programs", (2.1, 2.3, 2.8)),
    _benchmark_split("titan-xp", "TITAN Xp, micro-benchmarks", 3.5, 3.5),
    _benchmark_split("titan-x-maxwell", "TITAN X, micro-benchmarks", 6, 6.5),
    _benchmark_split("k40c", "K40c, micro-benchmarks", 11, 11.7),
)
