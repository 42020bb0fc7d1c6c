"""View of a power meter's log: its rows as runs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..._blocks import Block, Table

if TYPE_CHECKING:
    from ....measurements import LogResult

_MOST_ROWS: Final = 20
_SHOWN: Final = (
    ("GPU", "gpu", "{}"), ("workload", "workload", "{}"), ("s", "time_s", "{:.4g}"),
    ("J", "energy_j", "{:.5g}"), ("W", "avg_power_w", "{:.1f}"),
    ("SM MHz", "sm_clock_mhz_avg", "{:.0f}"),
)  # fmt: skip
"""Columns shown if the log has them."""


def line(result: "LogResult") -> str:
    """Return a line with the log, GPUs and number of rows."""
    x = result.summary
    plural = "" if x["rows"] == 1 else "s"
    gpus = ", ".join(x["gpus"])
    return f"{x['source']} ({x['format']}) on {gpus}: {x['rows']:,} row{plural}"


def blocks(result: "LogResult") -> Iterator[Block]:
    """Yield the summary line and the first rows."""
    yield line(result)
    rows = result.table.to_dict("records")
    yield Table([x for x in _SHOWN if x[1] in result.table], rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        yield f"and {len(rows) - _MOST_ROWS:,} more rows; --out runs.csv has all"
