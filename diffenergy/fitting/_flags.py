"""What a measured row can break: limits of clocks, meters, boards and work, what its
cells say about each other, and its prediction.

A prediction is good to 10-30 %, worse on GPUs that no data describe, so rows are held
against it by large factors only, and against the rows around them too: where those are
off alike, the model is wrong and not the reading.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd

from ..dtypes import BYTES, DTYPES, stored_bytes
from ..hardware import GpuCard, idle_power, read_gpu
from ..kernels import known_as
from ..measurements import (
    READ_COLUMNS,
    READINGS,
    Columns,
    MeasurementTable,
    Predictions,
)

LONG: Final = 20e-6
"""s; the time of shorter kernels belongs to the loop that launches them."""
SETTLED: Final = 333e-6
"""s; 3000 launches of shorter kernels end within the second over which a sensor
averages: their power reads low without being wrong (`docs/physics.md`, Meters)."""
IDLE_SHARE: Final = {"guess": 0.5, "recall": 0.5}
"""Least power / idle power by the quality of the idle power; 0.8 of a sourced one."""
SLOW_MEMORY: Final = 0.6
"""Further factor where the memory clock is below the GPU's own."""
BUSY_SHARE: Final = 0.3
"""Least share of the predicted power above idle: 280 W at the cap of an H200, which
draws 270 W while all its SMs stall."""
FASTEST: Final = 0.95
"""Least time / physical limit: clocks and bandwidths are nominal."""
FAR: Final = {"time_s": np.log(2.5), "avg_power_w": np.log(1.8)}
"""Least ln(measured / predicted) of an outlier."""
SIGMAS: Final = 6.0
LEAST_SIGMA: Final = 0.1
NEIGHBOURS: Final = 8
HOT: Final = 80.0
"""C; hotter GPUs slow down by themselves."""
PARTNERS: Final = 1.25
"""Highest limit of a board partner's GeForce / that of the GPU."""

_THOUSAND: Final = np.log(1e3)
UNITS_OF: Final = {
    "time_s": {1e-9: "ns", 1e-6: "us", 1e-3: "ms", 1.0: "s"},
    "energy_j": {1e-6: "uJ", 1e-3: "mJ", 1.0: "J", 1e3: "kJ", 1e6: "MJ"},
    "avg_power_w": {1e-6: "uW", 1e-3: "mW", 1.0: "W", 1e3: "kW", 1e6: "MW"},
    "window_s": {1e-6: "us", 1e-3: "ms", 1.0: "s"},
}
"""Units of the readings and the window by their size in SI."""
_CLOCK_UNITS: Final = {1.0: "Hz", 1e6: "MHz", 1e9: "GHz"}


# --- a table beside its predictions, and how a row that cannot be true is told


@dataclasses.dataclass(frozen=True)
class Flag:
    """A measured row that cannot be true: its cell as read, and why."""

    file: str
    row: int
    """0-based data row of the file, as `evaluate --out` counts."""
    line: int
    """Line of the file, from 1 as editors count; 0 where it has none."""
    column: str
    """The file's column; our name of the reading where no column gives it."""
    value: float | str
    """The cell as read, in the file's unit."""
    reason: str
    index: int
    """Row of the table."""


class Finding(NamedTuple):
    """Rows whose `quantity` breaks a limit. `text` may name `own`, `limit`, `expected`
    (the prediction), each with the unit of the row's file, and `times` of the latter.
    """

    where: np.ndarray
    quantity: str
    text: str
    limit: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """A table with its predictions, and the lookups that the rules share."""

    table: MeasurementTable
    predicted: dict[str, np.ndarray]
    cards: list[GpuCard]
    card: np.ndarray  # index into `cards`
    group: np.ndarray  # code of (file, gpu, op)
    columns: dict[str, np.ndarray]  # by quantity, the file's column or ""

    def gpu(self, field: str) -> np.ndarray:
        """A field of each row's GPU file."""
        return np.array([card.values[field] for card in self.cards])[self.card]

    def ratio(self, quantity: str) -> np.ndarray:
        """ln(measured / predicted), NaN where one is missing."""
        return np.log(getattr(self.table, quantity) / self.predicted[quantity])

    def median(self, values: np.ndarray) -> np.ndarray:
        """Median of `values` over each row's group, ignoring NaN."""
        return pd.Series(values).groupby(self.group).transform("median").to_numpy()

    def flag(self, finding: Finding, i: int) -> Flag:
        table, quantity = self.table, finding.quantity
        others = READINGS[::-1] if quantity in READINGS else ()  # it follows from
        sources = (self.columns[q][i] for q in (quantity, *others))
        column = next(filter(None, sources), "")
        scale = READ_COLUMNS[quantity].spellings.get(column, 1.0)
        unit = UNITS_OF.get(quantity, _CLOCK_UNITS)[scale]
        own = getattr(table, quantity)
        limit = own if finding.limit is None else finding.limit
        expected = self.predicted[quantity] if quantity in self.predicted else own
        reason = finding.text.format(
            own=f"{own[i] / scale:.4g} {unit}",
            limit=f"{limit[i] / scale:.4g} {unit}",
            expected=f"{expected[i] / scale:.4g} {unit}",
            times=f"{own[i] / expected[i]:.3g} times",
        )
        cell = _cell(table.frame[column].iloc[i]) if column else float(own[i])
        place = str(table.file[i]), int(table.row[i]), int(table.line[i])
        return Flag(*place, column or quantity, cell, reason, i)


def rows_of(table: MeasurementTable, predicted: Predictions) -> Rows:
    which, names = pd.factorize(table.gpu)
    keys = pd.DataFrame({"file": table.file, "gpu": table.gpu, "op": table.op})
    values = {name: np.array(getattr(predicted, name)) for name in READINGS}
    if "activity" in table.fields:  # without a reference, only power is predicted
        part = table.fields["activity"]
        timeless = part.rows[part.values["time_ref_us"] == 0]
        values["time_s"][timeless] = values["energy_j"][timeless] = np.nan
    return Rows(
        table,
        values,
        [read_gpu(str(name)) for name in names],
        which,
        keys.groupby(["file", "gpu", "op"]).ngroup().to_numpy(),
        {quantity: _column(table, quantity) for quantity in READ_COLUMNS},
    )


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _column(table: MeasurementTable, quantity: str) -> np.ndarray:
    """File column that each row reads a quantity from; "" where none does."""
    spellings = np.full(table.num_rows, "", dtype=object)
    for spelling in READ_COLUMNS[quantity].spellings:
        if spelling in table.frame:
            cells = table.frame[spelling].astype(str).str.strip().str.lower()
            spellings[(spellings == "") & ~cells.isin(("", "nan")).to_numpy()] = (
                spelling
            )
    return spellings


# --- limits of clocks, meters and the board


def _clocks(rows: Rows) -> Iterator[Finding]:
    low, high = 0.5 * rows.gpu("sm_clock_min"), rows.gpu("sm_clock_max")
    requested, mean = rows.table.sm_clock_set, rows.table.sm_clock_avg
    for name, clock in (("sm_clock_set", requested), ("sm_clock_avg", mean)):
        above = "a clock of {own} is more than 2 % above the highest, {limit}"
        yield Finding(clock > 1.02 * high, name, above, high)
        below = "a clock of {own} is below half of the lowest of this GPU, {limit}"
        yield Finding(clock < low, name, below, rows.gpu("sm_clock_min"))
    above = "a mean clock of {own} is more than 2 % above the {limit} that were set"
    yield Finding(mean > 1.02 * requested, "sm_clock_avg", above, requested)


def _throttled(rows: Rows) -> Iterator[Finding]:
    """Clocks that fell although neither the power limit nor heat made them."""
    table = rows.table
    cap = np.where(np.isnan(table.power_limit), rows.gpu("tdp"), table.power_limit)
    free = (table.avg_power_w < 0.85 * cap) & ~(table.temperature >= HOT)
    slow = table.sm_clock_avg < 0.97 * table.sm_clock_set
    text = (
        "a mean clock of {own} is more than 3 % below the {limit} that were set, while "
        "the power is more than 15 % below its limit"
    )
    yield Finding(slow & free, "sm_clock_avg", text, table.sm_clock_set)


def _zeros(rows: Rows) -> Iterator[Finding]:
    """Zeros among readings; a group that is mostly zeros had no meter at all."""
    for quantity in ("energy_j", "avg_power_w"):
        zero = np.zeros(rows.table.num_rows, dtype=bool)
        for column in filter(None, pd.unique(rows.columns[quantity])):
            cells = pd.to_numeric(rows.table.frame[column], errors="coerce")
            zero |= (rows.columns[quantity] == column) & (np.asarray(cells) == 0)
        some = rows.median(zero.astype(float)) == 0
        yield Finding(zero & some, quantity, "zero means that no meter was running")


def _power(rows: Rows) -> Iterator[Finding]:
    """Powers above the limit, below idle power, or near it while the SMs are busy."""
    table, power, name = rows.table, rows.table.avg_power_w, "avg_power_w"
    partners = np.array([c.segment == "geforce" for c in rows.cards])[rows.card]
    most = rows.gpu("power_limit_max") * np.where(partners, PARTNERS, 1.0)
    limit = np.where(np.isnan(table.power_limit), most, table.power_limit)
    text = "a power of {own} is more than 5 % above the limit, {limit}"
    yield Finding(power > 1.05 * limit, name, text, limit)
    idle = _idle(rows, "sm_clock_min")
    text = "a power of {own} is below the {limit} that the idle board draws at least"
    yield Finding(power < idle, name, text, idle)
    expected, idle = rows.predicted[name], _idle(rows, "sm_clock_max")
    busy = (expected > 2 * idle) & _settled(rows)
    least = idle + BUSY_SHARE * (expected - idle)
    text = (
        "a power of {own} is below the {limit} that the board draws at least during "
        "this work; {expected} are predicted"
    )
    yield Finding(busy & (power < least), name, text, least)


def _idle(rows: Rows, unset: str) -> np.ndarray:
    """Least idle power, W, at the row's clock, at the GPU's `unset` if it has none."""
    clock = np.fmin(rows.table.sm_clock_avg, rows.table.sm_clock_set)
    clock = np.where(np.isnan(clock), rows.gpu(unset), clock)
    slow_memory = rows.table.mem_clock < 0.9 * rows.gpu("mem_clock")
    idle = np.full(len(clock), np.nan)
    for number, card in enumerate(rows.cards):
        rows_of_card = rows.card == number
        quality = card.provenance.get("idle_constant", {}).get("quality", "guess")
        curve = np.asarray(idle_power(card.spec, jnp.asarray(clock[rows_of_card])))
        idle[rows_of_card] = IDLE_SHARE.get(quality, 0.8) * curve
    return idle * np.where(slow_memory, SLOW_MEMORY, 1.0)


def _settled(rows: Rows) -> np.ndarray:
    return (rows.table.kind == "workload") | (rows.table.time_s >= SETTLED)


# --- what the cells of a row say about each other


def _dead(rows: Rows) -> Iterator[Finding]:
    """Runs that ended early: their time is start-up time over planned iterations."""
    table, time = rows.table, rows.ratio("time_s")
    campaign = pd.Series(table.window_s).groupby([table.gpu, table.campaign])
    usual = campaign.transform("median").to_numpy()
    cut = (table.window_s < 0.2 * usual) & (time < np.log(0.5))
    text = (
        "a window of {own} is far below the {limit} of its campaign, and the time far "
        "below the prediction: the run died"
    )
    yield Finding(cut, "window_s", text, usual)
    weak = (table.kind == "workload") & (rows.ratio("avg_power_w") < np.log(0.7))
    text = (
        "a time of {own} is far below the predicted {expected}, and so is the power: "
        "the run died"
    )
    yield Finding(weak & (time < np.log(0.25)), "time_s", text)


def _mismatch(rows: Rows) -> Iterator[Finding]:
    """Cells that contradict each other; named is the one furthest from its prediction,
    with the value that the two others give it."""
    table, time, power = rows.table, rows.table.time_s, rows.table.avg_power_w
    stated = np.all([rows.columns[name] != "" for name in READINGS], axis=0)
    wrong = stated & (np.abs(table.energy_j / (power * time) - 1) > 0.03)
    worst = np.argmax([np.nan_to_num(abs(rows.ratio(q))) for q in READINGS], axis=0)
    thirds = (table.energy_j / power, power * time, table.energy_j / time)
    for number, (name, third) in enumerate(zip(READINGS, thirds, strict=True)):
        text = "{own} do not fit the other two of time, energy and power: {limit}"
        yield Finding(wrong & (worst == number), name, text, third)
    ran = table.iterations * time
    text = "a window of {own} is shorter than its iterations, which take {limit}"
    yield Finding(table.window_s < 0.97 * ran, "window_s", text, ran)


# --- limits of the work


def _too_short(rows: Rows) -> Iterator[Finding]:
    """GEMMs faster than their FLOP, or their bytes beyond the L2, at the peak rates."""
    for op in rows.table.fields:
        if known_as(op) == "gemm":
            yield from _too_short_products(rows, rows.table.fields[op])


def _too_short_products(rows: Rows, products: Columns) -> Iterator[Finding]:
    at, f = products.rows, products.values
    f = {"tensor_core": np.zeros(len(at)), "out_dtype": f["dtype"]} | f
    keys = pd.Series(zip(rows.card[at], f["dtype"], f["tensor_core"], strict=True))
    peaks = {k: _peak(rows.cards[k[0]], k[1], bool(k[2])) for k in keys.unique()}
    request = rows.table.sm_clock_set
    clock = np.where(np.isnan(request), rows.gpu("sm_clock_max"), request)[at]
    rate = keys.map(peaks).to_numpy(float) * rows.gpu("num_sms")[at] * clock
    results = f["batch"] * f["m"] * f["n"]
    words = zip(f["weight_dtype"], f["weight_group"], f["dtype"], strict=True)
    stored = np.array([stored_bytes(w or own, float(n)) for w, n, own in words])
    read = np.minimum(_bytes(f["dtype"]), stored)  # of either operand
    size = (f["m"] + f["n"]) * f["k"] * read  # a batch may share them
    size = size + results * _bytes(f["out_dtype"])
    missed = np.maximum(size - rows.gpu("l2_capacity")[at], 0.0)
    least = np.zeros(rows.table.num_rows)
    least[at] = np.maximum(
        2 * results * f["k"] / rate,
        missed / rows.gpu("dram_bandwidth")[at],
    )
    text = "a time of {own} is below the {limit} that the GPU's peak rates allow"
    yield Finding(rows.table.time_s < FASTEST * least, "time_s", text, least)


def _peak(card: GpuCard, dtype: str, tensor: bool) -> float:
    """Highest rate of a type, FLOP/cycle/SM; of any type where it has none itself."""
    of = card.values
    prefix = "tensor_flop_per_cycle_"
    rates = {name[len(prefix) :]: of[name] for name in of if name.startswith(prefix)}
    names = {"fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "fp32": "tf32"}
    names["mxfp8"] = "fp8"
    rate = rates[names.get(dtype, dtype)] or max(rates.values())
    if card.segment == "geforce":
        rate *= 2  # with fp16 accumulation
    scalar = of["fma_flop_per_cycle_fp32"] * (1 if dtype == "fp32" else 4)
    return max(rate, scalar) if tensor else scalar


def _bytes(dtype: np.ndarray) -> np.ndarray:
    return pd.Series(dtype).map(dict(zip(DTYPES, BYTES, strict=True))).to_numpy(float)


# --- against the prediction


def _units(rows: Rows) -> Iterator[Finding]:
    """Readings in another unit: powers of a thousand off their prediction.

    A whole group counts from a factor of 100 on (no model is that wrong), a single row
    within a factor of 3 of a power of a thousand.
    """
    for name in READINGS:
        ratio = np.where(rows.columns[name] != "", rows.ratio(name), np.nan)
        steps = np.round(ratio / _THOUSAND)
        group = (np.abs(rows.median(ratio)) > np.log(100)) & (np.abs(steps) > 0)
        near = np.abs(ratio - steps * _THOUSAND) < np.log(3)
        odd = group | (near & (np.abs(steps) > 0))
        for column, step in set(zip(rows.columns[name][odd], steps[odd], strict=True)):
            size = float(f"{READ_COLUMNS[name].spellings[column] / 1000.0**step:.0e}")
            unit = UNITS_OF[name].get(size, "another unit")
            text = f"{{own}} are {{times}} the predicted {{expected}}: probably {unit}"
            here = (rows.columns[name] == column) & (steps == step)
            most = f"{text}, as in most rows of this GPU and op"
            yield Finding(here & odd & group, name, most)
            yield Finding(here & odd, name, text)


def _residuals(rows: Rows) -> Iterator[Finding]:
    """Rows far from their prediction, their group and the rows most like them."""
    table = rows.table
    lasting = (rows.predicted["time_s"] > LONG) | (table.time_s > 5 * LONG)
    long = (table.kind == "workload") | lasting
    for name, part in (("time_s", long), ("avg_power_w", _settled(rows))):
        ratio = rows.ratio(name)
        centre = rows.median(ratio)
        sigma = np.maximum(1.4826 * rows.median(np.abs(ratio - centre)), LEAST_SIGMA)
        alone = ratio - _around(rows, ratio)
        out = np.abs(ratio - centre) > SIGMAS * sigma
        far = np.minimum(np.abs(ratio), np.abs(alone)) > FAR[name]
        text = "{own} are {times} the predicted {expected}, unlike in similar rows"
        yield Finding(part & out & far, name, text)
        if name == "time_s":
            fast = np.maximum(ratio, alone) < np.log(0.25)
            text = "a time of {own} is less than a quarter of the predicted {expected}"
            yield Finding(part & fast, name, text)


def _around(rows: Rows, ratio: np.ndarray) -> np.ndarray:
    """Median `ratio` of the nearest rows of each row's group; 0 if it is alone."""
    from scipy.spatial import KDTree

    around = np.zeros(len(ratio))
    for group in np.unique(rows.group):
        at = np.flatnonzero((rows.group == group) & np.isfinite(ratio))
        if len(at) > 1:
            where = _coordinates(rows, at)
            _, near = KDTree(where).query(where, min(NEIGHBOURS + 1, len(at)))
            others = near != np.arange(len(at))[:, None]
            around[at] = np.nanmedian(np.where(others, ratio[at][near], np.nan), axis=1)
    return around


def _coordinates(rows: Rows, at: np.ndarray) -> np.ndarray:
    """Rows of one group as points: sizes by powers of two, words far apart."""
    table, op = rows.table, str(rows.table.op[at[0]])
    if op:
        part = np.searchsorted(table.fields[op].rows, at)
        axes = [values[part] for values in table.fields[op].values.values()]
    else:
        named = table.frame["model"] if "model" in table.frame else table.workload
        axes = [np.asarray(named, str)[at], rows.predicted["time_s"][at]]
    sizes = [
        np.log2(np.maximum(x, 1e-9))
        if x.dtype.kind == "f"
        else 20.0 * pd.factorize(x)[0]
        for x in axes
    ]
    return np.stack(sizes, axis=1)


RULES: Final[tuple[Callable[[Rows], Iterator[Finding]], ...]] = (
    _clocks,
    _zeros,
    _units,
    _dead,
    _power,
    _too_short,
    _mismatch,
    _throttled,
    _residuals,
)
"""In order of plainness: the first that finds a row says what is wrong with it."""


def flagged(table: MeasurementTable, predicted: Predictions) -> list[Flag]:
    """Rows of `table` that cannot be true, in order, each with its plainest reason.

    `predicted`: predictions of the readings; rows without are held against physical
    limits only.
    """
    rows = rows_of(table, predicted)
    flags: dict[int, Flag] = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for rule in RULES:
            for finding in rule(rows):
                for i in map(int, np.flatnonzero(finding.where)):
                    if i not in flags:
                        flags[i] = rows.flag(finding, i)
    return [flags[i] for i in sorted(flags)]
