"""Errors of predictions against the kernels of a trace, which a profiler times without
launch latency and host."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from .. import imports
from ..estimator import prepare
from ..files import csv_text
from ..imports import ImportResult
from ..results import Result
from ._metrics import Errors, error_figures

LONG_US: Final = 20.0
"""Traced time from which kernels are scored apart: shorter ones are mostly latency."""
_COLUMNS: Final = ("op", "how", "dtype", "fn", "stream", "kernel", "class")
"""What launches may be grouped by, beside the sizes of their ops."""


@dataclasses.dataclass(frozen=True, repr=False)
class TraceScores(Result):
    """Errors of the model against the kernels of a trace.

    `summary`: the JSON of `diffenergy evaluate TRACE --json`; `kernels`: every row of
    the listing with `traced_us`, `predicted_us` and their ratio, those first whose
    error times time is greatest.
    """

    view: ClassVar[str] = "accuracy.trace_scores"
    summary: dict[str, Any]
    kernels: list[dict[str, Any]]
    by: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes on the trace."""
        return self.summary["notes"]

    def to_csv(self) -> str:
        """Every row as CSV."""
        return csv_text(self.kernels)


def evaluate_trace(
    trace: str | ImportResult,
    gpu: str | None = None,
    *,
    corrections: str | None = None,
    by: str | Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> TraceScores:
    """Errors of predictions against the kernels of a trace, launch by launch.

    Compared is the kernel alone, from its first instruction to its last; kernels
    without a shape are left out.

    Args:
        trace: a trace or report that `imports.read` takes, or what it gives.
        gpu: that the trace was recorded on [the trace's].
        corrections: fitted constants: a file, or "none" [the shipped ones].
        by: a column or several of the rows, such as "op"; equal cells are a group.
        progress: called with the bytes read and their number.

    Raises:
        ValueError: for a file that cannot be read or has no times, or of an unknown
            GPU.

    Example:

        >>> scores = evaluate_trace("docs/examples/trace.json", "h100-sxm")
        >>> scores.summary["rows"] > 0
        True
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    read = trace
    if isinstance(read, str):
        read = imports.read(read, gpu=gpu, progress=progress)
    summary = read.summary
    if summary["sum_us"] is None:
        raise ValueError(
            f"{summary['source']} has no times to compare with; give it to `estimate`."
        )
    named = gpu or read.gpu
    if named is None:
        raise ValueError(f"{read.missing_gpu()}.")
    task = prepare(read, named, corrections=corrections, detail=True, every=True)
    kernels = [_with_prediction(kernel) for kernel in task.run().kernels or []]
    _check_columns(columns, kernels)
    groups = _groups(kernels, columns)
    kernels.sort(key=lambda x: (-_missed_us(x), -x["traced_total_us"]))
    whole = {
        "source": summary["source"],
        "gpu": task.card.name,
        "grade": task.trust.grade,
        "class_share": summary["class_share"],
        "shape_share": summary["shape_share"],
        "wait_us": summary["wait_us"],
        **_figures(kernels),
        "groups": groups,
        "notes": list(summary["notes"]),
    }
    return TraceScores(whole, kernels, columns)


def _with_prediction(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its prediction, None for a row without a shape."""
    seconds: float | None = kernel["kernel_s"]
    predicted = None
    if kernel["op"] != "traced" and seconds is not None:
        predicted = 1e6 * seconds
    left_out = ("time_s", "kernel_s", "energy_j", "utilization", "phase")
    row = {k: v for k, v in kernel.items() if k not in left_out}
    ratio = None
    if predicted is not None and kernel["traced_us"] > 0:
        ratio = predicted / kernel["traced_us"]
    return row | {"predicted_us": predicted, "ratio": ratio}


def _missed_us(kernel: Mapping[str, Any]) -> float:
    """Error times traced time of all launches of a row (us); 0 without a prediction."""
    ratio = kernel["ratio"]
    return 0.0 if ratio is None else abs(ratio - 1) * kernel["traced_total_us"]


def _figures(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Errors over launches, of all and of long ones, and of the sums."""
    live = [x for x in kernels if x["predicted_us"] is not None]
    every = _errors(live)
    long = _errors([x for x in live if x["traced_us"] > LONG_US])
    predicted = sum(x["predicted_us"] * x["count"] for x in live)
    traced = sum(x["traced_total_us"] for x in live)
    rows = sum(x["count"] for x in kernels)
    return {
        "rows": rows,
        "skipped": rows - sum(x["count"] for x in live),
        **every.figures("time"),
        "long_rows": long.n,
        "long_median_pct": long.median,
        "power_mape_pct": None,
        "energy_mape_pct": None,
        "predicted_us": predicted,
        "traced_us": traced,
        "whole_ratio": predicted / traced if traced else None,
    }


def _errors(kernels: Sequence[Mapping[str, Any]]) -> Errors:
    """Errors with every launch counted."""
    count = np.array([int(x["count"]) for x in kernels], int)
    traced = np.array([x["traced_us"] or np.nan for x in kernels], float)
    predicted = np.array([x["predicted_us"] for x in kernels], float)
    return error_figures(np.repeat(traced, count), np.repeat(predicted, count))


def _groups(
    kernels: Sequence[Mapping[str, Any]], by: Sequence[str]
) -> list[dict[str, Any]]:
    """Figures of rows with equal cells, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for kernel in kernels if by else ():
        groups.setdefault(tuple(kernel.get(x) for x in by), []).append(kernel)
    return [
        dict(zip(by, key, strict=True)) | _figures(rows) for key, rows in groups.items()
    ]


def _check_columns(columns: Sequence[str], kernels: Sequence[Mapping[str, Any]]):
    names = dict.fromkeys((*_COLUMNS, *(key for row in kernels for key in row)))
    for column in columns:
        if column not in names:
            raise ValueError(
                f"`by` is '{column}'; allowed are columns of the rows, such as "
                f"{', '.join(_COLUMNS)}."
            )
