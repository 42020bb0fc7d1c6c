"""`calibrate`: measured tables in, corrections out."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..corrections import TILED_RECORDS, CorrectionsFile
from ..hardware import read_gpu
from ..measurements import READINGS, MeasurementTable
from ._batches import Batch, batches, pass_lengths
from ._fit import Fit, Target, fit, sharpened, target
from ._free_parameters import begun_at, free_parameters, frozen
from ._parameters import SENSOR, Parameter, Parameters

PASS_SD: Final = (0.05, 0.03)
"""Expected error of ln time and ln power of whole passes (`docs/physics.md`)."""
KERNEL_SD: Final = (0.1, 0.08)
"""The same of single kernels: the floor between campaigns is 6-12 %."""
PLAN_SD: Final = (0.06, 0.06)
"""The same of training steps of plans: several releases of a program differ by 2 %,
programs by more."""
MIXTURE_SD: Final = (0.2, 0.2)
"""The same of mixtures of experts: releases differ by 11 %, and the host, whose graphs
and dispatch kernels no table states, decides."""
ACTIVITY_SD: Final = (0.05, 0.03)
"""The same of programs that are compared with themselves at another clock."""
TABLE_WEIGHT: Final = 128.0
"""Rows that one op of one GPU and campaign counts for at most in a joint fit: more
would outvote the passes (`docs/physics.md`)."""
MAX_ROWS: Final = 20_000
"""Kernel rows of one fit."""
TILED: Final = "gemm in known tiles"
"""Kind of rows of CUDA-core products whose tile is given."""
_SHARPER, _CLEAR = 3, 0.5
"""Further fits of the rows of a GPU at most, each with the errors that the one before
left, as long as some table lies within this share of what was expected of it."""

Progress = Callable[[int, float], None]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a fit.

    `max_rows` kernel rows are drawn with `seed`, evenly over gpu, op, campaign, dtype
    and time; one table counts as `table_weight` rows at most. `freeze`: levels (such as
    `gpu:a10` or `mma`), constants or their beginnings that keep their start.
    """

    seed: int = 0
    max_rows: int = MAX_ROWS
    table_weight: float = TABLE_WEIGHT
    max_steps: int = 30
    freeze: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit, its corrections, and the rows that it used."""

    fit: Fit
    corrections: CorrectionsFile
    targets: tuple[Target, ...]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Rows used by GPU and kind: how many times and powers were read, of passes
        also the ops inside. Products in known tiles are a kind of their own, since they
        say little of others; power of operands that are not random does not count.
        """
        rows: dict[str, dict[str, Any]] = {}
        for item in self.targets:
            card, kind = item.batch.card, item.batch.kind
            kind = TILED if item.batch.records <= {*TILED_RECORDS} else kind
            filled = True if kind == "plan" else item.batch.reading.random
            counts = rows.setdefault(
                f"{card.served_as}:{kind}", {"time": 0, "power": 0}
            )
            counts["time"] += int(np.isfinite(item.time).sum())
            counts["power"] += int((np.isfinite(item.power) & filled).sum())
            if kind == "workload":
                counts["ops"] = sorted({*item.batch.ops, *counts.get("ops", ())})
        return {label: counts for label, counts in rows.items() if any(counts.values())}

    @property
    def count(self) -> int:
        """Number of rows with at least one reading."""
        read = (np.isfinite(x.time) | np.isfinite(x.power) for x in self.targets)
        return sum(int(rows.sum()) for rows in read)


def calibrate(
    tables: Sequence[MeasurementTable],
    start: CorrectionsFile,
    settings: Settings = Settings(),
    *,
    begin: CorrectionsFile | None = None,
    among: Sequence[Parameter] = (),
    progress: Progress | None = None,
) -> Calibration:
    """Fit constants to `tables`; the values of `start` are the prior centres.

    From corrections with nothing fitted every level is free; from fitted ones the
    global and architecture levels stay, and the GPUs of the rows get factors of their
    own. `begin`: where the search begins, if not at `start`; `among`: what is free in
    place of these, beside sensors. Raises `ValueError` if no row is left or nothing is
    free.
    """
    for table in tables:
        start = table.meter.begin(table, start)
    targets = _targets(tables, start, settings)
    parameters = _free(start, targets, settings.freeze, among)
    place = None if begin is None else begun_at(parameters, begin)
    result = fit(parameters, targets, place, settings.max_steps, progress)
    for _ in range(_SHARPER if start.fitted_on else 0):
        sharper = [sharpened(parameters, item, result.z) for item in targets]
        expected = (
            new.time_sd > _CLEAR * old.time_sd and new.power_sd > _CLEAR * old.power_sd
            for new, old in zip(sharper, targets, strict=True)
        )
        if result.interrupted or all(expected):
            break
        targets = sharper
        result = fit(parameters, targets, result.z, settings.max_steps, progress)
    calibration = Calibration(result, _file(result, start), tuple(targets))
    fitted_on = _rests_on(calibration, tables, start.fitted_on) | {
        "seed": settings.seed
    }
    file = dataclasses.replace(calibration.corrections, fitted_on=fitted_on)
    return dataclasses.replace(calibration, corrections=file)


def _targets(
    tables: Sequence[MeasurementTable], start: CorrectionsFile, settings: Settings
) -> list[Target]:
    """Draws the rows to fit and groups them in batches."""
    rng = np.random.default_rng(settings.seed)
    targets: list[Target] = []
    most = _rows_per_table(tables, settings.max_rows)
    for table in tables:
        table = table.meter.usable(table, start)
        chosen = dataclasses.replace(table, skipped=_sampled(table, rng, most))
        for batch in batches(chosen, start):
            targets.append(_target(chosen, batch, settings.table_weight))
    if not targets:
        raise ValueError(
            "no measured row is left to fit; give rows that are not skipped."
        )
    return targets


def _rows_per_table(tables: Sequence[MeasurementTable], max_rows: int) -> int:
    """Rows of each (GPU, op, campaign), the largest power of two that fits (rows are
    padded to one)."""
    count = sum(len(table.kernel_groups()) for table in tables)
    return 1 << max(int(math.log2(max(max_rows / max(count, 1), 1))), 0)


def _sampled(
    table: MeasurementTable, rng: np.random.Generator, most: int
) -> np.ndarray:
    """`skipped` of a table in which kernel rows are thinned out: those that were timed,
    evenly over dtype and time."""
    skipped = table.skipped.copy()
    for (_, op, _), index in table.kernel_groups().items():
        columns = table.fields[op]
        place = np.searchsorted(columns.rows, index)
        none = np.full(len(columns.rows), "")
        dtypes = columns.values.get("dtype", none)[place].astype(str)
        usable = np.flatnonzero(table.time_s[index] >= 0)  # not NaN
        order = np.lexsort((table.time_s[index[usable]], dtypes[usable]))
        ordered = index[usable[order]]
        if not len(ordered):  # nothing timed: readings of power alone
            ordered = index[np.isfinite(table.avg_power_w[index])]
        strata = np.array_split(ordered, min(most, max(len(ordered), 1)))
        drawn = [int(rng.choice(stratum)) for stratum in strata if len(stratum)]
        skipped[np.setdiff1d(index, drawn)] = "not sampled"
    return skipped


def _free(
    start: CorrectionsFile,
    targets: Sequence[Target],
    freeze: Sequence[str],
    among: Sequence[Parameter],
) -> Parameters:
    """Free parameters: those that the rows move without the frozen ones; with `among`,
    only these and the sensors' constants."""
    parameters = free_parameters(start, targets)
    free = [p for p in parameters.free if not frozen(p, freeze)]
    if among:
        free = [*among, *(p for p in free if p.tag.startswith(SENSOR))]
    if not free:
        raise ValueError(
            "nothing is left to fit: `--freeze` holds every constant that the rows "
            "move."
        )
    return dataclasses.replace(parameters, free=tuple(free))


def _file(result: Fit, start: CorrectionsFile) -> CorrectionsFile:
    """Corrections with the fitted levels and the fitted constants of sensors."""
    levels = result.parameters.fitted(result.z)
    sensors = {tag: levels.pop(tag) for tag in list(levels) if tag.startswith(SENSOR)}
    instruments = {name: dict(values) for name, values in start.instruments.items()}
    for tag, values in sensors.items():
        instruments.setdefault(tag.removeprefix(SENSOR), {}).update(values)
    return CorrectionsFile(levels, instruments, {}, spread=start.spread)


def _rests_on(
    calibration: Calibration,
    tables: Sequence[MeasurementTable],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """Provenance of a fit: GPUs, clocks, lengths and rows, merged with `before`."""
    cards = [item.batch.card for item in calibration.targets]
    architectures = {x.served_as: f"architecture:{x.architecture}" for x in cards}
    return {
        "architectures": before.get("architectures", {}) | architectures,
        "sm_clock_min": _lowest(calibration.targets, before.get("sm_clock_min", {})),
        "seq_len_max": _longest(tables, before.get("seq_len_max", {})),
        "rows": before.get("rows", {}) | calibration.rows,
    }


def _lowest(targets: Sequence[Target], before: Mapping[str, float]) -> dict[str, float]:
    """Lowest SM clock of the fitted passes by GPU (Hz)."""
    lowest = dict(before)
    for item in (x for x in targets if x.batch.kind == "workload"):
        clocks = np.asarray(item.batch.point.sm_clock)[np.isfinite(item.power)]
        gpu = item.batch.card.served_as
        lowest[gpu] = float(min([lowest.get(gpu, np.inf), *clocks]))
    return {gpu: clock for gpu, clock in lowest.items() if np.isfinite(clock)}


def _longest(
    tables: Sequence[MeasurementTable], before: Mapping[str, float]
) -> dict[str, float]:
    """Longest sequence of the fitted passes by GPU (tokens)."""
    longest = dict(before)
    for table in tables:
        read = np.isfinite(table.time_s) & (table.skipped == "")
        rows = np.flatnonzero(read & (table.kind == "workload"))
        tokens = pass_lengths(table)
        for gpu in np.unique(table.gpu[rows].astype(str)):
            mine = rows[table.gpu[rows] == gpu]
            name = read_gpu(gpu).served_as
            longest[name] = max(longest.get(name, 0.0), float(tokens[mine].max()))
    return {gpu: tokens for gpu, tokens in longest.items() if tokens}


def blanked(table: MeasurementTable, mask: np.ndarray) -> MeasurementTable:
    """The table without the readings of masked rows.

    These are predicted, not fitted. All folds of a split have one shape and share one
    compiled program.
    """
    readings = {name: np.where(mask, np.nan, getattr(table, name)) for name in READINGS}
    return dataclasses.replace(table, **readings)


def _target(table: MeasurementTable, batch: Batch, table_weight: float) -> Target:
    """Target of a batch with the expected errors of its kind of rows."""
    if batch.kind == "workload":
        return target(table, batch, *PASS_SD)
    if batch.kind == "plan":
        return target(table, batch, *(MIXTURE_SD if batch.holds("moe") else PLAN_SD))
    timed = np.isfinite(table.time_s[batch.rows[batch.rows >= 0]]).sum()
    share = max(1.0, math.sqrt(timed / table_weight))
    sds = ACTIVITY_SD if batch.kind == "activity" else KERNEL_SD
    return target(table, batch, *(sd * share for sd in sds))
