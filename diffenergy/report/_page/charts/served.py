"""A served model: latencies against the rate, joules against the batch by clock."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..._format import Entry, digits
from ..markup import si
from .curves import path
from .figures import (
    HALF,
    WIDE,
    Axis,
    Chart,
    Drawn,
    Panel,
    drawing,
    figure,
    legend,
    line,
    linear,
    logarithmic,
    swatch,
    words,
)
from .roofline import mark

if TYPE_CHECKING:
    from ....serving._answers.curves import Curves

_HIGH: Final = {HALF: 260.0, WIDE: 360.0}
"""px of a chart, by its width."""
_LEFT: Final = 58.0
_CLOSE: Final = 1.1
"""Factor between lines and the ends of their logarithmic axes."""


class _Curve(NamedTuple):
    """A line of the style `number`, through points that `texts` tell of."""

    name: str
    number: int
    points: Sequence[tuple[float, float]]
    texts: Sequence[str]


def served_charts(summary: Entry, found: "Curves") -> tuple[str, str, str]:
    """Time to the first token, time of a token, joules of a token."""
    return (
        figure(_latency("serving-ttft", "ttft_s", summary, found, True)),
        figure(_latency("serving-tpot", "tpot_s", summary, found, False)),
        figure(_energy(summary, found)),
    )


_WORDS: Final = {"ttft_s": "time to first token", "tpot_s": "time per output token"}


def _latency(
    identity: str, key: str, summary: Entry, found: "Curves", log: bool
) -> Chart:
    """Mean and 95th percentile up to saturation, which is the dashed line."""
    both = found.ttft if key == "ttft_s" else found.tpot
    curves = [
        _Curve(
            name,
            number,
            list(zip(found.rates.tolist(), both[:, number].tolist(), strict=True)),
            [
                f"{digits(rate)} requests/s: {name} {si(seconds, 's')}"
                for rate, seconds in zip(found.rates, both[:, number], strict=True)
            ],
        )
        for number, name in enumerate(("mean", "95th percentile"))
    ]
    what = _WORDS[key]
    values = [y for curve in curves for _, y in curve.points]
    chosen = None
    if summary["mode"] == "open":
        chosen = summary["request_rate_per_s"], summary[key]["mean"]
    end = f"saturated: {digits(found.most, 3)}/s"
    tall = logarithmic if log else _from_zero
    return Chart(
        identity,
        what.capitalize(),
        "Poisson arrivals at each rate with the batch limit of the answer"
        + (", which is the large mark." if chosen else "."),
        _drawn(
            curves,
            lambda few: linear([0.0, 1.06 * found.most], "requests/s", "", few, True),
            tall(values, what, "s"),
            _HIGH[HALF],
            chosen,
            (found.most, end),
        ),
        [text for curve in curves for text in curve.texts],
        width=HALF,
        legend=_legend(curves),
    )


def _energy(summary: Entry, found: "Curves") -> Chart:
    """J a token of the saturated server against the requests that run, by SM clock."""
    curves = [
        _Curve(
            f"{clock / 1e6:.0f} MHz",
            number,
            list(zip(found.batches.tolist(), joules.tolist(), strict=True)),
            [
                f"{clock / 1e6:.0f} MHz, {batch:g} running: {si(each, 'J')} a token"
                for batch, each in zip(found.batches, joules, strict=True)
            ],
        )
        for number, (clock, joules) in enumerate(
            zip(found.clocks, found.energy, strict=True)
        )
    ]
    return Chart(
        "serving-energy",
        "Energy per output token",
        "Of the server with so many requests that always run, at SM clocks of the "
        f"board under the power limit of {summary['power_limit_w']:.0f} W.",
        _drawn(
            curves,
            lambda _: logarithmic(
                found.batches.tolist(), "requests that run", "", room=_CLOSE
            ),
            logarithmic(
                found.energy.ravel().tolist(),
                "energy per output token",
                "J",
                room=_CLOSE,
            ),
            _HIGH[WIDE],
        ),
        [text for curve in curves for text in curve.texts],
        width=WIDE,
        legend=_legend(curves),
    )


def _from_zero(values: Sequence[float], what: str, unit: str) -> Axis:
    return linear(values, what, unit, 5, zero=True)


def _drawn(
    curves: Sequence[_Curve],
    across: Callable[[int], Axis],
    tall: Axis,
    high: float,
    chosen: tuple[float, float] | None = None,
    end: tuple[float, str] | None = None,
) -> Callable[[float, str], Drawn]:
    """How the lines are drawn at a width; `end`: where they end, and why."""

    def draw(width: float, shown: str) -> Drawn:
        few = 9 if width == WIDE else 5
        panel = Panel(_LEFT, 34.0, width - _LEFT - 16, high - 80, across(few), tall)
        parts, places = [panel.frame()], []
        if end is not None:
            x = panel.at(end[0], tall.low)[0]
            parts.append(line(x, panel.top, x, panel.top + panel.height, "limit"))
            down = 12 if tall.log else panel.height - 8  # where no line is
            parts.append(words(x - 6, panel.top + down, end[1], "tick halo end"))
        for curve in curves:
            own = [panel.at(x, y) for x, y in curve.points]
            parts.append(path(own, curve.number))
            if len(curves) > 2:  # marks tell more lines apart than dashes do
                shape = curve.number % 4
                style = f"point c{curve.number}"
                parts += [mark(*place, 3.0, shape, style) for place in own]
            places += own
        if chosen is not None:
            parts.append(mark(*panel.at(*chosen), 7.0, 0, "chosen c0"))
        return Drawn(drawing(width, high, *parts, shown=shown), places)

    return draw


def _legend(curves: Sequence[_Curve]) -> str:
    return legend([(swatch(curve.number), curve.name) for curve in curves])
