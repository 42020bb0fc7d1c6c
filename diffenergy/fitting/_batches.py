"""Measured rows of one GPU as one `Workload` whose phases are the rows."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
from jax import Array

from ..corrections import CorrectionsFile
from ..hardware import CLOCK, GpuCard, GpuSpec, OperatingPoint, read_gpu
from ..kernels import COMMON_FIELDS, formulas, ops, sharing_formula
from ..measurements import Columns, MeasurementTable, Reading
from ..plans import Steps
from ..records import Record
from ..workload import (
    Listing,
    OpRows,
    PhaseColumns,
    Workload,
    as_codes,
    build_workload,
    op_rows,
    pad_size,
    phase_columns,
)
from ..workload.models import load_model
from ._plan_batches import by_mixture, planned, with_unplanned

CHUNK: Final = 8192
"""Rows of one batch at most; larger tables take several of one shape."""
NO_CAP: Final = 1e9
"""W; rows that carry their measured clock are past the governor."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of a table on one GPU: phase p of `workload` belongs to row `rows[p]`."""

    card: GpuCard
    workload: Workload
    point: OperatingPoint
    capped: bool
    """Whether some row may be over its power cap."""
    reading: Reading
    meter_constants: Mapping[str, float]
    """Constants of the meter that tables of this campaign can fit, by name."""
    meter: type[Record]
    """All constants of the meter."""
    kind: str
    """Op of the rows, "workload" or "plan"."""
    ops: tuple[str, ...]
    """Ops inside, and those that have a formula in common with one of them."""
    campaign: str
    """The one campaign of kernel rows; passes of several go together."""
    rows: np.ndarray
    """Table row of each phase; rows of several phases (a generation) appear twice, and
    phases that only fill up the shape have -1. Of plans the row of each step."""
    steps: Steps | None = None
    """How phases form training steps; None but for plans."""

    @property
    def inputs(
        self,
    ) -> tuple[Workload, GpuSpec, OperatingPoint, Reading, Steps | None]:
        """Inputs of `batch_reading` besides the constants."""
        return self.workload, self.card.spec, self.point, self.reading, self.steps

    @property
    def records(self) -> set[str]:
        """Names of the shape records among the launches."""
        return {type(shape).__name__ for shape in self.workload.shapes}

    @property
    def kinds(self) -> set[str]:
        """Kinds of the rows, in the words of `Constant.rows`."""
        if self.kind in ("workload", "plan", "activity"):
            return {self.kind}
        return {"kernel"} | ({"stream"} if self.records == {"Stream"} else set())

    def holds(self, op: str) -> bool:
        """Whether a kernel of the class of `op` is among the launches."""
        formula = getattr(ops()[op][1], "demand", None)
        return any(formulas()[type(x)] is formula for x in self.workload.shapes)

    def per_row(self, num_rows: int, phase: Array | np.ndarray) -> np.ndarray:
        """Sum of a phase quantity over the phases of each table row."""
        real = self.rows >= 0
        total = np.zeros(num_rows)
        np.add.at(total, self.rows[real], np.asarray(phase)[real])
        return total


def batches(table: MeasurementTable, corrections: CorrectionsFile) -> Iterator[Batch]:
    """Batches of all rows of `table` that are not skipped, by GPU."""
    table = with_unplanned(table)
    for gpu in dict.fromkeys(table.gpu):
        card = read_gpu(gpu)
        batch = functools.partial(_batch, table, corrections, card)
        live = (table.gpu == gpu) & (table.skipped == "")
        for part in _chunks(live & (table.kind == "workload")):
            listings, owner = _passes(table, part)
            yield batch("workload", *_columns(listings), owner)
        plans = np.flatnonzero(live & (table.kind == "plan"))
        for part in by_mixture(table, plans):
            listings, owner, steps = planned(table, part)
            batch_of_plans = batch("plan", *_columns(listings), owner)
            yield dataclasses.replace(batch_of_plans, rows=part, steps=steps)
        for op, columns in table.fields.items():
            campaigns = table.campaign[columns.rows]
            live_rows = live[columns.rows]
            for name in dict.fromkeys(campaigns[live_rows]):
                for part in _chunks(live_rows & (campaigns == name)):
                    rows = columns.rows[part]
                    copies = table.meter.copies(table, op, rows, card.name, corrections)
                    stated = table.copies[rows]
                    copies = np.where(np.isnan(stated), copies, stated)
                    yield batch(op, *_kernels(op, columns, part, copies), rows)


def _chunks(which: np.ndarray) -> list[np.ndarray]:
    """Indices of the chosen rows, at most `CHUNK` in each array."""
    index = np.flatnonzero(which)
    return [index[start : start + CHUNK] for start in range(0, len(index), CHUNK)]


def _columns(listings: Sequence[Listing]) -> tuple[list[OpRows], PhaseColumns]:
    """Launches and phases of listings, one phase a listing."""
    flat = [(k, i) for i, x in enumerate(listings) for k in x.kernels]
    return op_rows(flat), phase_columns(listings)


def _passes(
    table: MeasurementTable, rows: np.ndarray
) -> tuple[list[Listing], np.ndarray]:
    """Listings of whole passes, and the table row that each belongs to."""
    by_name: dict[str, list[Listing]] = {}
    requests = {int(r): i for i, r in enumerate(table.model_request.rows)}
    listings: list[Listing] = []
    owner: list[int] = []
    for row in rows:
        name = str(table.workload[row]) or f"model {requests[int(row)]}"
        if name not in by_name:
            own_listings = (
                table.listings[name]
                if table.workload[row]
                else _requested(table, requests[int(row)])
            )
            by_name[name] = [*own_listings]
        listings += by_name[name]
        owner += [int(row)] * len(by_name[name])
    return listings, np.array(owner)


def _kernels(
    op: str, columns: Columns, index: np.ndarray, copies: np.ndarray
) -> tuple[list[OpRows], PhaseColumns]:
    """Single kernels in a loop of their own: one phase a row, no host."""
    fields = {
        field.name: as_codes(field, columns.values[field.name][index])
        for field in (*ops()[op][0].fields, *COMMON_FIELDS)
    }
    every = np.arange(len(index))
    part = OpRows(op, fields, every, every)
    return [part], PhaseColumns.single(len(index), copies=copies)


def _batch(
    table: MeasurementTable,
    corrections: CorrectionsFile,
    card: GpuCard,
    kind: str,
    parts: list[OpRows],
    phases: PhaseColumns,
    rows: np.ndarray,
) -> Batch:
    """A batch padded to a common shape, so that batches share compiled programs."""
    count = len(rows)
    extra = pad_size(count) - count

    def padded(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.repeat(x[:1], extra, axis=0)])

    phases = PhaseColumns(
        **{f.name: padded(getattr(phases, f.name)) for f in dataclasses.fields(phases)}
    )
    workload = build_workload(parts, phases)
    picked = padded(rows)
    point = _point(table, card, picked)
    campaign = "" if kind in ("workload", "plan") else str(table.campaign[rows[0]])
    meter = table.meter
    return Batch(
        card,
        workload,
        point,
        bool((np.asarray(point.power_cap) < NO_CAP).any()),
        meter.reading(table, kind, picked, card.name, corrections),
        meter.known(corrections, campaign, kind, card.name),
        meter.constants,
        kind,
        tuple(sorted(sharing_formula(part.op for part in parts))),
        campaign,
        np.concatenate([rows, np.full(extra, -1)]),
    )


def _point(table: MeasurementTable, card: GpuCard, rows: np.ndarray) -> OperatingPoint:
    """Measured mean clock where there is one, else the requested one under the cap. A
    clock in a wrong unit is another one here: its row is flagged, not refused."""
    values = card.values
    measured, request = table.sm_clock_avg[rows], table.sm_clock_set[rows]
    limit = table.power_limit[rows]
    clock = np.where(np.isnan(request), values["sm_clock_max"], request)
    cap = np.where(np.isnan(limit), values["tdp"], limit)
    memory = table.mem_clock[rows]
    memory = np.where(np.isnan(memory), values["mem_clock"], memory)
    return OperatingPoint(
        np.clip(np.where(np.isnan(measured), clock, measured), CLOCK.low, CLOCK.high),
        np.clip(memory, CLOCK.low, CLOCK.high),
        np.where(np.isnan(measured), cap, NO_CAP),
        table.temperature[rows],
    )


def _requested(table: MeasurementTable, index: int) -> list[Listing]:
    """Listings of a row that names a model instead of a workload."""
    request = {name: v[index] for name, v in table.model_request.values.items()}
    phase = {"": None, "forward": None}.get(request["mode"], request["mode"])

    def whole(column: str) -> int | None:
        return None if np.isnan(request[column]) else int(request[column])

    model = load_model(request["model"])
    return model.listings(
        batch=whole("batch"),
        input_len=whole("seq_len"),
        output_len=whole("output_len"),
        phase=phase,
        dtype=request["precision"] or None,
        attention=request["attention"] or None,
        stack="eager",
    )


def pass_lengths(table: MeasurementTable) -> np.ndarray:
    """Sequence lengths of the passes (column `seq_len`, tokens); 0 where unknown."""
    if "seq_len" not in table.frame:
        return np.zeros(table.num_rows)
    lengths = np.asarray(pd.to_numeric(table.frame["seq_len"], errors="coerce"), float)
    return np.nan_to_num(lengths)
