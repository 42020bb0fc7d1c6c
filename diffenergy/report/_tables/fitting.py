"""Tables of `fit`: errors of fitted and held-out rows, what was learnt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...fitting._identifiability import Identifiability
from ...measurements._metrics import QUANTITIES
from .._format import UNKNOWN
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_LEGEND: Final = (
    "mean absolute errors in percent of the measured value, over all rows of a group,",
    "drawn for the fit or not; flagged rows are left out",
)
_OPEN: Final = "what would measure each open constant is in `--json`"
_LABELS: Final = ("file", "gpu", "op", "part")


def fit_parts(
    summary: Mapping[str, Any], learnt: Identifiability
) -> list["RenderableType"]:
    """What `fit` prints."""
    held = summary["held_out"]
    counts = [
        f"{summary['rows']} rows",
        f"{summary['fitted_rows']} fitted",
        *([f"{held['rows']} held out"] if held else []),
        f"{len(summary['flagged'])} flagged",
    ]
    labels = [_labels(group) for group in summary["groups"]]
    varied = [name for name in _LABELS if len({x[name] for x in labels}) > 1]
    shared = [labels[0][name] for name in _LABELS[:-1] if labels and name not in varied]
    return [
        ", ".join(counts),
        ", ".join(shared),
        group_table(summary["groups"], varied),
        *_LEGEND,
        *_learnt(learnt),
    ]


def group_table(groups: Sequence[Mapping[str, Any]], by: Sequence[str]) -> "Table":
    """Errors of each group, labelled by the names in `by`."""
    rows = [
        [
            *(_labels(group)[name] for name in by),
            str(group["rows"]),
            *(_percent(group, word) for word in QUANTITIES),
        ]
        for group in groups
    ]
    columns = [*by, "rows", *QUANTITIES]
    return table(columns, rows, left=len(by), fold=["file"])


def _labels(group: Mapping[str, Any]) -> dict[str, str]:
    part = "held out" if group["held_out"] else "fitted"
    file = Path(group["file"]).name.removesuffix(".gz").removesuffix(".csv")
    return {"file": file, "gpu": group["gpu"], "op": group["op"], "part": part}


def _percent(group: Mapping[str, Any], word: str) -> str:
    error = group[f"{word}_mape_pct"]
    return UNKNOWN if error is None else f"{error:.1f}"


def _learnt(learnt: Identifiability) -> list[str]:
    """Counts of constants, those that left their prior and open combinations."""
    counts = Counter(constant.status for constant in learnt.constants)
    left = sum(constant.left_prior for constant in learnt.constants)
    statuses = [
        f"{counts[status]} {status}" for status in ("measured", "partly", "open")
    ]
    lines = [f"{len(learnt.constants)} constants fitted, {', '.join(statuses)}"]
    lines += learnt.lines()[1 : 1 + left + len(learnt.directions)]
    return [*lines, _OPEN] if counts["open"] else lines
