"""Picture of a planned fleet: GPUs by model in every pool, power against budgets."""

from typing import TYPE_CHECKING, Final

import numpy as np
from jaxtyping import Float

from .._format import Entry
from .._views.fleet import drawn, line
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...fleet import FleetResult

_SITES: Final = (*style.PALETTE[6:], *style.PALETTE[5:1:-1])
"""Colours of sites, other than those of the first models."""
_HEIGHT: Final = 1.35
"""Inches of a panel."""


@style.house()
def fleet_figure(result: "FleetResult") -> "Figure":
    """A panel for each pool, GPUs of the models one on the other up to its count, and
    one of power at the meter of every site with its budget dashed."""
    summary, problem = result.summary, result.solved.problem
    used, pools, shown = drawn(result)
    figure = style.canvas(1.3 + _HEIGHT * (len(pools) + 1.3))
    ratios = [1.0] * len(pools) + [1.4]
    axes = figure.subplots(
        len(pools) + 1, 1, sharex=True, squeeze=False, height_ratios=ratios
    )[:, 0]
    names = [problem.models[x] for x in shown]
    for panel, pool in zip(axes, pools, strict=False):
        _pool(panel, used[:, :, pool], shown, names, float(problem.count[pool]))
        panel.set_title(f"GPUs of {problem.pools[pool]}")
    _power(axes[-1], summary, problem.sites)
    axes[-1].set_xlabel(f"slot of {summary['slot_s']:g} s")
    style.few_ticks(axes[-1].xaxis, 9, whole=True)
    axes[-1].set_xlim(0, summary["slots"])
    handles, labels = axes[0].get_legend_handles_labels()
    by_name = dict(zip(labels, handles, strict=True))
    known = [(by_name[x], x) for x in (*names, "others") if x in by_name]
    if known:
        figure.legend(
            *zip(*known, strict=True), loc="outside lower center", ncols=4,
            frameon=False,
        )  # fmt: skip
    style.headline(figure, line(result))
    return figure


def _pool(
    axes: "Axes",
    used: Float[np.ndarray, "slot model"],
    shown: np.ndarray,
    names: list[str],
    count: float,
) -> None:
    """Models one on the other; the pool's GPUs as a line."""
    edges = np.arange(len(used) + 1)
    floor = np.zeros(len(used))
    others = np.setdiff1d(np.arange(used.shape[1]), shown)
    parts = [(x, used[:, model]) for x, model in enumerate(shown)]
    if used[:, others].any():
        parts.append((len(style.PALETTE) - 1, used[:, others].sum(axis=1)))
    for (colour, values), label in zip(parts, [*names, "others"], strict=False):
        top = floor + values
        axes.fill_between(
            edges, np.r_[floor, floor[-1]], np.r_[top, top[-1]], step="post",
            color=style.PALETTE[colour], label=label, linewidth=0,
        )  # fmt: skip
        floor = top
    axes.axhline(count, color=style.BLACK, linewidth=0.9, linestyle="--")
    axes.set_ylim(0, 1.08 * max(count, 1.0))
    style.few_ticks(axes.yaxis, 4, whole=True)


def _power(axes: "Axes", summary: Entry, sites: tuple[str, ...]) -> None:
    """W at the meter of every site, and its budget dashed."""
    edges = np.arange(summary["slots"] + 1)
    most = 0.0
    for number, name in enumerate(sites):
        mine = [x for x in summary["site_power"] if x["site"] == name]
        power = np.array([x["power_w"] for x in mine])
        budget = np.array([x["budget_w"] or np.nan for x in mine])
        colour = _SITES[number % len(_SITES)]
        axes.stairs(
            power, edges, color=colour, label=name, linewidth=1.8, baseline=None
        )
        axes.stairs(
            budget, edges, color=colour, linestyle="--", linewidth=1.2, baseline=None
        )
        most = max(most, power.max(), np.nanmax(np.r_[budget, 0.0]))
    axes.set_ylim(0, 1.1 * most)
    axes.set_title("power at the meter, budget dashed")
    style.si_ticks(axes.yaxis, "W")
    style.legend_above(axes)
