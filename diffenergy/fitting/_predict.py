"""`predict`: time, energy and power of every measured row, as its campaign reads it."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from ..compiling import compiler_options
from ..corrections import Corrections, CorrectionsFile, Sensor
from ..estimator._estimate import runs
from ..hardware._files import GpuCard
from ..hardware._spec import GpuSpec, OperatingPoint
from ..measurements import MeasurementTable
from ..measurements._metrics import QUANTITIES
from ..measurements._predictions import Predictions
from ..physics._instrument import Instrument, Run, data_activity, reading
from ..workload._listing import Listing
from ..workload._workload import Workload
from ._batches import Batch, How, batches


def batch_reading(
    workload: Workload,
    spec: GpuSpec,
    point: OperatingPoint,
    instrument: Instrument,
    corrections: Corrections,
    sensor: Sensor,
    how: How,
) -> Run:
    """Reading of every phase of a batch."""
    if how.sampling == "series":
        contents = data_activity(instrument, sensor)
        phases = dataclasses.replace(workload.phases, data_activity=contents)
        workload = dataclasses.replace(workload, phases=phases)
    free, held = runs(workload, spec, point, corrections, how.capped, how.bursts)
    return reading(instrument, sensor, how.sampling, free, held)


@functools.cache
def compiled_reading():
    """`batch_reading`, jitted."""
    options = compiler_options(True)
    return jax.jit(batch_reading, static_argnums=6, compiler_options=options)


def read_batch(batch: Batch, corrections: CorrectionsFile) -> Run:
    """Reading of every phase of a batch with the constants of a file."""
    return compiled_reading()(
        batch.workload,
        batch.card.spec,
        batch.point,
        batch.instrument,
        corrections.serve(batch.card),
        corrections.sensor(batch.campaign, batch.kind, batch.card.name),
        batch.how,
    )


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
    width = {q: np.full(table.num_rows, np.nan) for q in QUANTITIES.values()}
    for batch in batches(table, listings, corrections, cards):
        read = read_batch(batch, corrections)
        time += batch.per_row(table.num_rows, read.time)
        energy += batch.per_row(table.num_rows, read.energy)
        rows = batch.rows[batch.rows >= 0]
        trust = corrections.trust(batch.card, batch.kind)
        grade[rows] = trust.grade
        for word, name in QUANTITIES.items():
            width[name][rows] = trust.half_width(word, time[rows])
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
