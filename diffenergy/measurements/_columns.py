"""Columns that every measurement file may have (spellings, units, ranges), and words of
public data sets that differ from ours (ops, columns, tile order)."""

import dataclasses
import re
from typing import Final

import numpy as np

from ._cells import (
    ANY_NUMBER,
    NOT_NEGATIVE,
    POSITIVE,
    CellRange,
    Sheet,
    name_list,
    read_numbers,
    read_texts,
)

_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_JOULES: Final = {"mj": 1e-3, "j": 1.0, "kj": 1e3}
_WATTS: Final = {"mw": 1e-3, "w": 1.0, "kw": 1e3}
_HERTZ: Final = {"mhz": 1e6, "ghz": 1e9, "hz": 1.0}

FIELD_ALIASES: Final = {"family": "kernel_source", "bytes": "message_bytes"}
"""Column that serves where the field's own name is no column (AIConfigurator)."""

_OPS: Final = {
    "linear": "gemm",
    "bmm": "gemm",
    "matmul": "gemm",
    "ln": "layernorm",
}
"""Op names of NeuSight and LLMCompass."""

_POINTWISE: Final = frozenset(
    "add addu mul mulu div divu pow powu relu gelu tanh".split()
)
"""Element-wise ops of NeuSight; those in `u` take a scalar as second operand."""

_TWO_TENSORS: Final = ("add", "mul", "div", "pow")

_VECTOR: Final = _POINTWISE | {"softmax", "ln"}
"""Ops of NeuSight's vector tables, whose shape is (batch, h)."""

_CUBLAS_COLUMNS: Final = frozenset(
    "op kernel tile_m tile_n grid_x grid_y grid_z block_x".split()
)
"""Header of NeuSight's GEMM tables: launch geometry as the profiler shows it."""

_SLICED: Final = re.compile(r"sliced1x(\d+)")
"""Part of cuBLAS's kernel names: groups of warps that share the k of a tile."""

_CAMPAIGN: Final = "neusight"
"""Campaign of NeuSight's tables, which name none."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One measured number: spellings in order of preference, with their scale to SI."""

    spellings: dict[str, float]
    allowed: CellRange = POSITIVE


def _spell(units: dict[str, float], *patterns: str) -> dict[str, float]:
    return {
        pattern.format(unit): scale
        for pattern in patterns
        for unit, scale in units.items()
    }


READ_COLUMNS: Final = {
    "time_s": Quantity(_spell(_SECONDS, "time_{}_per_iter", "time_{}", "step_time_{}")),
    "energy_j": Quantity(
        _spell(_JOULES, "energy_{}_per_iter", "energy_{}"), NOT_NEGATIVE
    ),
    "avg_power_w": Quantity(_spell(_WATTS, "avg_power_{}"), NOT_NEGATIVE),
    "sm_clock_set": Quantity(_spell(_HERTZ, "sm_clock_{}_set", "sm_clock_{}")),
    "sm_clock_avg": Quantity(_spell(_HERTZ, "sm_clock_{}_avg")),
    "mem_clock": Quantity(_spell(_HERTZ, "mem_clock_{}")),
    "power_limit": Quantity(_spell(_WATTS, "power_limit_{}")),
    "temperature": Quantity({"temperature_c": 1.0}, ANY_NUMBER),
    "iterations": Quantity({"iterations": 1.0}),
    "window_s": Quantity(_spell(_SECONDS, "window_{}")),
    "copies": Quantity({"copies": 1.0}),
}
"""By the name of the array in `MeasurementTable`. Where a file has several spellings,
the first one counts. `mj` and `mw` are thousandths, as NVML has them."""

CAMPAIGN_COLUMNS: Final = ("campaign", "source", "framework")
"""The first one that a file has names the measurement campaign."""

KNOWN: Final = frozenset(
    name for quantity in READ_COLUMNS.values() for name in quantity.spellings
).union(("gpu", "op", "workload", "host", "attention"), CAMPAIGN_COLUMNS)


def measured(sheet: Sheet) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """All `READ_COLUMNS` of a file in SI, NaN where it has none, and notes.

    Zero energy or power means that no meter was running: it becomes NaN with a note.
    Of time, energy and power the third follows from the two that are given.
    """
    notes = []
    values = {}
    everywhere = np.arange(sheet.num_rows)
    for name, quantity in READ_COLUMNS.items():
        given = [c for c in quantity.spellings if c in sheet.columns]
        if not given:
            values[name] = np.full(sheet.num_rows, np.nan)
            continue
        column, *others = given
        if others:
            notes.append(
                f"{sheet.file}: `{column}` is read, {name_list(others)} is not."
            )
        cells = read_numbers(sheet, column, everywhere, quantity.allowed)
        zeros = cells == 0
        if quantity.allowed is NOT_NEGATIVE and zeros.any():
            cells = np.where(zeros, np.nan, cells)
            notes.append(
                f"{sheet.file}: `{column}` is 0 in {zeros.sum()} rows, which counts as "
                f"not measured."
            )
        values[name] = cells * quantity.spellings[column]
    time, energy, power = (values[n] for n in ("time_s", "energy_j", "avg_power_w"))
    values["time_s"] = np.where(np.isnan(time), energy / power, time)
    values["energy_j"] = np.where(np.isnan(energy), time * power, energy)
    values["avg_power_w"] = np.where(np.isnan(power), energy / time, power)
    return values, tuple(notes)


def translate(sheet: Sheet) -> tuple[Sheet, tuple[str, ...]]:
    """`sheet` in our words, and notes on what was changed.

    Known are the op names of NeuSight and LLMCompass and the shapes of NeuSight's two
    tables. Files with other words come back as they are.
    """
    if "op" not in sheet.columns:
        return sheet, ()
    words = read_texts(sheet, "op", np.arange(sheet.num_rows))
    columns = dict(sheet.columns)
    ours, notes = _OPS, ()
    products = columns.keys() >= _CUBLAS_COLUMNS
    vectors = columns.keys() >= {"batch", "h"} and _VECTOR.issuperset(words)
    if products:
        notes = _cublas(sheet, columns, words)
    elif vectors:
        _vectors(sheet, columns, words)
        ours = _OPS | dict.fromkeys(_POINTWISE, "elementwise")
    if (products or vectors) and columns.keys().isdisjoint(CAMPAIGN_COLUMNS):
        columns["campaign"] = np.full(sheet.num_rows, _CAMPAIGN, dtype=object)
    columns["op"] = np.array([ours.get(word, word) for word in words], dtype=object)
    return dataclasses.replace(sheet, columns=columns), notes


def _cublas(
    sheet: Sheet, columns: dict[str, np.ndarray], words: np.ndarray
) -> tuple[str, ...]:
    """NeuSight's GEMM tables, whose tile is the one in cuBLAS's kernel name.

    That name is column-major: its first number runs along n (`grid_x` is
    ceil(n / `tile_m`) in all A100, V100, T4 and nearly all P100 rows). Rows whose grid
    has nearer as many CTAs the other way round (some of the H100) keep their order.
    """
    printed_m, printed_n = columns["tile_m"], columns["tile_n"]
    kept = _row_major(sheet)
    columns["tile_m"] = np.where(kept, printed_m, printed_n)
    columns["tile_n"] = np.where(kept, printed_n, printed_m)
    columns["threads"] = columns.pop("block_x")
    linear = words == "linear"
    columns["split_k"] = np.where(linear, columns.pop("grid_z"), "")
    columns["layout"] = np.where(linear, "tn", "nn").astype(object)
    columns["weights"] = np.where(linear, "b", "none").astype(object)
    sliced = (_SLICED.search(name) for name in columns["kernel"])
    columns["slices"] = np.array([x[1] if x else "1" for x in sliced], dtype=object)
    columns["family"] = words
    return (
        f"{sheet.file}: `tile_m` and `tile_n` are exchanged where the grid says so "
        f"({len(kept) - kept.sum()} of {len(kept)} rows), since cuBLAS's kernel names "
        f"are column-major; `split_k` is `grid_z` of the op 'linear', `threads` is "
        f"`block_x`.",
    )


def _row_major(sheet: Sheet) -> np.ndarray:
    """Whether the printed tile explains the number of CTAs better with its first
    number along m than along n."""
    every = np.arange(sheet.num_rows)
    m, n, tile_m, tile_n, across, down = (
        read_numbers(sheet, name, every, POSITIVE, needed=True)
        for name in ("m", "n", "tile_m", "tile_n", "grid_x", "grid_y")
    )

    def off(along_m: np.ndarray, along_n: np.ndarray) -> np.ndarray:
        tiles = np.ceil(m / along_m) * np.ceil(n / along_n)
        return np.abs(np.log(tiles / (across * down)))

    return off(tile_m, tile_n) < off(tile_n, tile_m)


def _vectors(sheet: Sheet, columns: dict[str, np.ndarray], words: np.ndarray) -> None:
    """NeuSight's vector tables, whose shape is (`batch`, `h`)."""
    every = np.arange(sheet.num_rows)
    batch = read_numbers(sheet, "batch", every, POSITIVE, needed=True)
    length = read_numbers(sheet, "h", every, POSITIVE, needed=True)
    columns["rows"], columns["cols"] = columns.pop("batch"), columns.pop("h")
    columns["elements"] = batch * length
    columns["reads"] = np.where(np.isin(words, _TWO_TENSORS), 2.0, 1.0)
    columns["fn"] = columns["family"] = words
