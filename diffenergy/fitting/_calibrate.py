"""`calibrate`: measured tables in, corrections out."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..corrections import (
    ACTIVITY_CONSTANTS,
    ANY,
    CONSTANTS,
    GIVEN,
    SENSOR_CONSTANTS,
    CorrectionsFile,
    Levels,
)
from ..hardware import read_gpu
from ..measurements import Columns, MeasurementTable
from ._batches import Batch, batches, by_row, pass_lengths
from ._fit import Fit, Target, fit, sensor_tag, sharpened, target
from ._parameters import SENSOR, Parameter, Parameters
from ._series import cold_blocks

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
FEW_READINGS: Final = 20
"""Rows of a GPU that nothing is known of, below which one factor alone is fitted."""

TILED: Final = "gemm in known tiles"
"""Kind of rows of CUDA-core products whose tile is given."""
_REFERENCE: Final = ("mma:mma.sync", "memory:HBM2", "architecture:Ampere")
"""The oldest of each kind, without factors; so is the GPU with most passes."""

_SHARPER, _CLEAR = 3, 0.5
"""Further fits of the rows of a GPU at most, each with the errors that the one before
left, as long as some table lies within this share of what was expected of it."""

Progress = Callable[[int, float], None]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a fit is made.

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
    """A fit, the corrections it gives, and the rows that it used."""

    fit: Fit
    corrections: CorrectionsFile
    targets: tuple[Target, ...]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Rows used by GPU and kind: how many times and powers were read, of passes
        also the ops inside. Products in known tiles are a kind of their own, since they
        say little of others; power drawn by weights that nobody filled does not count.
        """
        rows: dict[str, dict[str, Any]] = {}
        for item in self.targets:
            card, kind = item.batch.card, item.batch.kind
            kind = TILED if item.batch.records <= {*GIVEN} else kind
            filled = np.asarray(item.batch.instrument.unfilled) == 0
            filled = True if kind == "plan" else filled  # programs fill their weights
            found = rows.setdefault(f"{card.served_as}:{kind}", {"time": 0, "power": 0})
            found["time"] += int(np.isfinite(item.time).sum())
            found["power"] += int((np.isfinite(item.power) & filled).sum())
            if kind == "workload":
                found["ops"] = sorted({*item.batch.ops, *found.get("ops", ())})
        return {label: found for label, found in rows.items() if any(found.values())}

    @property
    def count(self) -> int:
        """Rows used."""
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
    rng = np.random.default_rng(settings.seed)
    start = with_cold_blocks(start, tables)
    targets: list[Target] = []
    per_table = _per_table(tables, settings.max_rows)
    for table in tables:
        skipped = _sampled(table, start, rng, per_table)
        chosen = _without_unsettled(dataclasses.replace(table, skipped=skipped), start)
        for batch in batches(chosen, start):
            targets.append(_target(chosen, batch, settings.table_weight))
    if not targets:
        raise ValueError(
            "no measured row is left to fit; give rows that are not skipped."
        )
    parameters = free_parameters(start, targets)
    free = [p for p in parameters.free if not _frozen(p, settings.freeze)]
    if among:
        free = [*among, *(p for p in free if p.tag.startswith(SENSOR))]
    parameters = dataclasses.replace(parameters, free=tuple(free))
    if not parameters.free:
        raise ValueError(
            "nothing is left to fit: `--freeze` holds every constant that the rows "
            "move."
        )
    place = None if begin is None else _at(parameters, begin)
    result = fit(parameters, targets, place, settings.max_steps, progress)
    for _ in range(_SHARPER if start.fitted_on else 0):
        sharp = [sharpened(parameters, item, result.z) for item in targets]
        expected = (_as_expected(x, y) for x, y in zip(sharp, targets, strict=True))
        if result.interrupted or all(expected):
            break
        targets = sharp
        result = fit(parameters, targets, result.z, settings.max_steps, progress)
    levels = result.parameters.fitted(result.z)
    sensors = {tag: levels.pop(tag) for tag in list(levels) if tag.startswith(SENSOR)}
    instruments = {name: dict(values) for name, values in start.instruments.items()}
    for tag, values in sensors.items():
        instruments.setdefault(tag.removeprefix(SENSOR), {}).update(values)
    file = CorrectionsFile(levels, instruments, {}, spread=start.spread)
    found = Calibration(result, file, tuple(targets))
    cards = [item.batch.card for item in targets]
    own = {x.served_as: f"architecture:{x.architecture}" for x in cards}
    fitted_on = {
        "architectures": start.fitted_on.get("architectures", {}) | own,
        "sm_clock_min": _lowest(targets, start.fitted_on.get("sm_clock_min", {})),
        "seq_len_max": _longest(tables, start.fitted_on.get("seq_len_max", {})),
        "rows": start.fitted_on.get("rows", {}) | found.rows,
        "seed": settings.seed,
    }
    file = dataclasses.replace(file, fitted_on=fitted_on)
    return dataclasses.replace(found, corrections=file)


def _as_expected(left: Target, before: Target) -> bool:
    """Whether the errors of a target are not far below what was expected of them."""
    return (
        left.time_sd > _CLEAR * before.time_sd
        and left.power_sd > _CLEAR * before.power_sd
    )


def _lowest(targets: Sequence[Target], before: Mapping[str, float]) -> dict[str, float]:
    """Lowest SM clock of the passes of each GPU, Hz."""
    found = dict(before)
    for item in (x for x in targets if x.batch.kind == "workload"):
        clocks = np.asarray(item.batch.point.sm_clock)[np.isfinite(item.power)]
        gpu = item.batch.card.served_as
        found[gpu] = float(min([found.get(gpu, np.inf), *clocks]))
    return {gpu: clock for gpu, clock in found.items() if np.isfinite(clock)}


def _longest(
    tables: Sequence[MeasurementTable], before: Mapping[str, float]
) -> dict[str, float]:
    """Most tokens of the passes of each GPU that were read."""
    found = dict(before)
    for table in tables:
        read = np.isfinite(table.time_s) & (table.skipped == "")
        rows = np.flatnonzero(read & (table.kind == "workload"))
        tokens = pass_lengths(table)
        for gpu in np.unique(table.gpu[rows].astype(str)):
            mine = rows[table.gpu[rows] == gpu]
            name = read_gpu(gpu).served_as
            found[name] = max(found.get(name, 0.0), float(tokens[mine].max()))
    return {gpu: tokens for gpu, tokens in found.items() if tokens}


def blanked(table: MeasurementTable, held: np.ndarray) -> MeasurementTable:
    """The table without the readings of `held` rows: they are predicted, not fitted,
    and every fold of a split keeps one shape and one compilation."""
    return dataclasses.replace(
        table,
        **{
            name: np.where(held, np.nan, getattr(table, name))
            for name in ("time_s", "energy_j", "avg_power_w")
        },
    )


def free_parameters(start: CorrectionsFile, targets: Sequence[Target]) -> Parameters:
    """Constants that the targets can move (see `calibrate`)."""
    levels: Levels = {tag: dict(values) for tag, values in start.levels.items()}
    if not start.fitted_on:
        used = [item.batch for item in targets]
        shaped = [batch for batch in used if batch.kind != "activity"]
        free = [Parameter("global", name) for name in _at_level("global") if shaped]
        free += _relatives(shaped) if shaped else []
        free += [
            Parameter(batch.card.tags[-1], name)
            for batch in used
            for name in ACTIVITY_CONSTANTS
            if batch.kind == "activity"
        ]
    else:
        plans = [x.batch for x in targets if x.batch.kind == "plan"]
        kinds = {label.partition(":")[2] for label in start.fitted_on.get("rows", {})}
        if plans and "plan" not in kinds:
            free = _of_plans(plans)
        else:
            free = _own(start, targets)
    for item in targets:
        batch = item.batch
        if not batch.how.sampling or not np.isfinite(item.power).any():
            continue
        if Parameter(batch.card.tags[-1], "dynamic_energy") in free:
            continue  # a few readings say nothing about how they were read
        model = start.instrument(batch.campaign, batch.kind, batch.card.name)
        tag = sensor_tag(batch)
        levels[tag] = {x: model[x] for x in SENSOR_CONSTANTS if x in model}
        free += [Parameter(tag, name) for name in levels[tag]]
    tags = {tag for item in targets for tag in item.batch.card.tags}
    read = [item for item in targets if np.isfinite(item.power).any()]
    known = {tag for item in read for tag in item.batch.card.tags}
    return Parameters(tuple(dict.fromkeys(free)), levels, tuple(sorted(tags - known)))


def _at(parameters: Parameters, file: CorrectionsFile) -> np.ndarray:
    """The free numbers in fitted space as a file has them."""
    sensors = {
        p.tag: file.instruments.get(p.tag.removeprefix(SENSOR), {})
        for p in parameters.free
        if p.tag.startswith(SENSOR)
    }
    return dataclasses.replace(parameters, start={**file.levels, **sensors}).centre()


def _relatives(used: Sequence[Batch]) -> list[Parameter]:
    """Factors of the tags of the GPUs; a GPU's own only for the ops that its rows
    hold."""
    factors: dict[str, set[str]] = {}
    passes = [b for b in used if b.kind == "workload"]
    most = max(passes or used, key=lambda b: (b.rows >= 0).sum())
    reference = most.card.tags[-1]
    for batch in used:
        for tag in batch.card.tags:
            prefix = tag.partition(":")[0]
            if tag in _REFERENCE or tag == reference:
                continue
            factors.setdefault(tag, set()).update(
                name
                for name in _at_level(prefix, tag)
                if _frees(batch, name) and (prefix != "gpu" or batch.kind != "moe")
            )
    return [
        Parameter(tag, name) for tag in sorted(factors) for name in sorted(factors[tag])
    ]


def _of_plans(used: Sequence[Batch]) -> list[Parameter]:
    """The constants of plans, which no fit has seen, and their factors by tag; all
    others are known from kernels and passes."""
    new = [name for name in CONSTANTS if "plan" in CONSTANTS[name].rows]
    free = [Parameter("global", x) for x in new if "global" in CONSTANTS[x].levels]
    return free + [p for p in _relatives(used) if p.constant in new]


def _own(start: CorrectionsFile, targets: Sequence[Target]) -> list[Parameter]:
    """Factors of the GPUs of the rows: one on all dynamic energy where few readings of
    a new GPU are all there is, else on every constant that its rows concern."""
    free: list[Parameter] = []
    for card in {item.batch.card.name: item.batch.card for item in targets}.values():
        mine = [item for item in targets if item.batch.card.name == card.name]
        tag = card.tags[-1]
        readings = sum(int(np.isfinite(item.power).sum()) for item in mine)
        timed = sum(int(np.isfinite(item.time).sum()) for item in mine)
        known = card.served_as in start.fitted_on.get("architectures", {})
        if max(readings, timed) < FEW_READINGS and not known:
            free.append(Parameter(tag, "dynamic_energy"))
            continue
        if any(item.batch.kind == "activity" for item in mine):
            free += [Parameter(tag, name) for name in ACTIVITY_CONSTANTS]
        own = _at_level("own")  # those of a GPU alone at the end
        own.sort(key=lambda name: "global" not in CONSTANTS[name].levels)
        free += [
            Parameter(tag, name)
            for name in own
            if any(_frees(item.batch, name) for item in mine)
        ]
    return free


def _at_level(*levels: str) -> list[str]:
    """Constants that a fit may free at one of the levels."""
    return [name for name, c in CONSTANTS.items() if set(levels) & set(c.levels)]


def _frees(batch: Batch, constant: str) -> bool:
    """Whether rows of a batch free a factor of a constant; rows of op `activity` have
    `ACTIVITY_CONSTANTS`."""
    rows = CONSTANTS[constant].frees
    if batch.kind == "activity":
        return False
    if batch.kind == "plan":
        return "plan" in rows
    return rows == ANY or bool({batch.kind, *batch.records} & set(rows))


def _frozen(p: Parameter, groups: Sequence[str]) -> bool:
    """Whether a group names the parameter's level, constant, or the start of one."""
    level = p.tag.removeprefix(SENSOR)
    kind = "sensor" if p.tag.startswith(SENSOR) else p.tag.partition(":")[0]
    return any(g in (kind, level) or p.constant.startswith(g) for g in groups)


def _target(table: MeasurementTable, batch: Batch, table_weight: float) -> Target:
    """Target of a batch with the expected errors of its kind."""
    if batch.kind == "workload":
        return target(table, batch, *PASS_SD)
    if batch.kind == "plan":
        return target(table, batch, *(MIXTURE_SD if batch.holds("moe") else PLAN_SD))
    timed = np.isfinite(table.time_s[batch.rows[batch.rows >= 0]]).sum()
    share = max(1.0, math.sqrt(timed / table_weight))
    sds = ACTIVITY_SD if batch.kind == "activity" else KERNEL_SD
    return target(table, batch, *(sd * share for sd in sds))


def with_cold_blocks(
    start: CorrectionsFile, tables: Sequence[MeasurementTable]
) -> CorrectionsFile:
    """Start with the cold blocks of every GPU and campaign whose sensor knows
    series."""
    instruments = {name: dict(values) for name, values in start.instruments.items()}
    for table in tables:
        for (gpu, op, campaign), index in _groups(table).items():
            rows = index[np.isfinite(table.avg_power_w[index])]
            model = start.instrument(campaign, op, gpu)
            if len(rows) and op == "gemm" and "warm_share" in model:
                found = cold_blocks(table, rows, read_gpu(gpu))
                own = instruments.setdefault(f"{campaign}:gemm@{gpu}", {})
                own["cold_blocks"] = found
    return dataclasses.replace(start, instruments=instruments)


def _groups(table: MeasurementTable) -> dict[tuple[str, str, str], np.ndarray]:
    """Kernel rows by GPU, op and campaign."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i in np.flatnonzero((table.kind == "kernel") & (table.skipped == "")):
        key = (table.gpu[i], table.op[i], table.campaign[i])
        groups.setdefault(key, []).append(int(i))
    return {key: np.array(members) for key, members in groups.items()}


def _per_table(tables: Sequence[MeasurementTable], max_rows: int) -> int:
    """Rows of each (GPU, op, campaign), the largest power of two that fits (rows are
    padded to one)."""
    count = sum(len(_groups(table)) for table in tables)
    return 1 << max(int(math.log2(max(max_rows / max(count, 1), 1))), 0)


def _sampled(
    table: MeasurementTable,
    start: CorrectionsFile,
    rng: np.random.Generator,
    per_table: int,
) -> np.ndarray:
    """`skipped` of a table in which kernel rows are thinned out: those with a reading
    above the launch loop, evenly over dtype and time."""
    skipped = table.skipped.copy()
    for (gpu, op, campaign), index in _groups(table).items():
        columns, place = _placed(table, op, index)
        none = np.full(len(columns.rows), "")
        dtypes = columns.values.get("dtype", none)[place].astype(str)
        model = start.instrument(campaign, op, gpu)
        floor = by_row(model, "floor_seconds", columns, place)
        usable = np.flatnonzero(table.time_s[index] >= floor)  # not NaN
        order = np.lexsort((table.time_s[index[usable]], dtypes[usable]))
        ordered = index[usable[order]]
        if not len(ordered):  # nothing timed: readings of power alone
            ordered = index[np.isfinite(table.avg_power_w[index])]
        strata = np.array_split(ordered, min(per_table, max(len(ordered), 1)))
        kept = [int(rng.choice(stratum)) for stratum in strata if len(stratum)]
        skipped[np.setdiff1d(index, kept)] = "not sampled"
    return skipped


def _placed(
    table: MeasurementTable, op: str, index: np.ndarray
) -> tuple[Columns, np.ndarray]:
    """Columns of an op, and where the rows `index` of the table stand in them."""
    columns = table.fields[op]
    return columns, np.searchsorted(columns.rows, index)


def _without_unsettled(
    table: MeasurementTable, start: CorrectionsFile
) -> MeasurementTable:
    """The table without the power of kernels too short for their sensor's model."""
    least = np.zeros(table.num_rows)
    for (gpu, op, campaign), index in _groups(table).items():
        model = start.instrument(campaign, op, gpu)
        least[index] = by_row(model, "power_seconds", *_placed(table, op, index))
    power = np.where(table.time_s >= least, table.avg_power_w, np.nan)
    power = np.where(np.isnan(table.time_s), table.avg_power_w, power)
    return dataclasses.replace(table, avg_power_w=power)
