"""A served model: latencies against the rate, joules against the batch by clock."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..._format import Entry, digits
from ..markup import si
from .figures import HALF, WIDE, Axis, linear, logarithmic, swatch
from .lines import Line, line_chart

if TYPE_CHECKING:
    from ....serving import Curves

_LEFT: Final = 58.0
_CLOSE: Final = 1.1
"""Factor between lines and the ends of their logarithmic axes."""


def served_charts(summary: Entry, found: "Curves") -> tuple[str, str, str]:
    """Time to the first token, time of a token, joules of a token."""
    return (
        _latency("ttft", "time to first token", summary, found, log=True),
        _latency("tpot", "time per output token", summary, found, log=False),
        _energy(summary, found),
    )


def _latency(key: str, what: str, summary: Entry, found: "Curves", log: bool) -> str:
    """Mean and 95th percentile up to saturation, which is the dashed line."""
    columns = (found.ttft if key == "ttft" else found.tpot).T.tolist()
    rates, lines = found.rates.tolist(), []
    chosen = None
    if summary["mode"] == "open":
        chosen = summary["request_rate_per_s"], summary[f"{key}_s"]["mean"]
    for name, seconds in zip(("mean", "95th percentile"), columns, strict=True):
        points = list(zip(rates, seconds, strict=True))
        texts = [f"{digits(x)} requests/s: {name} {si(y, 's')}" for x, y in points]
        lines.append(Line(name, points, texts, None if lines else chosen))

    def axes(width: float) -> tuple[Axis, Axis]:
        few, values = 9 if width == WIDE else 5, sum(columns, [])
        up = logarithmic(values, what, "s")
        if not log:
            up = linear(values, what, "s", 5, zero=True)
        return linear([0.0, 1.06 * found.most], "requests/s", "", few, True), up

    return line_chart(
        f"serving-{key}",
        what.capitalize(),
        "Poisson arrivals at each rate with the batch limit of the answer"
        + (", which is the large mark." if chosen else "."),
        lines, axes, 260.0, HALF, keys=_keys(lines), left=_LEFT, point=None,
        end=(found.most, f"saturated: {digits(found.most, 3)}/s"),
    )  # fmt: skip


def _energy(summary: Entry, found: "Curves") -> str:
    """J a token of the saturated server against the requests that run, by SM clock."""
    lines = []
    for clock, joules in zip(found.clocks, found.energy.tolist(), strict=True):
        name = f"{clock / 1e6:.0f} MHz"
        points = list(zip(found.batches.tolist(), joules, strict=True))
        texts = [f"{name}, {x:g} running: {si(y, 'J')} a token" for x, y in points]
        lines.append(Line(name, points, texts))
    axes = (
        logarithmic(found.batches.tolist(), "requests that run", "", _CLOSE),
        logarithmic(
            found.energy.ravel().tolist(), "energy per output token", "J", _CLOSE
        ),
    )
    # marks tell more lines apart than dashes do
    return line_chart(
        "serving-energy",
        "Energy per output token",
        "Of the server with so many requests that always run, at SM clocks of the "
        f"board under the power limit of {summary['power_limit_w']:.0f} W.",
        lines, lambda _: axes, 360.0, WIDE, keys=_keys(lines), left=_LEFT,
        point=3.0 if len(lines) > 2 else None,
    )  # fmt: skip


def _keys(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return [(swatch(number), one.name) for number, one in enumerate(lines)]
