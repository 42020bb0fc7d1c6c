"""Which rows of the tables a fit takes: so many of each, and with what power."""

import math
from collections.abc import Sequence

import numpy as np

from ..measurements import MeasurementTable


def per_table(tables: Sequence[MeasurementTable], max_rows: int) -> int:
    """Rows of each (GPU, op, campaign), the largest power of two that fits (rows are
    padded to one)."""
    count = sum(len(table.kernel_groups()) for table in tables)
    return 1 << max(int(math.log2(max(max_rows / max(count, 1), 1))), 0)


def sampled(table: MeasurementTable, rng: np.random.Generator, most: int) -> np.ndarray:
    """`skipped` of a table in which kernel rows are thinned out: those that were timed,
    evenly over dtype and time."""
    skipped = table.skipped.copy()
    for (_, op, _), index in table.kernel_groups().items():
        columns = table.fields[op]
        place = np.searchsorted(columns.rows, index)
        none = np.full(len(columns.rows), "")
        dtypes = columns.values.get("dtype", none)[place].astype(str)
        usable = np.flatnonzero(table.time_s[index] >= 0)  # not NaN
        order = np.lexsort((table.time_s[index[usable]], dtypes[usable]))
        ordered = index[usable[order]]
        if not len(ordered):  # nothing timed: readings of power alone
            ordered = index[np.isfinite(table.avg_power_w[index])]
        strata = np.array_split(ordered, min(most, max(len(ordered), 1)))
        kept = [int(rng.choice(stratum)) for stratum in strata if len(stratum)]
        skipped[np.setdiff1d(index, kept)] = "not sampled"
    return skipped
