"""Picture of a server: latencies against the rate, joules against batch and clock."""

from typing import TYPE_CHECKING

from .._views.serving import title
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...serving import ServingResult
    from ...serving._answers.curves import Curves


@style.house()
def serving_figure(result: "ServingResult") -> "Figure":
    """Time to the first token and time per token against the rate up to saturation,
    means and 95th percentiles; J a token of the saturated server against its batch, a
    line for each clock. The dot is the answer."""
    from ...serving._answers.curves import curves

    if result.costs is None:
        raise ValueError("there is no table of steps to draw.")
    found = curves(result.deployment, result.costs)
    figure = style.canvas(7.2)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.0, 1.1))
    first, token = (figure.add_subplot(grid[0, i]) for i in range(2))
    energy = figure.add_subplot(grid[1, :])
    summary = result.summary
    _latency(first, found, found.ttft, "time to first token")
    _latency(token, found, found.tpot, "time per output token")
    rate = summary["request_throughput_per_s"]
    if summary["mode"] == "open":
        for axes, key in ((first, "ttft_s"), (token, "tpot_s")):
            axes.plot([rate], [summary[key]["mean"]], "o", color=style.BLACK)
    first.legend(loc="upper left", fontsize=style.SMALL)
    _energy(energy, found)
    style.headline(figure, title(summary))
    return figure


def _latency(axes: "Axes", found: "Curves", both: object, words: str):
    mean, high = both[:, 0], both[:, 1]  # pyright: ignore[reportIndexIssue]
    axes.plot(found.rates, mean, color=style.BLUE, label="mean")
    axes.plot(
        found.rates,
        high,
        color=style.VERMILION,
        linestyle="--",
        label="95th percentile",
    )
    axes.axvline(found.most, color=style.GREY, linewidth=1.0, linestyle=":")
    axes.set_yscale("log")
    axes.set_xlim(0, 1.1 * found.most)
    axes.annotate(
        "saturated", (found.most, 0.5), xycoords=("data", "axes fraction"),
        xytext=(3, 0), textcoords="offset points", rotation=90, va="center",
        ha="left", fontsize=style.SMALL, color=style.GREY,
    )  # fmt: skip
    style.log_ticks(axes.yaxis, 4)
    style.si_ticks(axes.yaxis, "s")
    axes.set_ylabel(words)
    axes.set_xlabel("requests/s")


def _energy(axes: "Axes", found: "Curves"):
    colours = style.colours(len(found.clocks))
    for i, clock in enumerate(found.clocks):
        axes.plot(
            found.batches, found.energy[i], color=colours[i],
            marker=style.MARKERS[i % len(style.MARKERS)], markersize=4,
            label=f"{clock / 1e6:.0f} MHz",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.log_ticks(axes.xaxis, 8)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    style.si_ticks(axes.yaxis, "J")
    axes.set_xlabel("requests that run (saturated)")
    axes.set_ylabel("energy per output token")
    axes.legend(title="SM clock", loc="best", fontsize=style.SMALL, ncols=2)
