"""Picture of a search for a plan: what every plan costs, and which are best."""

from typing import TYPE_CHECKING, Final

import numpy as np

from .._views.best_plan import title
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...parallel import PlanResult

_SLOWER: Final = 4.0
"""Times the best step beyond which plans are left out of the picture."""


@style.house()
def best_plan_figure(result: "PlanResult") -> "Figure":
    """Time and energy of a step of every plan that fits, coloured by memory; a line
    along the frontier of the two, a star at the answer."""
    s, about = result.summary, result.found.about
    figure = style.canvas(4.6)
    axes = figure.add_subplot()
    shown = about.time <= _SLOWER * about.time.min()
    dots = axes.scatter(
        about.time[shown], about.energy[shown], c=about.memory[shown] / 1e9,
        s=14, cmap="viridis", linewidths=0, alpha=0.8,
    )  # fmt: skip
    bar = figure.colorbar(dots, ax=axes, pad=0.02)
    bar.set_label("memory of a GPU (GB)")
    edge = sorted((x["step_time_s"], x["energy_j"]) for x in s["frontier"])
    least = np.minimum.accumulate([y for _, y in edge])
    kept = [(x, y) for (x, y), most in zip(edge, least, strict=True) if y <= most]
    axes.plot(*zip(*kept, strict=True), color=style.GREY, linewidth=1.0, zorder=0)
    best = s["best"]
    axes.plot(
        [best["time_s"]], [best["energy_j"]], "*", color=style.VERMILION,
        markersize=14, label=s["plan"],
    )  # fmt: skip
    axes.legend(loc="lower right", fontsize=style.SMALL)
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.log_ticks(axes.xaxis, 5)
    style.log_ticks(axes.yaxis, 5)
    style.si_ticks(axes.xaxis, "s")
    style.si_ticks(axes.yaxis, "J")
    axes.set_xlabel("time of a step")
    axes.set_ylabel("energy of a step, all GPUs")
    style.headline(figure, title(s))
    return figure
