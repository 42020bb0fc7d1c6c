"""`predict`: time, energy and power of every measured row, as its campaign reads it."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..corrections import Corrections, CorrectionsFile
from ..estimator import estimate
from ..hardware.files import GpuCard
from ..hardware.spec import GpuSpec, OperatingPoint
from ..measurements import MeasurementTable
from ..measurements.predictions import Predictions
from ..physics.instrument import Instrument, Run, reading
from ..workload.listing import Listing
from ..workload.workload import Workload
from .batches import NO_CAP, batches


def batch_reading(
    workload: Workload,
    spec: GpuSpec,
    point: OperatingPoint,
    instrument: Instrument,
    corrections: Corrections,
    bursts: bool,
) -> Run:
    """Reading of every phase of a batch; `bursts`: the power limiter may come late."""

    def run(at: OperatingPoint) -> Run:
        phases = estimate(workload, spec, at, corrections).phases
        return Run(phases.time, phases.energy)

    governed = run(point)
    uncapped = dataclasses.replace(point, power_cap=point.power_cap * 0 + NO_CAP)
    free = run(uncapped) if bursts else governed
    return reading(instrument, free, governed)


def predict(
    table: MeasurementTable,
    listings: Mapping[str, Sequence[Listing]],
    corrections: CorrectionsFile,
    cards: Mapping[str, GpuCard] | None = None,
) -> Predictions:
    """Predictions of the readings of `table`, NaN on rows that it skips.

    `listings`: phases of each workload that the table names; `cards`: GPU files that
    replace the bundled ones of the same name.
    """
    time, energy = np.zeros(table.num_rows), np.zeros(table.num_rows)
    grade = np.full(table.num_rows, "", dtype=object)
    for batch in batches(table, listings, corrections, cards):
        c = corrections.serve(batch.card)
        read = batch_reading(
            batch.workload, batch.card.spec, batch.point, batch.instrument, c,
            batch.bursts,
        )  # fmt: skip
        time += batch.per_row(table.num_rows, read.time)
        energy += batch.per_row(table.num_rows, read.energy)
        grade[batch.rows[batch.rows >= 0]] = corrections.grade(batch.card)
    untimed = np.isnan(table.time_s)  # only their power means something
    skipped = (time == 0) | (table.skipped != "")
    blank = np.where(skipped, np.nan, 1.0)
    power = blank * energy / np.where(skipped, 1.0, time)
    hidden = np.where(untimed, np.nan, blank)
    return Predictions(
        time_s=time * hidden,
        energy_j=energy * hidden,
        avg_power_w=power,
        grade=grade,
        skipped=table.skipped,
    )
