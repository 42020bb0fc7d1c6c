"""The splits of the accuracy table: what is fitted, what is left out, what is scored.

A split is a class with `name`, `folds(seed)`, `fold(i, seed)` and `scores`; data are
read from the folder of measured tables.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from diffenergy.corrections import CorrectionsFile, prior_file
from diffenergy.fitting.batches import batches
from diffenergy.fitting.calibrate import (
    Settings,
    blanked,
    calibrate,
    with_cold_blocks,
)
from diffenergy.fitting.predict import predict
from diffenergy.measurements import MeasurementTable, Predictions, read_measurements
from diffenergy.physics.instrument import idle_before, series_shares
from diffenergy.records import as_float
from diffenergy.workload.listing import Listing, read_listings

GPUS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")
Mask = Callable[[MeasurementTable, Predictions, CorrectionsFile], np.ndarray]
"""Rows of a tested table, by its predictions and the corrections that made them."""


class Data:
    """Measured tables of a folder, each read once."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @functools.cached_property
    def listings(self) -> dict[str, list[Listing]]:
        files = ("workloads.jsonl", "workloads_derived.jsonl")
        return {
            x.name: [x]
            for file in files
            for x in read_listings(self.folder / "energaizer" / file)
        }

    @functools.cached_property
    def passes(self) -> MeasurementTable:
        file = str(self.folder / "energaizer" / "measurements.csv")
        return read_measurements([file], workloads=self.listings)

    @functools.cache  # noqa: B019 - one Data a process
    def kernels(self, gpu: str, op: str, what: str) -> MeasurementTable:
        file = self.folder / "aiconfigurator" / f"{gpu}_{op}_{what}.csv.gz"
        return read_measurements([f"{op}={file}"])


@dataclasses.dataclass(frozen=True)
class Score:
    """Rows of the left-out ones that a line of the table is about."""

    title: str
    rows: Mask
    goal: tuple[float | None, float | None, float | None]
    study: tuple[float | None, float | None, float | None]
    quantities: tuple[str, ...] = ("time", "power", "energy")


@dataclasses.dataclass(frozen=True)
class Fold:
    """One fit: tables whose readings are fitted, and the rows that it predicts."""

    fitted: list[MeasurementTable]
    tested: MeasurementTable
    settings: Settings
    start: CorrectionsFile = dataclasses.field(default_factory=prior_file)


@dataclasses.dataclass(frozen=True)
class Split:
    """A way to leave groups out; `kind:grade` is the spread that it gives."""

    name: str
    spread: str
    left_out: str
    count: int
    fold: Callable[[Data, int, int], Fold]
    """Fold i of the data with a seed."""
    scores: tuple[Score, ...]
    seeded: bool = True
    """Whether another seed gives another fit."""


def only(table: MeasurementTable, rows: np.ndarray) -> MeasurementTable:
    """The table with all other rows skipped."""
    skipped = np.where(rows, table.skipped, "not of this split").astype(object)
    return dataclasses.replace(table, skipped=skipped)


def everything(
    table: MeasurementTable, _: Predictions, __: CorrectionsFile
) -> np.ndarray:
    return np.ones(table.num_rows, bool)


def folds_of(groups: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """Fold of every row: group i of `order` goes to fold i mod `count`."""
    fold = {name: i % count for i, name in enumerate(order)}
    return np.array([fold.get(name, -1) for name in groups])


# --- whole passes

PASS_STEPS = 8


def _source(table: MeasurementTable, *names: str) -> np.ndarray:
    return np.isin(table.frame["source"].to_numpy(), names)


def _families(data: Data) -> list[str]:
    return sorted(set(data.passes.frame["model"]))


def _pass_fold(scope: np.ndarray, held: np.ndarray, data: Data, seed: int) -> Fold:
    """Passes of `scope` without the readings of `held` ones."""
    table = data.passes
    return Fold(
        [only(blanked(table, held), scope)],
        only(table, held),
        Settings(seed=seed, max_steps=PASS_STEPS),
    )


def _family(*sources: str) -> Callable[[Data, int, int], Fold]:
    def fold(data: Data, i: int, seed: int) -> Fold:
        scope = _source(data.passes, *sources)
        family = data.passes.frame["model"].to_numpy() == _families(data)[i]
        return _pass_fold(scope, scope & family, data, seed)

    return fold


def _of(*sources: str) -> Mask:
    return lambda table, *_: _source(table, *sources)


def _workload_folds(data: Data, i: int, seed: int) -> Fold:
    table = data.passes
    scope = _source(table, "a100", "a10")
    names = np.unique(table.workload[scope].astype(str))
    order = names[np.random.default_rng(seed).permutation(len(names))]
    held = scope & (folds_of(table.workload, order, 5) == i)
    return _pass_fold(scope, held, data, seed)


def _from(fitted: Sequence[str], tested: str) -> Callable[[Data, int, int], Fold]:
    """Passes of some sources fitted, those of another predicted."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.passes
        return Fold(
            [only(table, _source(table, *fitted))],
            only(table, _source(table, tested)),
            Settings(seed=seed, max_steps=PASS_STEPS),
        )

    return fold


# --- kernels of the H200

_WHOLE = 1e9
"""Table weight: every row counts fully where one table is fitted alone."""


def _column(table: MeasurementTable, name: str) -> np.ndarray:
    (columns,) = table.fields.values()
    return columns.values[name]


def _longer(table: MeasurementTable, bf16: float, fp8_block: float) -> np.ndarray:
    wide = _column(table, "dtype") == "bf16"
    return table.time_s > np.where(wide, bf16, fp8_block)


def _pairs(table: MeasurementTable, count: int) -> np.ndarray:
    """Fold of every row by its (n, k): sorted names, shuffled with seed 0."""
    n, k = (_column(table, x).astype(int) for x in "nk")
    names = np.array([f"{a}x{b}" for a, b in zip(n, k, strict=True)])
    order = np.array(sorted(set(names)))
    np.random.default_rng(0).shuffle(order)
    return folds_of(names, order, count)


def _gemm_power(data: Data, i: int, seed: int) -> Fold:
    table = data.kernels("h200_sxm", "gemm", "power")
    scope, held = _longer(table, 20e-6, 100e-6), _pairs(table, 4) == i
    return Fold(
        [only(blanked(table, held), scope & ~held)],
        only(table, held),
        Settings(seed=seed, max_rows=1100, table_weight=_WHOLE, max_steps=15),
    )


def _layouts(op: str, keys: Sequence[str]) -> Callable[[Data, int, int], Fold]:
    """Layouts (`keys`) left out: sorted, permuted with RandomState(0), five folds."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.kernels("h200_sxm", op, "power")
        scope = np.ones(table.num_rows, bool)
        if op != "moe":  # heads of 512 are another kernel
            scope = _column(table, "head_dim") < 512
        rows = list(
            zip(*(_column(table, key).astype(int) for key in keys), strict=True)
        )
        groups = np.empty(len(rows), object)
        groups[:] = rows
        names = sorted({rows[j] for j in np.flatnonzero(scope)})
        order = np.random.RandomState(0).permutation(len(names))
        held = folds_of(groups, [names[j] for j in order], 5) == i  # pyright: ignore
        return Fold(
            [only(blanked(table, held), scope & ~held)],
            only(table, held),
            Settings(seed=seed, max_rows=2100, table_weight=_WHOLE, max_steps=20),
        )

    return fold


def _gpu_out(data: Data, i: int, seed: int) -> Fold:
    tables = {}
    for gpu in GPUS:
        table = data.kernels(gpu, "gemm", "latency")
        wide = _column(table, "dtype") == "bf16"
        tables[gpu] = only(table, wide & (table.time_s > 20e-6))
    del tables[GPUS[i]]
    tested = data.kernels(GPUS[i], "gemm", "latency")
    settings = Settings(seed=seed, max_rows=4 * 256, table_weight=_WHOLE, max_steps=12)
    return Fold(list(tables.values()), tested, settings)


def _heads_to_256(table: MeasurementTable, *_: object) -> np.ndarray:
    """Heads of 512 run another kernel."""
    return _column(table, "head_dim") < 512


def _long_heads(table: MeasurementTable, *_: object) -> np.ndarray:
    return _heads_to_256(table) & (table.time_s > 333e-6)


def _at_least(seconds: float) -> Mask:
    return lambda table, *_: table.time_s > seconds


def _scored(table: MeasurementTable, *_: object) -> np.ndarray:
    return _longer(table, 20e-6, 100e-6)


def _bf16_over_50(table: MeasurementTable, *_: object) -> np.ndarray:
    return (_column(table, "dtype") == "bf16") & (table.time_s > 50e-6)


def _settled(
    table: MeasurementTable, predicted: Predictions, corrections: CorrectionsFile
) -> np.ndarray:
    """Rows whose sensor window the measurement model takes for full (a hot share above
    0.9), predicted below 660 W."""
    full = np.zeros(table.num_rows, bool)
    for batch in batches(table, {}, corrections):
        here = batch.rows >= 0
        rows = np.where(here, batch.rows, batch.rows[0])
        i = batch.instrument
        sensor = corrections.sensor(batch.campaign, batch.kind, batch.card.name)
        cold, warm = series_shares(i, sensor, as_float(predicted.time_s[rows]))
        share = np.where(np.asarray(idle_before(i)) > 0.02, cold, warm)
        narrow = (np.asarray(i.narrow) > 0) & (np.asarray(idle_before(i)) < 0.02)
        full[batch.rows[here]] = (np.where(narrow, 1.0, share) > 0.9)[here]
    return full & (predicted.avg_power_w < 660) & _longer(table, 20e-6, 100e-6)


def _wide_on(name: str) -> Mask:
    """bf16 rows above 20 us of one GPU."""
    return lambda table, *_: (table.gpu == name) & _longer(table, 20e-6, np.inf)


# --- another architecture


def _hopper_from_ampere(data: Data, i: int, seed: int) -> Fold:
    """A100 and A10 passes and A100 GEMM; the sensor of the H200 rows at its prior."""
    table = data.kernels("h200_sxm", "gemm", "power")
    wide = _column(table, "dtype") == "bf16"
    ampere = data.kernels("a100_sxm", "gemm", "latency")
    start = prior_file()
    return Fold(
        [data.passes, only(ampere, ampere.time_s > 20e-6)],
        only(table, wide & (table.time_s > 20e-6)),
        Settings(seed=seed, max_rows=256, max_steps=PASS_STEPS),
        with_cold_blocks(start, [table]),
    )


# --- five readings of a GPU that nothing is known of


@functools.cache
def _without(data: Data, name: str) -> CorrectionsFile:
    """Corrections of the one fold of another split."""
    fold = next(split for split in SPLITS if split.name == name).fold(data, 0, 0)
    made = calibrate(fold.fitted, data.listings, fold.start, fold.settings)
    return made.corrections


def _five(split: str, rows_of: Mask) -> Callable[[Data, int, int], Fold]:
    """Five random power readings of the tested rows of `split`, then the others."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        start = _without(data, split)
        tested = next(x for x in SPLITS if x.name == split).fold(data, 0, 0).tested
        predicted = _predictions(data, split)
        rows = rows_of(tested, predicted, start) & (tested.skipped == "")
        rng = np.random.default_rng([seed, i])
        five = np.zeros(tested.num_rows, bool)
        five[rng.choice(np.flatnonzero(rows), 5, replace=False)] = True
        untimed = dataclasses.replace(tested, time_s=np.full(tested.num_rows, np.nan))
        others = rows & ~five
        sample = rng.choice(np.flatnonzero(others), min(others.sum(), 256), False)
        kept = np.isin(np.arange(tested.num_rows), sample)
        return Fold(
            [only(untimed, five)], only(tested, kept), Settings(seed=seed), start
        )

    return fold


@functools.cache
def _predictions(data: Data, split: str) -> Predictions:
    tested = next(x for x in SPLITS if x.name == split).fold(data, 0, 0).tested
    return predict(tested, data.listings, _without(data, split))


_NONE = (None, None, None)
_PREFILL = ("num_heads", "num_kv_heads")
_EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts")
_LONG = ("power", "energy")

SPLITS = (
    Split(
        "a100-family", "workload:calibrated", "model family, A100 rows alone", 7,
        _family("a100"),
        (Score("A100 passes, 900 MHz", everything, (5, 2.5, 4.5), (4.9, 2.6, 4.7)),),
        seeded=False,
    ),
    Split(
        "family", "workload:calibrated", "model family, out of both GPUs", 7,
        _family("a100", "a10", "a100_dvfs"),
        (
            Score("A10 passes, 900 MHz", _of("a10"), (4, 4, 4.5), (3.7, 4.0, 4.7)),
            Score("A100 passes, 900 MHz", _of("a100"), _NONE, (5.7, 2.7, 5.5)),
            Score("A100 passes, 510-1410 MHz", _of("a100_dvfs"), _NONE,
                  (6.1, 2.9, 4.2)),
        ),
        seeded=False,
    ),
    Split(
        "a10-from-a100", "workload:forecast", "the A10", 1,
        _from(("a100", "a100_dvfs"), "a10"),
        (Score("A10 passes, 900 MHz", everything, (4, 8, None), (3.5, 8.5, 9.0)),),
        seeded=False,
    ),
    Split(
        "a100-from-a10", "workload:forecast", "the A100", 1,
        _from(("a10",), "a100"),
        (Score("A100 passes, 900 MHz", everything, _NONE, (5.1, 7.2, 7.0)),),
        seeded=False,
    ),
    Split(
        "workloads", "workload:calibrated", "five folds by workload", 5,
        _workload_folds,
        (Score("A100 and A10 passes, 900 MHz", everything, (4, 2.5, 4),
               (4.0, 2.8, 4.0)),),
    ),
    Split(
        "clocks", "workload:calibrated", "every clock but 900 MHz", 1,
        _from(("a100",), "a100_dvfs"),
        (Score("A100 passes, 510-1410 MHz", everything, (5, 3, 4), (5.7, 2.9, 3.9)),),
        seeded=False,
    ),
    Split(
        "h200-gemm", "gemm:calibrated", "(n, k) pairs", 4, _gemm_power,
        (
            Score("H200 GEMM > 20 us (fp8_block > 100 us)", _scored, (6, 6, 10),
                  (5.9, 5.6, 9.3)),
            Score("... bf16 > 50 us", _bf16_over_50, (5, 4, 7), (4.7, 3.4, 6.8)),
            Score("... settled, predicted < 660 W", _settled, (6, 7, 10),
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
        (Score("H200 GEMM, settled, predicted < 660 W", _settled, (None, 12, None),
               (None, 15.5, None), ("power",)),),
        seeded=False,
    ),
    Split(
        "a10-five", "", "the A10, then five power readings (100 draws)", 100,
        _five("a10-from-a100", everything),
        (Score("A10 passes, 900 MHz", everything, (None, 4, None),
               (None, 4.1, None), ("power",)),),
        seeded=False,
    ),
    Split(
        "hopper-five", "", "Hopper, then five power readings (20 draws)", 20,
        _five("hopper", _settled),
        (Score("H200 GEMM, settled, predicted < 660 W", everything, (None, 10, None),
               (None, 11.8, None), ("power",)),),
        seeded=False,
    ),
)  # fmt: skip
"""Every line of the accuracy table; goals and the figures of earlier studies are time,
power, energy in percent."""
