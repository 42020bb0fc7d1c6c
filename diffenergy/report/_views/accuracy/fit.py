"""View of a fit: errors of fitted and held-out rows, and identified constants."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..._blocks import Block, Table
from ..._format import QUANTITIES, Entry
from .evaluate import errors_line

if TYPE_CHECKING:
    from ....fitting import FitResult, Identifiability

_LEGEND: Final = (
    "mean absolute errors in percent of the measured value, over all rows of a group,",
    "drawn for the fit or not; flagged rows are left out",
)
_OPEN: Final = "what would measure each open constant is in `--json`"
_LABELS: Final = ("file", "gpu", "op", "part")


def line(result: "FitResult") -> str:
    """Return a line with rows, errors and number of constants."""
    summary = result.summary
    if result.learnt is None:
        return f"interrupted at evaluation {summary['steps']}"
    return f"{errors_line(summary)}, {summary['parameters']} constants"


def blocks(result: "FitResult") -> list[Block]:
    """Return counts, errors of fitted and held-out rows, and identified constants."""
    if result.learnt is None:
        return [line(result)]
    summary = result.summary
    held_out = summary["held_out"]
    counts = [
        f"{summary['rows']} rows",
        f"{summary['fitted_rows']} fitted",
        *([f"{held_out['rows']} held out"] if held_out else []),
        f"{len(summary['flagged'])} flagged",
    ]
    groups = [{**group, **_labels(group)} for group in summary["groups"]]
    varied = [name for name in _LABELS if len({x[name] for x in groups}) > 1]
    shared = [groups[0][name] for name in _LABELS[:-1] if groups and name not in varied]
    columns = [
        *((name, name) for name in (*varied, "rows")),
        *((word, f"{word}_mape_pct", "{:.1f}") for word in QUANTITIES),
    ]
    return [
        ", ".join(counts),
        ", ".join(shared),
        Table(columns, groups, left=len(varied), fold=["file"]),
        *_LEGEND,
        *_learnt(result.learnt),
    ]


def _labels(group: Entry) -> dict[str, str]:
    file = Path(group["file"]).name.removesuffix(".gz").removesuffix(".csv")
    return {"file": file, "part": "held out" if group["held_out"] else "fitted"}


def _learnt(learnt: "Identifiability") -> list[str]:
    """Lines on the constants by status, those that left their prior, and open
    combinations."""
    counts = Counter(constant.status for constant in learnt.constants)
    left = sum(constant.left_prior for constant in learnt.constants)
    statuses = [
        f"{counts[status]} {status}" for status in ("measured", "partly", "open")
    ]
    lines = [f"{len(learnt.constants)} constants fitted, {', '.join(statuses)}"]
    lines += learnt.lines()[1 : 1 + left + len(learnt.directions)]
    return [*lines, _OPEN] if counts["open"] else lines
