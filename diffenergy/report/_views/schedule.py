"""How a frequency schedule reads and looks."""

from typing import TYPE_CHECKING, Any

from .._format import si
from .._tables.estimates import BOARD_ONLY, assumed_line, grade_line, title_line
from .._tables.schedules import change, schedule_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...dvfs import PlanResult


def line(result: "PlanResult") -> str:
    """What, and what it costs against default clocks."""
    summary = result.summary
    return (
        f"{_title(summary)}: {si(summary['time_s'], 's')} "
        f"({change(summary['time_change_pct'])}), {si(summary['energy_j'], 'J')} "
        f"({change(summary['energy_change_pct'])}; bound "
        f"{change(summary['bound_energy_change_pct'])})"
    )


def parts(result: "PlanResult") -> list[Any]:
    """Assumptions, totals beside the baselines, bound, clocks of the kernels."""
    summary = result.summary
    found = schedule_parts(summary, result.rows())
    if "table" in summary:
        return [_title(summary), *found]
    head = [assumed_line(summary), title_line(summary)]
    return [*head, *found, grade_line(summary), BOARD_ONLY]


def figure(result: "PlanResult") -> "Figure":
    """The schedule in time and energy, and its clocks over time."""
    from .._charts.pictures import schedule_figure

    summary = result.summary
    title = _title(summary)
    if "table" not in summary:
        title += f" ({summary['grade']})"
    return schedule_figure(result.problem, result.plan, summary, title)


def _title(summary: dict[str, Any]) -> str:
    if "table" in summary:
        return f"measured: {summary['table']}"
    return title_line(summary)
