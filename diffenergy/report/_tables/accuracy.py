"""Tables of `evaluate`, from the summary that `--json` prints."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .._format import UNKNOWN
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_LEGEND: Final = (
    "in percent of the measured value; (bias) is above 0 if predicted too high"
)
_QUANTITIES: Final = ("time", "power", "energy")


def accuracy_parts(
    summary: Mapping[str, Any], by: Sequence[str] = ()
) -> list["RenderableType"]:
    """What `evaluate` prints: errors of all rows, then by group."""
    counted = f"{summary['rows']} rows, {summary['skipped']} skipped"
    parts: list[RenderableType] = [counted, error_table(summary)]
    if summary["groups"]:
        parts.append(group_table(summary["groups"], by))
    return [*parts, _LEGEND]


def error_table(summary: Mapping[str, Any]) -> "Table":
    """Error figures of time, power and energy."""
    return table(
        ["", "rows", "MAPE", "median", "bias", "P90"],
        [
            [
                word,
                str(summary[f"{word}_rows"]),
                _percent(summary[f"{word}_mape_pct"]),
                _percent(summary[f"{word}_median_pct"]),
                _signed(summary[f"{word}_bias_pct"]),
                _percent(summary[f"{word}_p90_pct"]),
            ]
            for word in _QUANTITIES
        ],
    )


def group_table(groups: Sequence[Mapping[str, Any]], by: Sequence[str]) -> "Table":
    """Mean absolute error and, in brackets, bias of each group."""
    words = [w for w in _QUANTITIES if any(group[f"{w}_rows"] for group in groups)]
    name = ", ".join(by)
    rows = [
        [
            ", ".join(str(group[column]) or "-" for column in by),
            str(group["rows"]),
            *(_mape_and_bias(group, word) for word in words),
        ]
        for group in groups
    ]
    return table([name, "rows", *words], rows, fold=[name])


def _mape_and_bias(group: Mapping[str, Any], word: str) -> str:
    if group[f"{word}_mape_pct"] is None:
        return UNKNOWN
    return f"{group[f'{word}_mape_pct']:.1f} ({group[f'{word}_bias_pct']:+.1f})"


def _percent(value: int | float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _signed(value: int | float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.1f}"
