"""What `fit` says: errors of fitted and held-out rows, what was learnt, in JSON and in
tables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from ...fitting._calibrate import Calibration
from ...fitting._identifiability import Identifiability
from ...fitting._outliers import Flag
from ...measurements import MeasurementTable, Predictions
from ...measurements._metrics import QUANTITIES, errors
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
_GROUP: Final = ("file", "gpu", "op")
_LABELS: Final = (*_GROUP, "part")


class Rows(NamedTuple):
    """A table, predictions of it, which rows were held out, and those flagged."""

    table: MeasurementTable
    predictions: Predictions
    held: np.ndarray
    flags: Sequence[Flag]

    @property
    def live(self) -> np.ndarray:
        """Rows that count: predicted and not flagged."""
        live = self.predictions.skipped == ""
        live[[flag.index for flag in self.flags]] = False
        return live


def fit_summary(
    parts: Sequence[Rows], fitted: Calibration, learnt: Identifiability
) -> dict[str, Any]:
    """What `fit --json` prints.

    Errors are those of the corrections found, over all rows that were not flagged:
    `held_out` rows apart, and others whether or not they were drawn for the fit.
    `fitted_rows` counts those that were.
    """
    flags = [flag for part in parts for flag in part.flags]
    held = any(part.held.any() for part in parts)
    return {
        "rows": sum(part.table.num_rows for part in parts),
        "fitted_rows": sum(fitted.rows.values()),
        "flagged": [_flag(flag) for flag in flags],
        **_mapes([(part, part.live & ~part.held) for part in parts]),
        "held_out": _errors([(p, p.live & p.held) for p in parts]) if held else None,
        "groups": [group for part in parts for group in _groups(part)],
        "parameters": len(fitted.fit.parameters.free),
        "steps": fitted.fit.evaluations,
        "cost": fitted.fit.cost,
        **learnt.to_json(),
    }


def _flag(flag: Flag) -> dict[str, Any]:
    names = ("file", "row", "column", "value", "reason")
    return {name: getattr(flag, name) for name in names}


def _errors(chosen: Sequence[tuple[Rows, np.ndarray]]) -> dict[str, Any]:
    """Number of the chosen rows of each table and their errors."""
    return {"rows": sum(int(rows.sum()) for _, rows in chosen), **_mapes(chosen)}


def _mapes(chosen: Sequence[tuple[Rows, np.ndarray]]) -> dict[str, float | None]:
    return {
        f"{word}_mape_pct": errors(
            np.concatenate([getattr(part.table, name)[rows] for part, rows in chosen]),
            np.concatenate(
                [getattr(part.predictions, name)[rows] for part, rows in chosen]
            ),
        ).mape
        for word, name in QUANTITIES.items()
    }


def _groups(part: Rows) -> Iterator[dict[str, Any]]:
    """Errors by file, GPU and op, fitted rows before those held out."""
    keys = pd.DataFrame({name: getattr(part.table, name) for name in _GROUP})
    keys["op"] = keys["op"].where(keys["op"] != "", "workload")
    live, held = part.live, part.held
    for _, index in keys.groupby([*_GROUP], sort=False).indices.items():
        same = np.isin(np.arange(len(live)), index)
        for held_out in (False, True):
            rows = same & live & (held == held_out)
            if rows.any():
                names = keys.iloc[index[0]].to_dict()
                yield {**names, "held_out": held_out, **_errors([(part, rows)])}


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
