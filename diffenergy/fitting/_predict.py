"""`predict`: time, energy and power of every measured row, as its campaign reads it;
`evaluate`: how far that is from what was measured."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pandas as pd

from ..compiling import call_compiled
from ..corrections import (
    NEAR,
    Corrections,
    CorrectionsFile,
    Trust,
    prior_file,
    read_corrections,
)
from ..estimator import PhaseEstimate, estimate_workload, phase_widths, runs
from ..hardware import GpuSpec, OperatingPoint
from ..kernels import known_as
from ..measurements import (
    QUANTITIES,
    MeasurementTable,
    Predictions,
    Reading,
    group_cells,
    prediction_frame,
    summary_json,
)
from ..physics import TimeEnergy
from ..plans import Steps
from ..records import Record
from ..results import Result
from ..workload import Workload
from ._batches import Batch, batches, pass_lengths
from ._plan_batches import step_reading, with_unplanned


def batch_reading(
    inputs: tuple[Workload, GpuSpec, OperatingPoint, Reading, Steps | None],
    corrections: Corrections,
    constants: Record,
    capped: bool,
) -> TimeEnergy:
    """Reading of every phase of a batch (`Batch.inputs`), of plans of every step;
    `constants`: the meter's."""
    workload, spec, point, reading, steps = inputs
    workload = reading.load(workload, constants)
    free, governed = runs(workload, spec, point, corrections, capped, reading.bursts)
    if steps is not None:
        return step_reading(governed, steps, spec, point, corrections)
    return reading.read(constants, free, governed)


def compiled_reading(
    inputs: Any, corrections: Corrections, constants: Record, capped: bool
) -> TimeEnergy:
    """`batch_reading` by a program that is kept."""
    arguments = inputs, corrections, constants
    return call_compiled(batch_reading, arguments, capped=capped)


def read_batch(batch: Batch, corrections: CorrectionsFile) -> TimeEnergy:
    """Predicted readings of every phase of a batch with the constants of a file."""
    return compiled_reading(
        batch.inputs,
        corrections.serve(batch.card),
        batch.meter(**batch.meter_constants),
        batch.capped,
    )


def batch_phases(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint,
    corrections: Corrections,
) -> PhaseEstimate:
    """Phases of `estimate_workload`."""
    return estimate_workload(workload, gpu, point, corrections).phases


def _guessed(batch: Batch, corrections: CorrectionsFile) -> dict[str, np.ndarray]:
    """Half widths in ln that guessed numbers of the GPU leave open in each row of a
    batch; of plans, whose steps are many programs, none."""
    rows = int((batch.rows >= 0).sum())
    if batch.steps is not None:
        return {q: np.zeros(rows) for q in QUANTITIES.values()}
    served = corrections.serve(batch.card)
    arguments = batch.workload, batch.card.spec, batch.point, served
    p = jax.device_get(call_compiled(batch_phases, arguments))
    measured = np.isfinite(np.asarray(batch.point.temperature))
    warmer = p.temperature - batch.card.values["ambient_temperature"]
    phases = {
        "energy": p.energy,
        "components": p.components,
        "warmer": np.where(measured, 0.0, warmer),
        "voltage": p.voltage,
    }
    capped = p.sm_clock < (1 - 1e-6) * np.asarray(batch.point.sm_clock)
    laws = corrections.forecasts(batch.card)
    half_widths = phase_widths(batch.card, served, phases, capped, laws)
    return {QUANTITIES[q]: x[batch.rows >= 0] for q, x in half_widths.items()}


def predict(table: MeasurementTable, corrections: CorrectionsFile) -> Predictions:
    """Predictions of the readings of a table: s, J and W a row, NaN where skipped.

    Args:
        table: measured rows (`de.measurements.read`).
        corrections: the constants (`de.read_corrections`), with those of the table's
            meter.
    """
    time, energy = np.zeros(table.num_rows), np.zeros(table.num_rows)
    grade = np.full(table.num_rows, "", dtype=object)
    width = {q: np.full(table.num_rows, np.nan) for q in QUANTITIES.values()}
    lengths = pass_lengths(table)
    table = with_unplanned(table)
    for batch in batches(table, corrections):
        read = read_batch(batch, corrections)
        time += batch.per_row(table.num_rows, read.time)
        energy += batch.per_row(table.num_rows, read.energy)
        rows = batch.rows[batch.rows >= 0]
        open_by = _guessed(batch, corrections)
        for part, trust in _trusts(batch, corrections, lengths[rows]):
            grade[rows[part]] = trust.grade
            for word, name in QUANTITIES.items():
                half_width = trust.half_width(word, time[rows[part]])
                width[name][rows[part]] = np.hypot(half_width, open_by[name][part])
    untimed = np.isnan(table.time_s)  # only their power means something
    skipped = (time == 0) | (table.skipped != "")
    blank = np.where(skipped, np.nan, 1.0)
    power = blank * energy / np.where(skipped, 1.0, time)
    hidden = np.where(untimed, np.nan, blank)
    values = {
        "time_s": time * hidden,
        "energy_j": energy * hidden,
        "avg_power_w": power,
    }
    bounds = {
        f"{name}_{bound}": value * np.exp(side * width[name])
        for name, value in values.items()
        for bound, side in (("p5", -1), ("p95", 1))
    }
    return Predictions(grade=grade, skipped=table.skipped, **values, **bounds)


def _trusts(
    batch: Batch, corrections: CorrectionsFile, lengths: np.ndarray
) -> Iterator[tuple[np.ndarray, Trust]]:
    """Rows of a batch by what their predictions rest on: passes below the clocks and
    above the `lengths` that were fitted apart."""
    if batch.kind != "workload":
        count = int((batch.rows >= 0).sum())
        kind = batch.kind if batch.kind == "plan" else known_as(batch.kind)
        yield np.ones(count, bool), corrections.trust(batch.card, kind)
        return
    clocks = np.asarray(batch.point.sm_clock)[batch.rows >= 0]
    on, gpu = corrections.fitted_on, batch.card.served_as
    slow = clocks < NEAR * on.get("sm_clock_min", {}).get(gpu, 0.0)
    long = lengths > on.get("seq_len_max", {}).get(gpu, np.inf)
    for clock, length in itertools.product((False, True), repeat=2):
        beyond = ["clock"] * clock + ["length"] * length
        part = (slow == clock) & (long == length)
        yield (
            part,
            corrections.trust(
                batch.card, holds=map(known_as, batch.ops), beyond=beyond
            ),
        )


@dataclasses.dataclass(frozen=True, repr=False)
class EvaluateResult(Result):
    """Errors of the model against measured runs.

    `summary`: the JSON of `diffenergy evaluate --json`: mean absolute, median and
    signed errors and 90th percentiles in % of time, power and energy, over all rows and
    by group; `by`: the columns that groups share; `notes`: what the files held besides.
    """

    view: ClassVar[str] = "accuracy.evaluate"
    summary: dict[str, Any]
    table: MeasurementTable
    predictions: Predictions
    by: tuple[str, ...] = ()

    def rows(self) -> pd.DataFrame:
        """Every row with its prediction and interval, in SI: the table of `--out`."""
        return prediction_frame(self.table, self.predictions)

    @property
    def notes(self) -> list[str]:
        """Notes on the files: rows left out, unused columns."""
        return [*self.table.notes, *unused(self.table.ignored_columns)]


def evaluate(
    table: MeasurementTable,
    corrections: CorrectionsFile | str | Path | None = None,
    by: str | Sequence[str] = (),
) -> EvaluateResult:
    """Compares predictions with measured runs.

    Args:
        table: what `measurements.read` gives.
        corrections: fitted constants: those of a fit, a file, or "none" for the priors
            [the shipped ones].
        by: a column or several of the files; rows with equal cells are a group.

    Returns:
        Errors of all rows and of each group; `rows()` has every prediction, `plot`
        draws predicted against measured.

    Raises:
        ValueError: for a file that cannot be read, or a column that is not there.
        TypeError: if `table` is no table.

    Example:

        >>> from diffenergy import measurements
        >>> table = measurements.read("docs/examples/gemm.csv", op="gemm", gpu="a10")
        >>> evaluate(table).summary["rows"]
        12
    """
    check_table(table)
    file = corrections_file(corrections)
    columns = (by,) if isinstance(by, str) else tuple(by)
    for column in columns:  # before time is spent on predictions
        group_cells(table, column)
    predictions = predict(table, file)
    summary = summary_json(table, predictions, columns)
    return EvaluateResult(summary, table, predictions, columns)


def corrections_file(
    corrections: CorrectionsFile | str | Path | None,
) -> CorrectionsFile:
    """Corrections of a `CorrectionsFile`, a path, "none" (priors) or None (shipped)."""
    if isinstance(corrections, CorrectionsFile):
        return corrections
    if corrections is not None and not isinstance(corrections, str | Path):
        raise TypeError(
            f"corrections are a {type(corrections).__name__}; give a file, a "
            'CorrectionsFile, "none" or None.'
        )
    return prior_file() if corrections == "none" else read_corrections(corrections)


def check_table(table: Any):
    """Raises `TypeError` unless `table` is a `MeasurementTable`."""
    if not isinstance(table, MeasurementTable):
        raise TypeError(
            f"`table` is a {type(table).__name__}; give what `measurements.read` gives."
        )


def unused(columns: Sequence[str]) -> list[str]:
    """Note that names the columns that nothing reads, if any."""
    return [f"ignored columns: {', '.join(columns)}"] if columns else []
