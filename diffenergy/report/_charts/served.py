"""Charts of a server: latencies against request rate, energy against batch by clock."""

from typing import TYPE_CHECKING

from ...charts import Axis, Chart, Line, Mark, Panel, Points, Rule, colours
from .._format import Entry, digits

if TYPE_CHECKING:
    from ...serving import Curves


def served_charts(summary: Entry, curves: "Curves") -> dict[str, Chart]:
    """Return charts of time to first token, time per output token and energy per output
    token."""
    charts = {
        "ttft": _latency("ttft", "time to first token", summary, curves, log=True)
    }
    if summary["tpot_s"] is not None:
        what = "time per output token"
        charts["tpot"] = _latency("tpot", what, summary, curves, log=False)
    return {**charts, "energy": _energy(summary, curves)}


def _latency(key: str, what: str, summary: Entry, curves: "Curves", log: bool) -> Chart:
    """Chart of mean and 95th percentile (s) up to saturation, the dashed rule."""
    columns = (curves.ttft if key == "ttft" else curves.tpot).T.tolist()
    rates, marks = curves.rates.tolist(), list[Mark]()
    names = ("mean", "95th percentile")
    for i, (name, seconds) in enumerate(zip(names, columns, strict=True)):
        marks.append(Line(rates, seconds, name, i, dashed=i > 0))
    end = f"saturated: {digits(curves.most, 3)}/s"
    marks.append(Rule(curves.most, end, axis="x", colour="soft"))
    if summary["mode"] == "open":
        at = [summary["request_rate_per_s"]], [summary[f"{key}_s"]["mean"]]
        marks.append(Points(*at, "this server", 0, size=6.5, outlined=True))
    across = Axis("request rate", "requests/s", zero=True, high=1.06 * curves.most)
    return Chart(
        what.capitalize(),
        [Panel(across, Axis(what, "s", log, not log), marks, height=180.0)],
        "Poisson arrivals at each rate with the batch limit of this server.",
        half=True,
    )


def _energy(summary: Entry, curves: "Curves") -> Chart:
    """Chart of the saturated server's energy per output token (J) over running
    requests, by SM clock."""
    marks, batches = list[Mark](), curves.batches.tolist()
    looks = colours(len(curves.clocks))
    rows = zip(curves.clocks, curves.energy.tolist(), looks, strict=True)
    for i, (clock, joules, colour) in enumerate(rows):
        name = f"{clock / 1e6:.0f} MHz"
        marks.append(Line(batches, joules, name, colour, shape=i % 7))
    across = Axis("running requests", log=True)
    up = Axis("energy per output token", "J", log=True)
    return Chart(
        "Energy per output token by SM clock",
        [Panel(across, up, marks, height=280.0)],
        "The saturated server at each number of running requests, at SM clocks of the "
        f"board under the power limit of {summary['power_limit_w']:.0f} W.",
    )
