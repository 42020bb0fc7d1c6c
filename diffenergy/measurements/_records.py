"""`MeasurementTable`: measured runs; `Meter`: how they were read."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from ..corrections import CorrectionsFile
from ..physics import TimeEnergy
from ..records import Record
from ..workload import Listing, Workload


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """Columns that only some rows of a table have.

    `rows` are indices into the table; each of `values` is as long.
    """

    rows: Int[np.ndarray, " part"]
    values: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class MeasurementTable:
    """Measured runs, one a row, in input order. Numbers are SI, NaN where not given.

    `frame` holds every input column as text (with `--gpu`, its column `gpu` is
    replaced); `file` and `row` (0-based data row) say where a row comes from. `op` is
    "" on workload rows, `workload` on kernel rows and where a model is named instead.
    `skipped` is the reason why a row cannot be predicted, "" if it can. `listings`:
    the phases of every workload that rows may name.
    """

    frame: pd.DataFrame
    file: Shaped[np.ndarray, " row"]
    row: Int[np.ndarray, " row"]  # of the file's data, from 0
    line: Int[np.ndarray, " row"]  # of the file, from 1; 0 where it has none
    kind: Shaped[np.ndarray, " row"]  # "kernel", "workload" or "plan"
    gpu: Shaped[np.ndarray, " row"]
    op: Shaped[np.ndarray, " row"]
    workload: Shaped[np.ndarray, " row"]
    campaign: Shaped[np.ndarray, " row"]
    host: Shaped[np.ndarray, " row"]
    attention: Shaped[np.ndarray, " row"]
    skipped: Shaped[np.ndarray, " row"]
    time_s: Float[np.ndarray, " row"]
    energy_j: Float[np.ndarray, " row"]
    avg_power_w: Float[np.ndarray, " row"]
    sm_clock_set: Float[np.ndarray, " row"]  # Hz
    sm_clock_avg: Float[np.ndarray, " row"]  # Hz
    mem_clock: Float[np.ndarray, " row"]  # Hz
    power_limit: Float[np.ndarray, " row"]  # W
    temperature: Float[np.ndarray, " row"]  # C
    iterations: Float[np.ndarray, " row"]
    window_s: Float[np.ndarray, " row"]
    copies: Float[np.ndarray, " row"]  # sets of operands that a kernel cycles through
    fields: dict[str, Columns]
    """By op, every field of the op's rows as `op_columns` gives it."""
    model_request: Columns
    """Model and run of the workload rows without a listing: `model`, `config`,
    `precision`, `mode`, `attention` as strings ("" if not given), `batch`, `seq_len`,
    `output_len` as floats (NaN if not given)."""
    plan: Shaped[np.ndarray, " row"]
    """`PlanRow` of the rows of training plans, None of others."""
    ignored_columns: tuple[str, ...]
    notes: tuple[str, ...]
    listings: Mapping[str, Sequence[Listing]]
    meter: "Meter"
    """How the rows were read."""

    @property
    def num_rows(self) -> int:
        return len(self.row)

    def kernel_groups(self) -> dict[tuple[str, str, str], Int[np.ndarray, " part"]]:
        """Kernel rows that are not skipped by GPU, op and campaign."""
        groups: dict[tuple[str, str, str], list[int]] = {}
        for i in np.flatnonzero((self.kind == "kernel") & (self.skipped == "")):
            key = (self.gpu[i], self.op[i], self.campaign[i])
            groups.setdefault(key, []).append(int(i))
        return {key: np.array(members) for key, members in groups.items()}


class Reading(eqx.Module):
    """Readings of the runs of a batch; this one shows the steady state.

    A subclass has the facts of each row as fields. Predicted times and powers enter:
    measured ones would hide errors.
    """

    bursts: bool = eqx.field(static=True, default=False, kw_only=True)
    """Whether some rows end before the power limiter acts."""

    def load(self, workload: Workload, constants: Any) -> Workload:
        """The work as it was run, such as with what was left in its buffers."""
        return workload

    def read(self, constants: Any, free: TimeEnergy, limited: TimeEnergy) -> TimeEnergy:
        """Reading of runs that are `free` of the power limit, or `limited` by it."""
        return limited

    @property
    def random(self) -> bool | Bool[np.ndarray, " r"]:
        """Rows whose power is that of random operands."""
        return True


class NoConstants(Record):
    """Constants of a meter that has none."""


class Meter:
    """How the rows of a table were read: a reading is not always the true value. The
    default meter reads the steady state.

    A meter belongs to campaigns (column `campaign`), never to a GPU, and is applied
    where a prediction is compared with a reading; `estimate` knows none.
    """

    constants: ClassVar[type[Record]] = NoConstants
    """Constants that a fit may free: fields with a `Constant`, as in `Corrections`."""

    def known(
        self, corrections: CorrectionsFile, campaign: str, op: str, gpu: str
    ) -> dict[str, float]:
        """Values of the constants that tables of a campaign determine on a GPU."""
        return {}

    def reading(
        self,
        table: MeasurementTable,
        op: str,
        rows: Int[np.ndarray, " r"],
        gpu: str,
        corrections: CorrectionsFile,
    ) -> Reading:
        """How these rows were read; `op`: theirs, "workload" or "plan"."""
        return Reading()

    def copies(
        self,
        table: MeasurementTable,
        op: str,
        rows: Int[np.ndarray, " r"],
        gpu: str,
        corrections: CorrectionsFile,
    ) -> Float[np.ndarray, " r"]:
        """Sets of operands that kernels cycle through, by row, where no column states
        it."""
        return np.ones(len(rows))

    def begin(
        self, table: MeasurementTable, corrections: CorrectionsFile
    ) -> CorrectionsFile:
        """The corrections with what a whole table shows of how it was read."""
        return corrections

    def usable(
        self, table: MeasurementTable, corrections: CorrectionsFile
    ) -> MeasurementTable:
        """The table without the rows and powers that no fit can use."""
        return table
