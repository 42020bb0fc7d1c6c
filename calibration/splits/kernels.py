"""Kernels: shapes of the H200, of the MI300X and the MI355X, GPUs and an architecture
left out."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from calibration.campaigns import meter
from calibration.campaigns.formulas import idle_before, series_shares
from calibration.campaigns.instruments import Sensor
from calibration.campaigns.reading import CampaignReading
from diffenergy.corrections import (
    CorrectionsFile,
    prior_file,
    prior_levels,
    read_corrections,
)
from diffenergy.corrections._priors import CDNA
from diffenergy.fitting import predict
from diffenergy.fitting._batches import batches
from diffenergy.fitting._calibrate import Calibration, Settings, blanked, calibrate
from diffenergy.fitting._parameters import Parameter
from diffenergy.measurements import MeasurementTable, Predictions
from diffenergy.records import as_float

from .base import (
    NONE,
    WHOLE,
    Data,
    Fold,
    Mask,
    Score,
    Split,
    column,
    everything,
    folds_of,
    only,
)  # fmt: skip
from .passes import PASS_STEPS

GPUS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")


def longer(table: MeasurementTable, bf16: float, fp8_block: float) -> np.ndarray:
    wide = column(table, "dtype") == "bf16"
    return table.time_s > np.where(wide, bf16, fp8_block)


def pairs(table: MeasurementTable, count: int) -> np.ndarray:
    """Fold of every row by its (n, k): sorted names, shuffled with seed 0."""
    n, k = (column(table, x).astype(int) for x in "nk")
    names = np.array([f"{a}x{b}" for a, b in zip(n, k, strict=True)])
    order = np.array(sorted(set(names)))
    np.random.default_rng(0).shuffle(order)
    return folds_of(names, order, count)


def _gemm_power(data: Data, i: int, seed: int) -> Fold:
    table = data.kernels("h200_sxm", "gemm", "power")
    scope, left_out = longer(table, 20e-6, 100e-6), pairs(table, 4) == i
    return Fold(
        [only(blanked(table, left_out), scope & ~left_out)],
        only(table, left_out),
        Settings(seed=seed, max_rows=1100, table_weight=WHOLE, max_steps=15),
    )


def _layouts(op: str, keys: Sequence[str]) -> Callable[[Data, int, int], Fold]:
    """Layouts (`keys`) left out: sorted, permuted with RandomState(0), five folds."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.kernels("h200_sxm", op, "power")
        scope = np.ones(table.num_rows, bool)
        if op != "moe":  # heads of 512 are another kernel
            scope = column(table, "head_dim") < 512
        rows = list(zip(*(column(table, key).astype(int) for key in keys), strict=True))
        groups = np.empty(len(rows), object)
        groups[:] = rows
        names = sorted({rows[j] for j in np.flatnonzero(scope)})
        order = np.random.RandomState(0).permutation(len(names))
        left_out = folds_of(groups, [names[j] for j in order], 5) == i  # pyright: ignore
        return Fold(
            [only(blanked(table, left_out), scope & ~left_out)],
            only(table, left_out),
            Settings(seed=seed, max_rows=2100, table_weight=WHOLE, max_steps=20),
        )

    return fold


def _gpu_out(data: Data, i: int, seed: int) -> Fold:
    tables = {}
    for gpu in GPUS:
        table = data.kernels(gpu, "gemm", "latency")
        wide = column(table, "dtype") == "bf16"
        tables[gpu] = only(table, wide & (table.time_s > 20e-6))
    del tables[GPUS[i]]
    tested = data.kernels(GPUS[i], "gemm", "latency")
    settings = Settings(seed=seed, max_rows=4 * 256, table_weight=WHOLE, max_steps=12)
    return Fold(list(tables.values()), tested, settings)


def _heads_to_256(table: MeasurementTable, *_: object) -> np.ndarray:
    """Rows of heads up to 256: heads of 512 run another kernel."""
    return column(table, "head_dim") < 512


def _long_heads(table: MeasurementTable, *_: object) -> np.ndarray:
    return _heads_to_256(table) & (table.time_s > 333e-6)


def _at_least(seconds: float) -> Mask:
    return lambda table, *_: table.time_s > seconds


def _scored(table: MeasurementTable, *_: object) -> np.ndarray:
    return longer(table, 20e-6, 100e-6)


def _bf16_over_50(table: MeasurementTable, *_: object) -> np.ndarray:
    return (column(table, "dtype") == "bf16") & (table.time_s > 50e-6)


def settled(
    table: MeasurementTable, predicted: Predictions, corrections: CorrectionsFile
) -> np.ndarray:
    """Rows whose sensor window the measurement model takes for full (a hot share above
    0.9), predicted below 660 W."""
    full = np.zeros(table.num_rows, bool)
    for batch in batches(table, corrections):
        here = batch.rows >= 0
        rows = np.where(here, batch.rows, batch.rows[0])
        sensor = batch.meter(**batch.meter_constants)
        assert isinstance(batch.reading, CampaignReading) and isinstance(sensor, Sensor)
        i = batch.reading.instrument
        cold, warm = series_shares(i, sensor, as_float(predicted.time_s[rows]))
        share = np.where(np.asarray(idle_before(i)) > 0.02, cold, warm)
        narrow = (np.asarray(i.narrow) > 0) & (np.asarray(idle_before(i)) < 0.02)
        full[batch.rows[here]] = (np.where(narrow, 1.0, share) > 0.9)[here]
    return full & (predicted.avg_power_w < 660) & longer(table, 20e-6, 100e-6)


def _wide_on(name: str) -> Mask:
    """bf16 rows above 20 us of one GPU."""
    return lambda table, *_: (table.gpu == name) & longer(table, 20e-6, np.inf)


def _hopper_from_ampere(data: Data, i: int, seed: int) -> Fold:
    """A100 and A10 passes and A100 GEMM; the sensor of the H200 rows at its prior."""
    table = data.kernels("h200_sxm", "gemm", "power")
    wide = column(table, "dtype") == "bf16"
    ampere, passes = data.kernels("a100_sxm", "gemm", "latency"), data.passes
    start = prior_file()
    return Fold(
        [only(passes, passes.gpu != "h100-sxm"), only(ampere, ampere.time_s > 20e-6)],
        only(table, wide & (table.time_s > 20e-6)),
        Settings(seed=seed, max_rows=256, max_steps=PASS_STEPS),
        meter.begin(table, start),
    )


CDNA_TAGS: Final = ("architecture:CDNA3", "architecture:CDNA4")
_CDNA_FREE: Final = tuple(Parameter(tag, name) for tag in CDNA_TAGS for name in CDNA)
_CDNA_ROWS: Final = 2400
_CDNA_STEPS: Final = 20


def cdna_rows(data: Data) -> MeasurementTable:
    """Products above 15 us, the product alone."""
    return data.imported("aiter", "aiter_gemm", "aiter_amd")


def cdna_unfitted() -> CorrectionsFile:
    """The shipped constants with those of both architectures at their priors."""
    shipped, priors = read_corrections(), prior_levels()
    levels = shipped.levels | {tag: priors[tag] for tag in CDNA_TAGS}
    return dataclasses.replace(shipped, levels=levels)


def cdna_refit(table: MeasurementTable, seed: int = 0) -> Calibration:
    """Rates of both architectures from their priors, all else as shipped."""
    settings = Settings(
        seed=seed, max_rows=_CDNA_ROWS, table_weight=WHOLE, max_steps=_CDNA_STEPS
    )
    return calibrate([table], cdna_unfitted(), settings, among=_CDNA_FREE)


def _cdna(data: Data, i: int, seed: int) -> Fold:
    table = cdna_rows(data)
    left_out = pairs(table, 4) == i
    refit = cdna_refit(only(blanked(table, left_out), ~left_out), seed)
    tested = only(table, left_out)
    predicted = predict(tested, refit.corrections)
    return Fold(
        [], tested, Settings(seed=seed), refit.corrections, predicted, len(_CDNA_FREE)
    )


def _family(gpu: str, *families: str) -> Mask:
    def mask(table: MeasurementTable, *_: object) -> np.ndarray:
        return (table.gpu == gpu) & np.isin(table.frame["source_op"], families)

    return mask


_CDNA_LINES: Final = (
    ("MI300X GEMM > 15 us, block-scaled fp8", "mi300x", ("a8w8_blockscale",), 10),
    ("... fp8, shuffled weights", "mi300x", ("a8w8_bpreshuffle",), 15),
    ("MI355X GEMM > 15 us, block-scaled fp8", "mi355x", ("a8w8_blockscale",), 10),
    ("... block-scaled fp8, shuffled weights", "mi355x",
     ("a8w8_blockscale_bpreshuffle",), 10),
    ("... fp8, shuffled weights", "mi355x", ("a8w8_bpreshuffle",), 18),
    ("... int8", "mi355x", ("a8w8",), 25),
    ("... fp4", "mi355x", ("a4w4_blockscale",), 23),
    ("... bf16", "mi355x", ("bf16",), 18),
)  # fmt: skip
"""Title, GPU, families, goal in percent: that of other families than block-scaled fp8
and bf16 is the error at the price of 7 nm."""


_PREFILL = ("num_heads", "num_kv_heads")
_EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts")
_LONG = ("power", "energy")

SPLITS = (
    Split(
        "h200-gemm", "gemm:calibrated", "(n, k) pairs", 4, _gemm_power,
        (
            Score("H200 GEMM > 20 us (fp8_block > 100 us)", _scored, (6, 6, 10),
                  (5.9, 5.6, 9.3)),
            Score("... bf16 > 50 us", _bf16_over_50, (5, 4, 7), (4.7, 3.4, 6.8)),
            Score("... settled, predicted < 660 W", settled, (6, 7, 10),
                  (5.8, 6.8, 10.5)),
        ),
    ),
    Split(
        "h200-prefill", "context_attention:calibrated", "head layouts", 5,
        _layouts("context_attention", _PREFILL),
        (
            Score("H200 prefill attention", _heads_to_256, (8.3, None, None),
                  (8.3, None, None), ("time",)),
            Score("... > 333 us", _long_heads, (None, 15, 18),
                  (None, 16.7, 18.7), _LONG),
        ),
    ),
    Split(
        "h200-decode", "generation_attention:calibrated", "head layouts", 5,
        _layouts("generation_attention", _PREFILL),
        (
            Score("H200 decode attention", _heads_to_256, (6, None, None),
                  (6.1, None, None), ("time",)),
            Score("... > 333 us", _long_heads, (None, 10.5, 12),
                  (None, 10.8, 11.9), _LONG),
        ),
    ),
    Split(
        "h200-moe", "moe:calibrated", "expert layouts", 5, _layouts("moe", _EXPERTS),
        (
            Score("H200 MoE", everything, (7.5, None, None), (7.8, None, None),
                  ("time",)),
            Score("... > 333 us", _at_least(333e-6), (None, 9, 12),
                  (None, 9.7, 12.5), _LONG),
        ),
    ),
    Split(
        "gemm-gpu", "gemm:forecast", "a whole GPU", 5, _gpu_out,
        tuple(
            Score(f"{label} GEMM, bf16 > 20 us", _wide_on(gpu), (goal, None, None),
                  (study, None, None), ("time",))
            for label, gpu, goal, study in (
                ("A100", "a100-sxm-80gb", 10, 11.3), ("H100", "h100-sxm", 8.5, 8.6),
                ("H200", "h200-sxm", 7.5, 7.7), ("B200", "b200-sxm", 9, 8.8),
                ("L40S", "l40s", 13, 13.2),
            )
        ),
    ),
    Split(
        "hopper", "gemm:forecast", "Hopper (A100 and A10 alone fitted)", 1,
        _hopper_from_ampere,
        (Score("H200 GEMM, settled, predicted < 660 W", settled, (None, 12, None),
               (None, 15.5, None), ("power",)),),
        seeded=False,
    ),
    Split(
        "cdna-gemm", "", "(n, k) pairs", 4, _cdna,
        tuple(
            Score(title, _family(gpu, *families), (goal, None, None), NONE, ("time",))
            for title, gpu, families, goal in _CDNA_LINES
        ),
    ),
)  # fmt: skip
