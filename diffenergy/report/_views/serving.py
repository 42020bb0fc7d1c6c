"""How a server under a load reads and looks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._charts import style
from .._format import Entry, digits, percent, plain, si
from .._tables.columns import Columns, table
from .._tables.lines import BOARD_ONLY, assumed_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...serving import Curves, ServingResult

_LATENCIES = (
    ("time to first token", "ttft_s"),
    ("time per output token", "tpot_s"),
    ("gap between two tokens", "itl_s"),
    ("end to end", "e2e_latency_s"),
)
_QUANTILES = ("mean", "p50", "p90", "p95", "p99")


def line(result: "ServingResult") -> str:
    """What is served, and what a token costs."""
    s = result.summary
    return (
        f"{title(s)}: {si(s['tpot_s']['mean'], 's')} and "
        f"{si(s['energy_j_per_output_token'], 'J')} per output token"
    )


def title(s: Entry) -> str:
    """The server and how requests come."""
    gpus = f"{s['num_gpus']} x {s['gpu']}" if s["num_gpus"] > 1 else s["gpu"]
    split = f" (tp {s['tp']})" if s["num_gpus"] > 1 else ""
    return f"{s['model']} on {gpus}{split}, {s['engine']}, {_way(s)}"


def _way(s: Entry) -> str:
    match s["mode"]:
        case "open":
            return f"{plain(s['request_rate_per_s'])} requests/s at random"
        case "closed":
            return f"{plain(s['concurrency'])} clients"
        case "trace":
            return "a trace of requests"
    return "saturated"


def parts(result: "ServingResult") -> Iterator[Any]:
    """Assumptions, latencies, rates, the step, power."""
    s = result.summary
    yield assumed_line(s)
    yield title(s)
    if best := s.get("optimized"):
        clock, most = plain(best["sm_clock_mhz"]), plain(best["max_batch"])
        yield (
            f"best for {best['objective']}: SM clock {clock} MHz, at most {most} "
            "requests at once"
        )
    yield table(*latencies(s))
    yield table(("", ""), rates(s))
    yield _step(s)
    yield _energy(s)
    if s["sensitivities"]:
        yield _sensitivities(s["sensitivities"])
    yield f"grade: {s['grade']}"
    yield from (f"note: {text}" for text in result.warnings)
    yield BOARD_ONLY


def latencies(s: Entry, heading: str = "") -> tuple[Columns, list[Entry]]:
    """Means and quantiles of the latencies that there are: columns and rows."""
    columns = ((heading, "name"), *((q, q, "s") for q in _QUANTILES))
    known = [(name, s[key]) for name, key in _LATENCIES if s[key] is not None]
    return columns, [{**values, "name": name} for name, values in known]


def rates(s: Entry) -> list[tuple[str, str]]:
    """What comes, runs and waits, in words."""
    unseen = s["waiting_requests"] is not None and s["waiting_requests"] < 1e-3
    rows = [
        ("requests/s", digits(s["request_throughput_per_s"])),
        ("output tokens/s", digits(s["output_token_throughput_per_s"])),
        ("most requests/s", digits(s["saturation_request_rate_per_s"])),
        ("running", digits(s["running_requests"])),
        ("waiting", "0" if unseen else digits(s["waiting_requests"])),
        ("limited by", s["limited_by"]),
        ("KV cache used", percent(s["kv_cache_usage"])),
    ]
    if s["skipped_requests"]:
        rows.append(("left out, too long", f"{s['skipped_requests']:,}"))
    if s["preemptions"]:
        rows.append(("preemptions", f"{s['preemptions']}"))
    if s["goodput_per_s"] is not None:
        rows.append(("within the limits, requests/s", digits(s["goodput_per_s"])))
    return rows


def _step(s: Entry) -> Any:
    mean, parts = s["step_s"]["mean"], s["step_s"]["parts"].items()
    rows = [(name, si(x, "s"), percent(x / mean)) for name, x in parts]
    return table(("step", "time", "share"), [*rows, ("mean step", si(mean, "s"), "")])


def _energy(s: Entry) -> Any:
    low, high = s["energy_j_per_output_token_p5_p95"]
    made = si(s["energy_j_per_output_token"], "J")
    rows = [
        ("power", si(s["avg_power_w"], "W")),
        ("energy per output token", f"{made} ({si(low, 'J')} to {si(high, 'J')})"),
        ("energy per token in or out", si(s["energy_j_per_token"], "J")),
        ("energy per request", si(s["energy_j_per_request"], "J")),
    ]
    clock, requested = s["sm_clock_mhz"], s["sm_clock_set_mhz"]
    if clock < 0.999 * requested:  # the power limit binds
        rows.insert(1, ("SM clock, mean", f"{clock:.0f} of {requested:.0f} MHz"))
    return table(("", ""), rows)


def _sensitivities(found: Entry) -> Any:
    columns = ((m, lambda x, m=m: found[m][x], "{:.4g}") for m in found)
    fields = next(iter(found.values()))
    return table((("per SI unit", "d / d {}".format), *columns), fields)


@style.house()
def figure(result: "ServingResult") -> "Figure":
    """Time to the first token and time per token against the rate up to saturation,
    means and 95th percentiles; J a token of the saturated server against its batch, a
    line for each clock. The dot is the answer."""
    from ...serving import server_curves

    if result.costs is None:
        raise ValueError("there is no table of steps to draw.")
    found = server_curves(result.deployment, result.costs)
    figure = style.canvas(7.2)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.0, 1.1))
    first, token = (figure.add_subplot(grid[0, i]) for i in range(2))
    energy = figure.add_subplot(grid[1, :])
    summary = result.summary
    _draw_latency(first, found, found.ttft, "time to first token")
    _draw_latency(token, found, found.tpot, "time per output token")
    rate = summary["request_throughput_per_s"]
    if summary["mode"] == "open":
        for axes, key in ((first, "ttft_s"), (token, "tpot_s")):
            axes.plot([rate], [summary[key]["mean"]], "o", color=style.BLACK)
    first.legend(loc="upper left", fontsize=style.SMALL)
    _draw_energy(energy, found)
    style.headline(figure, title(summary))
    return figure


def _draw_latency(axes: "Axes", found: "Curves", both: np.ndarray, words: str):
    mean, high = both.T
    axes.plot(found.rates, mean, color=style.BLUE, label="mean")
    axes.plot(found.rates, high, "--", color=style.VERMILION, label="95th percentile")
    axes.axvline(found.most, color=style.GREY, linewidth=1.0, linestyle=":")
    axes.set_yscale("log")
    axes.set_xlim(0, 1.1 * found.most)
    axes.annotate(
        "saturated", (found.most, 0.5), xycoords=("data", "axes fraction"),
        xytext=(3, 0), textcoords="offset points", rotation=90, va="center",
        ha="left", fontsize=style.SMALL, color=style.GREY,
    )  # fmt: skip
    style.log_ticks(axes.yaxis, 4)
    style.name_axis(axes.yaxis, words, "s")
    axes.set_xlabel("requests/s")


def _draw_energy(axes: "Axes", found: "Curves"):
    colours = style.colours(len(found.clocks))
    for i, clock in enumerate(found.clocks):
        marker = style.MARKERS[i % len(style.MARKERS)]
        look = {"color": colours[i], "marker": marker, "markersize": 4}
        label = f"{clock / 1e6:.0f} MHz"
        axes.plot(found.batches, found.energy[i], **look, label=label)
    axes.set(xscale="log", yscale="log")
    style.log_ticks(axes.xaxis, 8)
    axes.xaxis.set_major_formatter("{x:g}")
    style.log_ticks(axes.yaxis)
    style.name_axis(axes.yaxis, "energy per output token", "J")
    axes.set_xlabel("requests that run (saturated)")
    axes.legend(title="SM clock", loc="best", fontsize=style.SMALL, ncols=2)
