"""`FitResult`: fitted constants, their errors, and their identifiability."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pandas as pd

from ..corrections import CorrectionsFile, write_corrections
from ..files import write_text_atomic
from ..measurements import QUANTITIES, MeasurementTable, Predictions, error_figures
from ..results import Result
from ._calibrate import Calibration
from ._flags import Flag
from ._identifiability import Identifiability

_GROUP: Final = ("file", "gpu", "op")


class Rows(NamedTuple):
    """A table, predictions of it, which rows were held out, and those flagged."""

    table: MeasurementTable
    predictions: Predictions
    held_out: np.ndarray
    flags: Sequence[Flag]

    @property
    def live(self) -> np.ndarray:
        """Rows that count: predicted and not flagged."""
        live = self.predictions.skipped == ""
        live[[flag.index for flag in self.flags]] = False
        return live


@dataclasses.dataclass(frozen=True, repr=False)
class FitResult(Result):
    """Fitted constants.

    `summary`: the JSON of `diffenergy fit --json`; `corrections`: the constants, with
    what they rest on; `learnt`: of each free constant its prior, posterior and what
    would measure it; `rows`: each table with the predictions of the fit, and which rows
    were held out or flagged; `notes`: what a person should know beside it.

    Of an interrupted fit `corrections` are the best so far, from which `fit(...,
    start=...)` goes on; `learnt` is None, `summary` has `interrupted` and `steps`.
    """

    view: ClassVar[str] = "accuracy.fit"
    summary: dict[str, Any]
    corrections: CorrectionsFile
    learnt: Identifiability | None = None
    rows: tuple[Rows, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it before it was done."""
        return self.learnt is None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the corrections, for `corrections=` of every other call. Raises
        `ValueError` if the file cannot be written."""
        write_text_atomic(path, write_corrections(self.corrections))


def fit_summary(
    parts: Sequence[Rows], fitted: Calibration, learnt: Identifiability
) -> dict[str, Any]:
    """What `fit --json` prints.

    Errors are those of the corrections found, over all rows that were not flagged:
    `held_out` rows apart, and others whether or not they were drawn for the fit.
    `fitted_rows` counts those that were.
    """
    flags = [flag for part in parts for flag in part.flags]
    held_out = any(part.held_out.any() for part in parts)
    return {
        "rows": sum(part.table.num_rows for part in parts),
        "fitted_rows": fitted.count,
        "flagged": [_flag(flag) for flag in flags],
        **_mapes([(part, part.live & ~part.held_out) for part in parts]),
        "held_out": (
            _errors([(part, part.live & part.held_out) for part in parts])
            if held_out
            else None
        ),
        "groups": [group for part in parts for group in _groups(part)],
        "parameters": len(fitted.fit.parameters.free),
        "steps": fitted.fit.evaluations,
        "cost": fitted.fit.cost,
        **learnt.to_json(),
    }


def _flag(flag: Flag) -> dict[str, Any]:
    names = ("file", "row", "line", "column", "value", "reason")
    return {name: getattr(flag, name) for name in names}


def _errors(chosen: Sequence[tuple[Rows, np.ndarray]]) -> dict[str, Any]:
    """Number and errors of the chosen rows of each table."""
    return {"rows": sum(int(rows.sum()) for _, rows in chosen), **_mapes(chosen)}


def _mapes(chosen: Sequence[tuple[Rows, np.ndarray]]) -> dict[str, float | None]:
    return {
        f"{word}_mape_pct": error_figures(
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
    live, held_rows = part.live, part.held_out
    for _, index in keys.groupby([*_GROUP], sort=False).indices.items():
        same = np.isin(np.arange(len(live)), index)
        for held_out in (False, True):
            rows = same & live & (held_rows == held_out)
            if rows.any():
                names = keys.iloc[index[0]].to_dict()
                yield {**names, "held_out": held_out, **_errors([(part, rows)])}
