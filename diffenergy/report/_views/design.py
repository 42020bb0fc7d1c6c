"""How a search for designs reads and looks."""

from typing import TYPE_CHECKING, Any, Final

from ...codesign._problem.problem import LIMITS
from ...units import GiB
from .._tables.designs import design_parts, design_words, in_unit
from .._tables.estimates import BOARD_ONLY, assumed_line, grade_line, title_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...codesign import SearchResult

_ROUNDING: Final = 1e-9


def line(result: "SearchResult") -> str:
    """What was searched for, by how much it fell, and the fields."""
    summary, best = result.summary, result.best
    goal = summary["objective"].split(",")[0]
    start, end = (in_unit(goal, summary[x]["objective"]) for x in ("start", "best"))
    words = (f"{goal} {start} -> {end}", design_words(best.fields), summary["grade"])
    return f"{summary['model']} on what grows out of {result.card.name}: " + ", ".join(
        words
    )


def parts(result: "SearchResult") -> list[Any]:
    """Assumptions, totals, limits, fields, tiles, what holds the design back."""
    summary = result.summary
    head = []
    for member in summary.get("workloads", [summary]):
        times = f"{member['weight']:g} x " if "weight" in member else ""
        head += [assumed_line(member), times + title_line(member)]
    return [*head, *design_parts(summary), grade_line(summary), BOARD_ONLY]


def figure(result: "SearchResult") -> "Figure":
    """The front, or base against best and the path of the search."""
    from .._charts.plot_design import design_figure

    return design_figure(result.summary, result.path)


def refusal(result: "SearchResult") -> str:
    """Which limits the best design passes, worst first, and what it reaches."""
    problem, metrics = result.problem, result.best.metrics
    passed = {
        metric: metrics[metric] / limit
        for metric, limit in problem.limits.items()
        if metrics[metric] > limit * (1 + _ROUNDING)
    }
    worst = sorted(passed, key=lambda metric: -passed[metric])
    said = [_passed(result, metric) for metric in worst]
    together = " together" if len(said) > 1 else ""
    line = f"{' and '.join(said)} cannot be met{together}"
    if not said:
        line = "`power_cap` cannot be kept at the lowest clock"
    return f"{line}; its fields: {design_words(result.best.fields)}."


def _passed(result: "SearchResult", metric: str) -> str:
    problem, reached = result.problem, result.best.metrics[metric]
    if metric == "memory":
        need = max(float(member.memory) for member in problem.task.members)
        return (
            f"`{LIMITS[metric]}` (needed {need / GiB:.1f} GiB, the closest design has "
            f"{need / reached / GiB:.1f} GiB; it follows `dram_bandwidth` unless it is "
            "varied)"
        )
    return (
        f"`limits['{metric}']` (allowed {in_unit(metric, problem.limits[metric])}, the "
        f"closest design has {in_unit(metric, reached)})"
    )
