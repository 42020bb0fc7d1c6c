"""How tuned tiles read and look."""

from typing import TYPE_CHECKING, Any

from .._format import si
from .._tables.estimates import BOARD_ONLY, assumed_line, grade_line, title_line
from .._tables.tiles import tiles_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...codesign import TuneResult


def line(result: "TuneResult") -> str:
    """What was tuned, and what the whole costs by the library's choice and with it."""
    summary = result.summary
    costs = [
        f"{si(summary[f'default_{key}'], unit)} -> {si(summary[key], unit)}"
        for key, unit in (("time_s", "s"), ("energy_j", "J"))
    ]
    count = len(summary["gemms"])
    return (
        f"{title_line(summary)}: tiles of {count} matrix products for least "
        f"{summary['goal']}, {', '.join(costs)}, {summary['grade']}"
    )


def parts(result: "TuneResult") -> list[Any]:
    """Assumptions, the tiles, the whole workload."""
    summary = result.summary
    head = [assumed_line(summary), title_line(summary)]
    return [*head, *tiles_parts(summary), grade_line(summary), BOARD_ONLY]


def figure(result: "TuneResult") -> "Figure":
    """What the library's choice costs more, by product."""
    from .._charts.plot_tiles import tiles_figure

    return tiles_figure(result.summary)
