"""A table beside its predictions, and how a row that cannot be true is told."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from ...hardware import GpuCard, read_gpu
from ...measurements import READ_COLUMNS, READINGS, MeasurementTable, Predictions

UNITS_OF: Final = {
    "time_s": {1e-9: "ns", 1e-6: "us", 1e-3: "ms", 1.0: "s"},
    "energy_j": {1e-6: "uJ", 1e-3: "mJ", 1.0: "J", 1e3: "kJ", 1e6: "MJ"},
    "avg_power_w": {1e-6: "uW", 1e-3: "mW", 1.0: "W", 1e3: "kW", 1e6: "MW"},
    "window_s": {1e-6: "us", 1e-3: "ms", 1.0: "s"},
}
"""Units of the readings and the window by their size in SI."""
_CLOCK_UNITS: Final = {1.0: "Hz", 1e6: "MHz", 1e9: "GHz"}


@dataclasses.dataclass(frozen=True)
class Flag:
    """A measured row that cannot be true: its cell as read, and why."""

    file: str
    row: int
    """0-based data row of the file, as `evaluate --out` counts."""
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
    """A table beside its predictions, with what the rules look up."""

    table: MeasurementTable
    predicted: dict[str, np.ndarray]
    cards: list[GpuCard]
    card: np.ndarray  # index into `cards`
    group: np.ndarray  # code of (file, gpu, op)
    columns: dict[str, np.ndarray]  # by quantity, the file's column or ""

    def gpu(self, field: str) -> np.ndarray:
        """A number of each row's GPU."""
        return np.array([card.values[field] for card in self.cards])[self.card]

    def ratio(self, quantity: str) -> np.ndarray:
        """ln(measured / predicted), NaN where one is missing."""
        return np.log(getattr(self.table, quantity) / self.predicted[quantity])

    def median(self, values: np.ndarray) -> np.ndarray:
        """Median of each row's group, without NaNs."""
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
        file, row = str(table.file[i]), int(table.row[i])
        return Flag(file, row, column or quantity, cell, reason, i)


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
    """Column of the file that gives a quantity, "" on rows where none does."""
    found = np.full(table.num_rows, "", dtype=object)
    for spelling in READ_COLUMNS[quantity].spellings:
        if spelling in table.frame:
            cells = table.frame[spelling].astype(str).str.strip().str.lower()
            found[(found == "") & ~cells.isin(("", "nan")).to_numpy()] = spelling
    return found
