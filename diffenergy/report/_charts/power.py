"""Power over time and its spectrum."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...charts import Axis, Band, Boxes, Chart, Line, Mark, Panel, Reading, Rule
from ...power_time import SUPPLY_LAG, PowerCurve, lines
from .._format import Entry, percent, si

_DRAWN: Final = 900
"""Maximum number of slices drawn; of more, means of bins are."""
_WORDS: Final = {"boards": "boards", "wall": "at the wall"}
_PER_DECADE: Final = 8
"""Bars of the spectrum in a decade of frequencies."""
_FASTEST: Final = 30.0
"""Hz: what is faster, power supplies filter."""


def power_charts(summary: Entry, curves: Mapping[str, PowerCurve]) -> dict[str, Chart]:
    """Return the chart of power over time (W) with the spectrum beside it; none of no
    curves."""
    if not curves:
        return {}
    return {
        "power-over-time": Chart(
            "Power over time",
            [_over_time(summary, curves), _spectrum(summary, curves)],
            "Means of what is drawn, faster changes included; the band is the 5th to "
            "95th percentile of the mean, as far as it is known. Bars are the rms of "
            "what deviates from the mean, by frequency, behind power supplies.",
            columns=2,
        )
    }


def _over_time(summary: Entry, curves: Mapping[str, PowerCurve]) -> Panel:
    profile, of = summary["power_profile"], summary["power_profile"]["of"]
    marks: list[Mark] = []
    readings: list[Reading] = []
    for name in dict.fromkeys((of, "boards")):
        curve = curves[name]
        if len(curve.watts) > _DRAWN:
            curve = curve.merged(curve.time / _DRAWN)
        x, y = curve.edges.tolist(), np.append(curve.watts, curve.watts[-1])
        interval = _interval(summary, name)
        if name == of and interval is not None:
            low, high = interval
            marks.append(Band(*_corners(x, y, low, high), "5 to 95 %", 0))
        look = 0 if name == of else "soft"
        words = _WORDS[name]
        marks.append(Line(x, y.tolist(), words, look, 1.5, step=True))
        if name == of:
            readings = [
                Reading(a, b, f"from {si(a, 's')} on: {si(b, 'W')} {words}")
                for a, b in zip(x[:-1], curve.watts.tolist(), strict=True)
            ]
    marks.append(Rule(profile["mean_w"], f"mean: {si(profile['mean_w'], 'W')}"))
    gpus, limit = summary.get("num_gpus") or 1, summary["power_limit_w"]
    floor = (summary.get("smoothing") or {}).get("floor_w")
    if floor is not None:
        words = f"floor of the boards: {si(floor, 'W')}"
        marks.append(Rule(floor, words, colour=2))
    words = f"limit of the boards: {si(gpus * limit, 'W')}"
    marks.append(Rule(gpus * limit, words, colour=1))
    time = Axis("time", "s", zero=True, high=curves[of].time)
    y = Axis("power", "W", zero=True)
    return Panel(time, y, marks, readings, "Power", spans=True, height=220.0)


def _corners(
    x: list[float], y: np.ndarray, low: float, high: float
) -> tuple[list[float], list[float], list[float]]:
    """Corners of a band around a curve that is constant between edges."""
    across = np.repeat(x, 2)[1:-1]
    along = np.repeat(y[:-1], 2)
    return across.tolist(), (low * along).tolist(), (high * along).tolist()


def _interval(summary: Entry, of: str) -> tuple[float, float] | None:
    """5th and 95th percentile of mean power over the mean, where the result has it."""
    name = "wall_power_w" if of == "wall" else "avg_power_w"
    if (interval := summary.get(f"{name}_p5_p95")) is None:
        return None
    low, high = (x / summary[name] for x in interval)
    return low, high


def _spectrum(summary: Entry, curves: Mapping[str, PowerCurve]) -> Panel:
    """Rms by frequency: bars of so many in a decade, of the mean."""
    curve = curves[summary["power_profile"]["of"]]
    frequency, square = lines(curve)
    square = square / (1 + (2 * np.pi * frequency * SUPPLY_LAG) ** 2)
    seen = frequency <= max(_FASTEST, float(frequency[0]) * 1.001)
    frequency, square = frequency[seen], square[seen]
    place = np.floor(_PER_DECADE * np.log10(frequency) + 0.5).astype(int)
    each, which = np.unique(place, return_inverse=True)
    share = 100 * np.sqrt(np.bincount(which, square)) / curve.mean
    left, right = (10 ** ((each + x) / _PER_DECADE) for x in (-0.5, 0.5))
    bars = Boxes(
        left.tolist(), right.tolist(), [0.0] * len(each), share.tolist(), "", 5,
        edged=True,
    )  # fmt: skip
    readings = [
        Reading(10 ** (n / _PER_DECADE), x, f"{si(a, 'Hz')} to {si(b, 'Hz')}: rms "
                f"{percent(x / 100)} of the mean")
        for n, x, a, b in zip(each.tolist(), share.tolist(), left, right, strict=True)
    ]  # fmt: skip
    x = Axis("frequency", "Hz", log=True)
    y = Axis("rms, share of the mean", "%", zero=True)
    return Panel(x, y, [bars], readings, "Spectrum", height=220.0)
