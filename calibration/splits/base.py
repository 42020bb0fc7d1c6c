"""What a split is: groups left out of a fit, rows that it predicts, lines of the table.

Data are read from the folder of measured tables, where they lie.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.campaigns import meter
from calibration.importers import importers
from calibration.listings import completed_listings
from diffenergy import measurements
from diffenergy.corrections import CorrectionsFile, prior_file
from diffenergy.fitting._calibrate import Settings
from diffenergy.measurements import MeasurementTable, Predictions
from diffenergy.workload import Listing

Mask = Callable[[MeasurementTable, Predictions, CorrectionsFile], np.ndarray]
"""Rows of a tested table, by its predictions and the corrections that made them."""


class Data:
    """Measured tables of a folder, each read once."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @functools.cached_property
    def listings(self) -> dict[str, list[Listing]]:
        listings = completed_listings(self.folder / "energaizer")
        return {listing.name: [listing] for listing in listings}

    @functools.cached_property
    def passes(self) -> MeasurementTable:
        """Of the A100, the A10 and the H100."""
        names = ("measurements.csv", "measurements_h100.csv")
        files = [str(self.folder / "energaizer" / name) for name in names]
        return measurements.read(files, workloads=self.listings, meter=meter)

    @functools.cache  # noqa: B019 - one Data a process
    def kernels(self, gpu: str, op: str, what: str) -> MeasurementTable:
        file = self.folder / "aiconfigurator" / f"{gpu}_{op}_{what}.csv.gz"
        return measurements.read([f"{op}={file}"], meter=meter)

    @functools.cache  # noqa: B019 - one Data a process
    def imported(self, name: str, stem: str, of: str = "") -> MeasurementTable:
        """A table that the importer `name` makes of the folder `of`, or that of its
        name."""
        return as_table(importers()[name].read(self.folder / (of or name))[stem])


def as_table(frame: pd.DataFrame) -> MeasurementTable:
    """Rows of an importer as measurements, by way of a file."""
    with tempfile.TemporaryDirectory() as place:
        file = f"{place}/rows.csv"
        frame.to_csv(file, index=False)
        return measurements.read([file], meter=meter)


Percentages = tuple[float | None, float | None, float | None]


@dataclasses.dataclass(frozen=True)
class Score:
    """Rows of the left-out ones that a line of the table is about.

    `figures` of measured and predicted time replace the errors in percent; `goal` and
    `study` are then texts.
    """

    title: str
    rows: Mask
    goal: Percentages | str
    study: Percentages | str
    quantities: tuple[str, ...] = ("time", "power", "energy")
    figures: Callable[[np.ndarray, np.ndarray], dict[str, float]] | None = None


@dataclasses.dataclass(frozen=True)
class Fold:
    """One fit: tables whose readings are fitted, and the rows that it predicts."""

    fitted: list[MeasurementTable]
    tested: MeasurementTable
    settings: Settings
    start: CorrectionsFile = dataclasses.field(default_factory=prior_file)
    predicted: Predictions | None = None
    """Predictions that the fold itself made."""
    constants: int = 0
    """Constants that were fitted for these."""


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
    part: tuple[str, ...] = ("model",)
    """Columns whose values name what was left out together inside a fold."""


def only(table: MeasurementTable, rows: np.ndarray) -> MeasurementTable:
    """The table with all other rows skipped."""
    skipped = np.where(rows, table.skipped, "not of this split").astype(object)
    return dataclasses.replace(table, skipped=skipped)


def everything(
    table: MeasurementTable, _: Predictions, __: CorrectionsFile
) -> np.ndarray:
    return np.ones(table.num_rows, bool)


def on(gpu: str, seconds: float = 0.0) -> Mask:
    """Rows of a GPU, untimed ones too, but those that took no longer than that."""
    return lambda table, *_: (table.gpu == gpu) & ~(table.time_s <= seconds)


def folds_of(groups: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """Fold of every row: group i of `order` goes to fold i mod `count`."""
    fold = {name: i % count for i, name in enumerate(order)}
    return np.array([fold.get(name, -1) for name in groups])


NONE = (None, None, None)
"""No goal, or no figure of an earlier study."""
WHOLE = 1e9
"""Table weight: every row counts fully where one table is fitted alone."""


def column(table: MeasurementTable, name: str) -> np.ndarray:
    """A field of a table of one op."""
    (columns,) = table.fields.values()
    return columns.values[name]
