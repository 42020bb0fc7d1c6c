"""Contents of the operands; architectures of which no power was read (passes of the
H100 and of Ampere, products of the B200); our own measurements of an H100
(`calibration/measurements`): a board, libraries and a campaign that no fit sees."""

import dataclasses
import functools
from pathlib import Path
from typing import Final

import numpy as np

from calibration.campaigns import instruments
from diffenergy import measurements
from diffenergy.corrections import CorrectionsFile, prior_file, read_corrections
from diffenergy.fitting import predict
from diffenergy.fitting._calibrate import Calibration, Settings, blanked, calibrate
from diffenergy.measurements import MeasurementTable

from .base import NONE, Data, Fold, Mask, Score, Split, everything, only
from .kernels import pairs

_STEPS, _ROWS = 12, 256
_FOLDER: Final = Path(__file__).resolve().parents[1] / "measurements"
_SILICON: Final = (
    "global",
    "architecture",
    "mma",
    "dies",
    "memory",
    "node",
    "link",
    "gpu",
)
"""Levels of all that is not a sensor."""
_RANDOM: Final = "trtllm/1.0:gemm@b200-sxm"
"""The campaign of random weights."""
_SHORT: Final = 5e-6
"""s; shorter kernels are launches."""


def contents(data: Data) -> MeasurementTable:
    """Products of the B200 above 20 us with random and with left-over weights."""
    table = data.imported("contents", "contents_gemm", "aiconfigurator")
    return only(table, table.time_s > 20e-6)


def _gemm(data: Data, *which: str) -> list[MeasurementTable]:
    return [data.kernels(gpu, "gemm", what) for gpu, what in map(str.split, which)]


def _h100(data: Data) -> np.ndarray:
    return data.passes.gpu == "h100-sxm"


def settings(tables: int, seed: int) -> Settings:
    """Settings of a fit of so many tables."""
    return Settings(seed=seed, max_rows=tables * _ROWS, max_steps=_STEPS)


def _family(data: Data, i: int, seed: int, *more: MeasurementTable) -> Fold:
    """A model family of the H100; other H100 passes and Hopper kernels are fitted."""
    table = data.passes
    family = table.frame["model"].to_numpy() == ("bertmodel", "gpt2model")[i]
    left_out = _h100(data) & family
    kernels = _gemm(data, "a100_sxm latency", "h100_sxm latency", "h200_sxm power")
    tables = [blanked(table, left_out), *kernels, contents(data), *more]
    return Fold(tables, only(table, left_out), settings(len(tables), seed))


def _family_with_ours(data: Data, i: int, seed: int) -> Fold:
    """The same with the kernels that we measured in the fit: what these are worth."""
    table = measured()
    return _family(data, i, seed, only(table, table.kind != "workload"))


def _unseen(*tags: str) -> CorrectionsFile:
    """Priors without some levels: laws of published claims stand for these."""
    file = prior_file()
    levels = {tag: factors for tag, factors in file.levels.items() if tag not in tags}
    return dataclasses.replace(file, levels=levels)


def _blind(data: Data, i: int, seed: int) -> Fold:
    """Passes of the H100 by energies of Ampere alone; of Hopper only times of single
    kernels are fitted, from which no energy follows."""
    table, left_out = data.passes, _h100(data)
    kernels = _gemm(data, "a100_sxm latency", "h100_sxm latency")
    tables = [only(table, ~left_out), *kernels]
    unseen = _unseen(
        "node:4N", "node:4NP", "memory:HBM3", "memory:HBM3e", "architecture:Hopper",
        "architecture:Blackwell",
    )  # fmt: skip
    frozen = ("architecture:Hopper", "node:4N", "gpu:h100-sxm")
    rows = dataclasses.replace(settings(len(tables), seed), freeze=frozen)
    return Fold(tables, only(table, left_out), rows, unseen)


def _without_ampere(data: Data, i: int, seed: int) -> Fold:
    """Passes of the A100 and the A10 at 900 MHz from those of the H100 and kernels of
    Hopper and Blackwell."""
    table = data.passes
    left_out = np.isin(table.frame["source"].to_numpy(), ("a100", "a10"))
    kernels = _gemm(data, "h100_sxm latency", "h200_sxm power")
    tables = [only(table, _h100(data)), *kernels, contents(data)]
    return Fold(tables, only(table, left_out), settings(len(tables), seed))


def _b200(data: Data) -> tuple[MeasurementTable, np.ndarray]:
    """Products of the B200, and which have random weights."""
    table = contents(data)
    return table, table.campaign == "trtllm/1.0"


@functools.cache
def _without_blackwell(data: Data) -> Calibration:
    """A fit of Ampere and Hopper; the process of Blackwell is forecast."""
    kernels = _gemm(data, "a100_sxm latency", "h100_sxm latency", "h200_sxm power")
    tables = [data.passes, *kernels]
    return calibrate(tables, _unseen("node:4NP"), settings(len(tables), 0))


def _silicon(data: Data, i: int, seed: int) -> Fold:
    """(n, k) pairs of the B200, random weights, by energies of Ampere and Hopper; other
    pairs tell of the B200's sensors alone."""
    table, random = _b200(data)
    silicon, left_out = _without_blackwell(data), pairs(table, 4) == i
    rows = dataclasses.replace(settings(2, seed), freeze=_SILICON)
    fit = calibrate([blanked(table, left_out)], silicon.corrections, rows)
    tested = only(table, left_out & random)
    predicted = predict(tested, fit.corrections)
    count = len(silicon.fit.z) + len(fit.fit.z)
    return Fold([], tested, rows, fit.corrections, predicted, count)


def _sensor(data: Data, i: int, seed: int) -> Fold:
    """The same by the shipped corrections, which saw the board, but with the sensor of
    the campaign at its prior."""
    table, random = _b200(data)
    shipped = read_corrections()
    sensors = shipped.instruments | {_RANDOM: instruments()[_RANDOM]}
    start = dataclasses.replace(shipped, instruments=sensors)
    tested = only(table, random)
    return Fold([], tested, Settings(), start, predict(tested, start))


def _random(data: Data, i: int, seed: int) -> Fold:
    """(n, k) pairs of the B200, both contents of them."""
    table = contents(data)
    left_out = pairs(table, 4) == i
    kernels = _gemm(data, "b200_sxm latency", "h200_sxm power")
    tables = [data.passes, *kernels, blanked(table, left_out)]
    return Fold(tables, only(table, left_out), settings(len(tables), seed))


def _of(campaign: str, least: float = 0, most: float = np.inf) -> Mask:
    def rows(table: MeasurementTable, *_: object) -> np.ndarray:
        (columns,) = table.fields.values()
        m = columns.values["m"].astype(float)
        members = (table.campaign == campaign) & (table.skipped == "")
        return members & (m > least) & (m <= most)

    return rows


@functools.cache
def measured() -> MeasurementTable:
    """Kernels in loops of their own and whole passes, clocks left to the board."""
    names = ("h100_kernels.csv", "h100_passes.csv")
    return measurements.read([str(_FOLDER / name) for name in names])


def _whole(data: Data, i: int, seed: int) -> Fold:
    """The whole campaign left out of a fit of Ampere's and Hopper's tables."""
    kernels = [
        *(data.kernels(f"{gpu}_sxm", "gemm", "latency") for gpu in ("a100", "h100")),
        *(
            data.kernels("h100_sxm", op, "latency")
            for op in ("context_attention", "generation_attention")
        ),
        data.kernels("h200_sxm", "gemm", "power"),
    ]
    tables = [data.passes, *kernels, contents(data)]
    return Fold(tables, measured(), settings(len(tables), seed))


def _kernels(*ops: str, dtypes: tuple[str, ...] = ("bf16", "fp16")) -> Mask:
    def rows(table: MeasurementTable, *_: object) -> np.ndarray:
        frame = table.frame
        random = (frame["contents"] == "random").to_numpy(bool)
        kind = np.isin(frame["dtype"].to_numpy(str), dtypes)
        return (
            random & kind & frame["op"].isin(ops).to_numpy() & (table.time_s > _SHORT)
        )

    return rows


def _below(table: MeasurementTable, *_: object) -> np.ndarray:
    """Rows below the power limit of 1,000 W."""
    return table.avg_power_w < 850


def _passes(table: MeasurementTable, *_: object) -> np.ndarray:
    """Passes that keep the GPU busy: at least 500 W."""
    return (table.kind == "workload") & (table.avg_power_w > 500)


SPLITS = (
    Split(
        "h100-family", "workload:calibrated", "model family, H100", 2, _family,
        (Score("H100 passes, 1830 MHz", everything, (6, 4, 6), NONE),),
        seeded=False,
    ),
    Split(
        "h100-family-ours", "", "model family, H100; kernels of ours fitted", 2,
        _family_with_ours,
        (Score("H100 passes, 1830 MHz", everything, (6, 4, 6), NONE),),
        seeded=False,
    ),
    Split(
        "h100-blind", "workload:forecast", "every power but that of Ampere", 1, _blind,
        (Score("H100 passes, 1830 MHz", everything, (None, 5, None), NONE),),
        seeded=False,
    ),
    Split(
        "ampere-blind", "workload:forecast", "Ampere (A100 and A10)", 1,
        _without_ampere,
        (Score("A100 and A10 passes, 900 MHz", everything, NONE, NONE),),
        seeded=False,
    ),
    Split(
        "b200-silicon", "gemm:forecast", "Blackwell's silicon, (n, k) pairs", 4,
        _silicon,
        (
            Score("B200 GEMM > 20 us, random weights", everything, (None, 10, None),
                  NONE, ("power", "energy")),
            Score("... below 850 W", _below, NONE, NONE, ("power", "energy")),
        ),
        seeded=False,
    ),
    Split(
        "b200-sensor", "", "the sensor (silicon fitted)", 1, _sensor,
        (Score("B200 GEMM > 20 us, random weights", everything, NONE, NONE,
               ("power", "energy")),),
        seeded=False,
    ),
    Split(
        "b200-contents", "gemm:calibrated", "(n, k) pairs", 4, _random,
        (
            Score("B200 GEMM > 20 us, random weights", _of("trtllm/1.0"),
                  (None, 15, None), NONE, ("power", "energy")),
            Score("... at most 64 rows", _of("trtllm/1.0", most=64), NONE, NONE,
                  ("power", "energy")),
            Score("... left-over weights", _of("vllm/0.22.0"), NONE, NONE,
                  ("power", "energy")),
        ),
        seeded=False,
    ),
    Split(
        "h100-measured", "", "the board and the campaign", 1, _whole,
        (
            Score("H100 16-bit GEMM > 5 us, torch 2.11", _kernels("gemm"), NONE, NONE),
            Score("... prefill attention", _kernels("context_attention"), NONE, NONE),
            Score("... decode attention", _kernels("generation_attention"), NONE, NONE),
            Score("... streams and reductions",
                  _kernels("elementwise", "softmax", "layernorm", "rmsnorm",
                           dtypes=("bf16", "fp32")), NONE, NONE),
            Score("... passes above 500 W", _passes, NONE, NONE),
        ),
        seeded=False,
    ),
)  # fmt: skip
