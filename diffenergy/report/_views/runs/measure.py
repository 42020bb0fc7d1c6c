"""View of measurements."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..._blocks import Block, Table

if TYPE_CHECKING:
    from ....measure import MeasureResult


def line(result: "MeasureResult") -> str:
    """Return a line with the number of measured points and rows."""
    summary = result.summary
    stopped = f" ({summary['stopped']})" if summary["stopped"] else ""
    return (
        f"{summary['measured']} points measured, {len(summary['failed'])} left out, "
        f"{summary['remaining']} remain{stopped}; {summary['file']} has "
        f"{summary['rows']} rows"
    )


def blocks(result: "MeasureResult") -> Iterator[Block]:
    """Yield counts, and the range of every class."""
    yield line(result)
    columns = (
        ("class", 0),
        ("rows", 1),
        ("us", lambda x: _span(result.rows, x[0], "time_us")),
        ("W", lambda x: _span(result.rows, x[0], "avg_power_w")),
    )
    yield Table(columns, result.summary["classes"].items())
    yield f"next: diffenergy fit {result.summary['file']} --out mine.json"


def _span(rows: Sequence[Mapping[str, str]], kind: str, column: str) -> str | None:
    """Smallest and largest value of a class, as text."""
    values = [row[column] for row in rows if row["class"] == kind and row.get(column)]
    if not values:
        return None
    values = sorted(map(float, values))
    return f"{values[0]:.4g} to {values[-1]:.4g}"
