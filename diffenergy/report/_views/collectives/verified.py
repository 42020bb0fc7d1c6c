"""View of a verified schedule."""

from typing import TYPE_CHECKING

from ..._blocks import Block
from ..._format import si

if TYPE_CHECKING:
    from ....charts import Chart
    from ....collectives import VerifyResult


def line(result: "VerifyResult") -> str:
    """Return a line that confirms the schedule, with its number of sends."""
    summary = result.summary
    epochs = summary["epochs"]
    length = "" if epochs is None else f"; {epochs} epochs"
    return (
        f"right: {summary['collective']} on {summary['topology']} "
        f"({summary['format']}), {summary['send_count']} sends{length}"
    )


def blocks(result: "VerifyResult") -> list[Block]:
    """Return the confirmation and the finish (s)."""
    summary = result.summary
    return [
        line(result),
        f"finish {si(summary['finish_s'], 's')}; "
        f"{si(summary['earliest_finish_s'], 's')} if every send starts as early as "
        "its order allows",
    ]


def charts(result: "VerifyResult") -> "dict[str, Chart]":
    """Return charts of links over time."""
    from ..._charts.collective import collective_charts

    return collective_charts(result.schedule)
