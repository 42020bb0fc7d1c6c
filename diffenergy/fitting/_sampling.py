"""Which rows of the tables a fit takes: so many of each, and with what power."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ..corrections import CorrectionsFile
from ..hardware import read_gpu
from ..measurements import Columns, MeasurementTable
from ._facts import by_row, cold_blocks


def with_cold_blocks(
    start: CorrectionsFile, tables: Sequence[MeasurementTable]
) -> CorrectionsFile:
    """Start with the cold blocks of every GPU and campaign whose sensor knows
    series."""
    instruments = {name: dict(values) for name, values in start.instruments.items()}
    for table in tables:
        for (gpu, op, campaign), index in _groups(table).items():
            rows = index[np.isfinite(table.avg_power_w[index])]
            model = start.instrument(campaign, op, gpu)
            if len(rows) and op == "gemm" and "warm_share" in model:
                found = cold_blocks(table, rows, read_gpu(gpu))
                own = instruments.setdefault(f"{campaign}:gemm@{gpu}", {})
                own["cold_blocks"] = found
    return dataclasses.replace(start, instruments=instruments)


def _groups(table: MeasurementTable) -> dict[tuple[str, str, str], np.ndarray]:
    """Kernel rows by GPU, op and campaign."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i in np.flatnonzero((table.kind == "kernel") & (table.skipped == "")):
        key = (table.gpu[i], table.op[i], table.campaign[i])
        groups.setdefault(key, []).append(int(i))
    return {key: np.array(members) for key, members in groups.items()}


def per_table(tables: Sequence[MeasurementTable], max_rows: int) -> int:
    """Rows of each (GPU, op, campaign), the largest power of two that fits (rows are
    padded to one)."""
    count = sum(len(_groups(table)) for table in tables)
    return 1 << max(int(math.log2(max(max_rows / max(count, 1), 1))), 0)


def sampled(
    table: MeasurementTable,
    start: CorrectionsFile,
    rng: np.random.Generator,
    most: int,
) -> np.ndarray:
    """`skipped` of a table in which kernel rows are thinned out: those with a reading
    above the launch loop, evenly over dtype and time."""
    skipped = table.skipped.copy()
    for (gpu, op, campaign), index in _groups(table).items():
        columns, place = _placed(table, op, index)
        none = np.full(len(columns.rows), "")
        dtypes = columns.values.get("dtype", none)[place].astype(str)
        model = start.instrument(campaign, op, gpu)
        floor = by_row(model, "floor_seconds", columns, place)
        usable = np.flatnonzero(table.time_s[index] >= floor)  # not NaN
        order = np.lexsort((table.time_s[index[usable]], dtypes[usable]))
        ordered = index[usable[order]]
        if not len(ordered):  # nothing timed: readings of power alone
            ordered = index[np.isfinite(table.avg_power_w[index])]
        strata = np.array_split(ordered, min(most, max(len(ordered), 1)))
        kept = [int(rng.choice(stratum)) for stratum in strata if len(stratum)]
        skipped[np.setdiff1d(index, kept)] = "not sampled"
    return skipped


def _placed(
    table: MeasurementTable, op: str, index: np.ndarray
) -> tuple[Columns, np.ndarray]:
    """Columns of an op, and where the rows `index` of the table stand in them."""
    columns = table.fields[op]
    return columns, np.searchsorted(columns.rows, index)


def without_unsettled(
    table: MeasurementTable, start: CorrectionsFile
) -> MeasurementTable:
    """The table without the power of kernels too short for their sensor's model."""
    least = np.zeros(table.num_rows)
    for (gpu, op, campaign), index in _groups(table).items():
        model = start.instrument(campaign, op, gpu)
        least[index] = by_row(model, "power_seconds", *_placed(table, op, index))
    power = np.where(table.time_s >= least, table.avg_power_w, np.nan)
    power = np.where(np.isnan(table.time_s), table.avg_power_w, power)
    return dataclasses.replace(table, avg_power_w=power)
