"""View of errors against measured runs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..._blocks import Block, Table
from ..._format import QUANTITIES, UNKNOWN, Entries, Entry

if TYPE_CHECKING:
    from ....charts import Chart
    from ....fitting import EvaluateResult

_LEGEND: Final = (
    "in percent of the measured value; (bias) is above 0 if predicted too high"
)


def line(result: "EvaluateResult") -> str:
    """Return a line with the number of rows and mean absolute errors."""
    return errors_line(result.summary)


def errors_line(summary: Entry) -> str:
    """Return a line with the number of rows and mean absolute errors of a summary."""
    errors = {word: summary[f"{word}_mape_pct"] for word in QUANTITIES}
    words = (f"{w} {UNKNOWN if x is None else f'{x:.1f} %'}" for w, x in errors.items())
    return f"{summary['rows']} rows, mean errors {', '.join(words)}"


def blocks(result: "EvaluateResult") -> list[Block]:
    """Return errors of all rows, then by group."""
    summary = result.summary
    lines = [f"{summary['rows']} rows, {summary['skipped']} skipped", _errors(summary)]
    if summary["groups"]:
        lines.append(_by_group(summary["groups"], result.by))
    return [*lines, _LEGEND]


def charts(result: "EvaluateResult") -> "dict[str, Chart]":
    """Return charts of predicted against measured values, and of the errors'
    distribution."""
    from ..._charts.accuracy import accuracy_charts

    return accuracy_charts(result.table, result.predictions)


def _errors(summary: Entry) -> Table:
    """Table of error figures of time, power and energy."""

    def of(figure: str) -> Callable[[str], Any]:
        return lambda word: summary[f"{word}_{figure}"]

    columns = (
        ("", str),
        ("rows", of("rows")),
        ("MAPE", of("mape_pct"), "{:.1f}"),
        ("median", of("median_pct"), "{:.1f}"),
        ("bias", of("bias_pct"), "{:+.1f}"),
        ("P90", of("p90_pct"), "{:.1f}"),
    )
    return Table(columns, QUANTITIES)


def _by_group(groups: Entries, by: Sequence[str]) -> Table:
    """Table of mean absolute error and (in parentheses) bias of each group."""
    name = ", ".join(by)
    columns = [
        (name, lambda group: ", ".join(str(group[x]) or UNKNOWN for x in by)),
        ("rows", "rows"),
        *(
            (word, lambda group, word=word: _mape_and_bias(group, word))
            for word in QUANTITIES
            if any(group[f"{word}_rows"] for group in groups)
        ),
    ]
    return Table(columns, groups, fold=[name])


def _mape_and_bias(group: Entry, word: str) -> str | None:
    if group[f"{word}_mape_pct"] is None:
        return None
    return f"{group[f'{word}_mape_pct']:.1f} ({group[f'{word}_bias_pct']:+.1f})"
