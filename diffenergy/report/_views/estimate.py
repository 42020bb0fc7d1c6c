"""How an estimate by name reads and looks."""

from typing import TYPE_CHECKING, Any

from .._format import si
from .._tables.estimates import estimate_parts, title_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...estimator import EstimateResult


def line(result: "EstimateResult") -> str:
    """What, how long, how many joules."""
    summary = result.summary
    if "points" in summary:
        return f"{title_line(summary)}: {len(summary['points'])} points"
    low, high = summary["energy_j_p5_p95"]
    return (
        f"{title_line(summary)}: {si(summary['time_s'], 's')}, "
        f"{si(summary['energy_j'], 'J')} ({si(low, 'J')} to {si(high, 'J')}), "
        f"{si(summary['avg_power_w'], 'W')}, {summary['grade']}"
    )


def parts(result: "EstimateResult") -> list[Any]:
    """Assumptions, phases, tokens, energy by unit, kernels."""
    return estimate_parts(result.summary, result.kernels, result.detail)


def figure(result: "EstimateResult") -> "Figure":
    """Of one estimate its energy and kernels, of several points their curves."""
    from .._charts.plot_estimate import estimate_figure
    from .._charts.plot_sweep import sweep_figure

    if result.kernels is None:
        return sweep_figure(result.summary)
    return estimate_figure(result.summary, result.kernels)
