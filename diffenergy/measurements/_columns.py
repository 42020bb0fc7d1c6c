"""Columns that every measurement file may have: spellings, units, ranges."""

import dataclasses
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
)

_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_JOULES: Final = {"mj": 1e-3, "j": 1.0, "kj": 1e3}
_WATTS: Final = {"mw": 1e-3, "w": 1.0, "kw": 1e3}
_HERTZ: Final = {"mhz": 1e6, "ghz": 1e9, "hz": 1.0}

FIELD_ALIASES: Final = {"family": "kernel_source", "bytes": "message_bytes"}
"""Column that serves where the field's own name is no column (AIConfigurator)."""


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

STANDARD: Final = frozenset(
    name for quantity in READ_COLUMNS.values() for name in quantity.spellings
).union(("gpu", "op", "workload", "host", "attention"), CAMPAIGN_COLUMNS)


def read_measured(sheet: Sheet) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """All `READ_COLUMNS` of a file in SI, NaN where it has none, and notes.

    Zero energy or power means that no meter was running: it becomes NaN with a note.
    Of time, energy and power the third follows from the two that are given.
    """
    notes = []
    values = {}
    everywhere = np.arange(sheet.num_rows)
    for name, quantity in READ_COLUMNS.items():
        spellings = [c for c in quantity.spellings if c in sheet.columns]
        if not spellings:
            values[name] = np.full(sheet.num_rows, np.nan)
            continue
        column, *others = spellings
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
