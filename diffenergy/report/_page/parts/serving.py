"""The part of the page on a model behind an engine, under load."""

from typing import TYPE_CHECKING, Final

from ..._format import Entry, digits, percent
from ..._tables.lines import assumed_line
from ..._views.serving import latencies, rates, title
from ..charts.served import served_charts
from ..markup import paragraph, sentence, si, tag
from .answer import tile
from .tables import bars, table

if TYPE_CHECKING:
    from ....serving import ServingResult

_LARGE: Final = (
    ("Energy per output token", "energy_j_per_output_token", "J"),
    ("Time per output token", "tpot_s", "s"),
    ("Time to first token", "ttft_s", "s"),
)


def served_part(result: "ServingResult") -> str:
    """Sentence, figures with ranges, charts, the mean step, latencies and rates."""
    summary = result.summary
    charts: tuple[str, ...] = ()
    if result.costs is not None and summary["mode"] != "trace":
        from ....serving import server_curves

        charts = served_charts(summary, server_curves(result.deployment, result.costs))
    first, token, energy = charts or ("", "", "")
    step = bars("serving-step", "The mean step", dict(summary["step_s"]["parts"]), "s")
    load = table("serving-rates", "Load", (("", 0), ("", 1)), rates(summary))
    return "".join(
        [
            paragraph(_sentence(summary), "lead"),
            tag("dl", *(_tile(summary, *x) for x in _LARGE), class_="tiles large"),
            paragraph(f"Grade: {summary['grade']}. {sentence(assumed_line(summary))}"),
            *(paragraph(sentence(x)) for x in result.warnings),
            tag("div", first, token, class_="pair") if charts else "",
            energy,
            tag("div", step, tag("div", tag("h3", "Load"), load), class_="pair"),
            tag("h3", "Latencies"),
            table("serving-latencies", "Latencies", *latencies(summary, "latency")),
        ]
    )


def _sentence(s: Entry) -> str:
    """What is served and what it takes, in words."""
    watts = si(s["avg_power_w"], "W")
    return sentence(
        f"{title(s)}: {digits(s['output_token_throughput_per_s'])} tokens/s for "
        f"{watts}, {si(s['energy_j_per_request'], 'J')} a request; "
        f"{percent(s['utilization'], 0)} of the "
        f"{digits(s['saturation_request_rate_per_s'])} requests/s that it sustains"
    )


def _tile(s: Entry, name: str, key: str, unit: str) -> str:
    value = s[key]["mean"] if isinstance(s[key], dict) else s[key]
    return tile(name, value, unit, s[f"{key}_p5_p95"])
