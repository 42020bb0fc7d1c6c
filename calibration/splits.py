"""The splits of the accuracy table: what is fitted, what is left out, what is scored.

A split is a class with `name`, `folds(seed)`, `fold(i, seed)` and `scores`; data are
read from the folder of measured tables.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from diffenergy.corrections import CorrectionsFile, prior_file
from diffenergy.fitting.calibrate import Settings, blanked
from diffenergy.measurements import MeasurementTable, Predictions, read_measurements
from diffenergy.workload.listing import Listing, read_listings

GPUS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")
Mask = Callable[[MeasurementTable, Predictions], np.ndarray]


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

    @functools.lru_cache(maxsize=None)  # noqa: B019 - one Data a process
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


def everything(table: MeasurementTable, _: Predictions) -> np.ndarray:
    return np.ones(table.num_rows, bool)


def folds_of(groups: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """Fold of every row: group i of `order` goes to fold i mod `count`."""
    fold = {name: i % count for i, name in enumerate(order)}
    return np.array([fold.get(name, -1) for name in groups])


# --- whole passes

PASS_STEPS = 12


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
    return lambda table, _: _source(table, *sources)


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
        only(table, scope & held),
        Settings(seed=seed, max_rows=1100, table_weight=_WHOLE, max_steps=15),
    )


def _layouts(op: str, keys: Sequence[str]) -> Callable[[Data, int, int], Fold]:
    """Layouts (`keys`) left out: sorted, permuted with RandomState(0), five folds."""

    def fold(data: Data, i: int, seed: int) -> Fold:
        table = data.kernels("h200_sxm", op, "power")
        scope = np.ones(table.num_rows, bool)
        if op != "moe":  # heads of 512 are another kernel
            scope = _column(table, "head_dim") < 512
        rows = list(zip(*(_column(table, key).astype(int) for key in keys), strict=True))
        groups = np.empty(len(rows), object)
        groups[:] = rows
        names = sorted({rows[j] for j in np.flatnonzero(scope)})
        order = np.random.RandomState(0).permutation(len(names))
        held = folds_of(groups, [names[j] for j in order], 5) == i  # pyright: ignore
        return Fold(
            [only(blanked(table, held), scope & ~held)],
            only(table, scope & held),
            Settings(seed=seed, max_rows=2100, table_weight=_WHOLE, max_steps=20),
        )

    return fold


def _gpu_out(data: Data, i: int, seed: int) -> Fold:
    tables = {}
    for gpu in GPUS:
        table = data.kernels(gpu, "gemm", "latency")
        wide = _column(table, "dtype") == "bf16"
        tables[gpu] = only(table, wide & (table.time_s > 20e-6))
    tested = tables.pop(GPUS[i])
    settings = Settings(seed=seed, max_rows=4 * 256, table_weight=_WHOLE, max_steps=12)
    return Fold(list(tables.values()), tested, settings)


def _at_least(seconds: float) -> Mask:
    return lambda table, _: table.time_s > seconds


def _bf16_over_50(table: MeasurementTable, _: Predictions) -> np.ndarray:
    return (_column(table, "dtype") == "bf16") & (table.time_s > 50e-6)


def _is_gpu(name: str) -> Mask:
    return lambda table, _: table.gpu == name
