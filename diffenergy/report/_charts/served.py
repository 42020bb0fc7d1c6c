"""A served model: latencies against the rate, joules against the batch by clock."""

from typing import TYPE_CHECKING

from ...charts import Axis, Chart, Line, Mark, Panel, Points, Rule, colours
from .._format import Entry, digits

if TYPE_CHECKING:
    from ...serving import Curves


def served_charts(summary: Entry, found: "Curves") -> dict[str, Chart]:
    """Time to the first token, time of a token, joules of a token."""
    return {
        "ttft": _latency("ttft", "time to first token", summary, found, log=True),
        "tpot": _latency("tpot", "time per output token", summary, found, log=False),
        "energy": _energy(summary, found),
    }


def _latency(key: str, what: str, summary: Entry, found: "Curves", log: bool) -> Chart:
    """Mean and 95th percentile up to saturation, which is the dashed line."""
    columns = (found.ttft if key == "ttft" else found.tpot).T.tolist()
    rates, marks = found.rates.tolist(), list[Mark]()
    names = ("mean", "95th percentile")
    for i, (name, seconds) in enumerate(zip(names, columns, strict=True)):
        marks.append(Line(rates, seconds, name, i, dashed=i > 0))
    end = f"saturated: {digits(found.most, 3)}/s"
    marks.append(Rule(found.most, end, axis="x", colour="soft"))
    if summary["mode"] == "open":
        at = [summary["request_rate_per_s"]], [summary[f"{key}_s"]["mean"]]
        marks.append(Points(*at, "the answer", 0, size=6.5, outlined=True))
    across = Axis("request rate", "requests/s", zero=True, high=1.06 * found.most)
    return Chart(
        what.capitalize(),
        [Panel(across, Axis(what, "s", log, not log), marks, height=180.0)],
        "Poisson arrivals at each rate with the batch limit of the answer.",
        half=True,
    )


def _energy(summary: Entry, found: "Curves") -> Chart:
    """J a token of the saturated server against the requests that run, by SM clock."""
    marks, batches = list[Mark](), found.batches.tolist()
    looks = colours(len(found.clocks))
    rows = zip(found.clocks, found.energy.tolist(), looks, strict=True)
    for i, (clock, joules, colour) in enumerate(rows):
        name = f"{clock / 1e6:.0f} MHz"
        marks.append(Line(batches, joules, name, colour, shape=i % 7))
    across = Axis("requests that run", log=True)
    up = Axis("energy per output token", "J", log=True)
    return Chart(
        "Energy per output token by SM clock",
        [Panel(across, up, marks, height=280.0)],
        "Of the server with so many requests that always run, at SM clocks of the "
        f"board under the power limit of {summary['power_limit_w']:.0f} W.",
    )
