"""`predict`: time, energy and power of every measured row, as its campaign reads them."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..corrections import CorrectionsFile
from ..estimator import estimate
from ..hardware.files import GpuCard
from ..measurements import MeasurementTable
from ..measurements.predictions import Predictions
from ..physics.instrument import reading
from ..workload.listing import Listing
from .batches import batches


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
        result = estimate(
            batch.workload, batch.card.spec, batch.point, corrections.serve(batch.card)
        )
        t, e = reading(batch.instrument, result.phases.time, result.phases.energy)
        time += batch.per_row(table.num_rows, t)
        energy += batch.per_row(table.num_rows, e)
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
