"""How measurements read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._tables.measuring import measured_line, measured_parts

if TYPE_CHECKING:
    from ...measure import MeasureResult


def line(result: "MeasureResult") -> str:
    """Points measured, left out and to come."""
    return measured_line(result.summary)


def parts(result: "MeasureResult") -> Iterator[Any]:
    """Counts, and what every class spans."""
    return measured_parts(result.summary, result.rows)
