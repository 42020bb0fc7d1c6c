"""How errors against measured runs read and look."""

from typing import TYPE_CHECKING, Any

from .._format import UNKNOWN
from .._tables.accuracy import accuracy_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...fitting import EvaluateResult


def line(result: "EvaluateResult") -> str:
    """Rows and mean absolute errors."""
    return errors_line(result.summary)


def errors_line(summary: dict[str, Any]) -> str:
    """Rows and mean absolute errors of them."""
    found = {w: summary[f"{w}_mape_pct"] for w in ("time", "power", "energy")}
    said = (f"{w} {UNKNOWN if x is None else f'{x:.1f} %'}" for w, x in found.items())
    return f"{summary['rows']} rows, mean errors {', '.join(said)}"


def parts(result: "EvaluateResult") -> list[Any]:
    """Errors of all rows, then by group."""
    return accuracy_parts(result.summary, result.by)


def figure(result: "EvaluateResult") -> "Figure":
    """Predicted against measured, and the errors' distribution."""
    from .._charts.plot_accuracy import accuracy_figure

    return accuracy_figure(result.table, result.predictions)
