"""How a fit reads."""

from typing import TYPE_CHECKING, Any

from .._tables.fitting import fit_parts
from .evaluate import errors_line

if TYPE_CHECKING:
    from ...fitting import FitResult


def line(result: "FitResult") -> str:
    """Rows, errors, constants."""
    summary = result.summary
    if result.learnt is None:
        return f"interrupted at evaluation {summary['steps']}"
    return f"{errors_line(summary)}, {summary['parameters']} constants"


def parts(result: "FitResult") -> list[Any]:
    """Counts, errors of fitted and held-out rows, what was learnt."""
    if result.learnt is None:
        return [line(result)]
    return fit_parts(result.summary, result.learnt)
