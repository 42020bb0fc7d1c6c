"""The picture beside the sliders: totals, time and energy over clocks, energy by unit.

SVG by hand, as on the page of a report: a picture of matplotlib takes longer than an
estimate.
"""

import math
from typing import Final

import numpy as np

from ..report import (
    BLUE,
    GREY,
    KINDS,
    LIGHT,
    VERMILION,
    Axis,
    Panel,
    line,
    linear,
    si,
    tag,
    words,
)
from ._numbers import Shown

WIDTH: Final = 960.0
HEIGHT: Final = 430.0
_TEXT: Final = "#222222"
_SOFT: Final = "#5A5A5A"
_STYLE: Final = "".join(
    f".de-explore {selector}{{{rules}}}"
    for selector, rules in {
        "text": f"font:12px sans-serif;fill:{_TEXT}",
        ".tick,.de-explore .title": f"fill:{_SOFT}",
        ".end": "text-anchor:end",
        ".mid": "text-anchor:middle",
        ".big": "font-size:19px;font-weight:bold",
        ".head": "font-weight:bold",
        ".grid": f"stroke:{LIGHT};stroke-width:1",
        ".axis": f"stroke:{_SOFT};stroke-width:1",
        ".curve": "fill:none;stroke-width:2.2;stroke-linejoin:round",
        ".begin": f"stroke:{GREY};stroke-width:1.4;stroke-dasharray:5 4",
    }.items()
)
_UNITS: Final = {unit: colour for colour, units in KINDS.values() for unit in units}
_LEAST: Final = 5e-3
"""Share of the energy below which a unit is left out."""
_FAR: Final = 3.0
"""Ratio of two curves from which on they do not share an axis."""
_LEFT: Final = (60.0, 420.0)
"""Left end and width of the curves."""
_BARS: Final = (630.0, 215.0)
"""Left end and longest length of the bars."""


def picture(shown: Shown, begin: Shown | None = None) -> str:
    """SVG of what is `shown`.

    Args:
        shown: what is seen at the values of the sliders.
        begin: the same where they began, drawn in grey beside it.

    Returns:
        Text of one `svg` element, complete in itself.
    """
    curves = [
        _curve(shown, begin, "times", "time", "s", BLUE, 118.0),
        _curve(shown, begin, "energies", "energy per token", "J", VERMILION, 278.0),
    ]
    return tag(
        "svg",
        f"<style>{_STYLE}</style>",
        tag("rect", width="100%", height="100%", fill="#FFFFFF"),
        _totals(shown, begin),
        *curves,
        _bars(shown, begin),
        words(WIDTH - 16.0, HEIGHT - 10.0, "grey: where the sliders began", "title end")
        if begin is not None
        else "",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        class_="de-explore",
        role="img",
        aria_label=_spoken(shown),
    )


def _spoken(shown: Shown) -> str:
    """The picture in words."""
    return (
        f"{si(shown.time, 's')}, {si(shown.energy_per_token, 'J')} per token, "
        f"{si(shown.power, 'W')}"
    )


def _totals(shown: Shown, begin: Shown | None) -> str:
    """Figures in a row, each with how it changed."""
    entries = [
        ("time", "s", lambda x: x.time),
        ("per token", "J", lambda x: x.energy_per_token),
        ("mean power", "W", lambda x: x.power),
        ("first token", "s", lambda x: x.ttft),
        ("a token after", "s", lambda x: x.tpot),
    ]
    parts, x = [], 18.0
    for what, unit, of in entries:
        value, first = of(shown), begin and of(begin)
        if value is None:
            continue
        change = ""
        if first:
            percent = 100 * (value / first - 1)
            change = f" ({percent:+.0f} %)" if abs(percent) >= 0.5 else ""
        parts.append(words(x, 26.0, si(value, unit), "big"))
        parts.append(words(x, 44.0, what + change, "title"))
        x += 186.0
    parts.append(words(18.0, 70.0, _held(shown), "title"))
    return "".join(parts)


def _held(shown: Shown) -> str:
    """What becomes of the clock that is asked for, and what is amiss."""
    asked, held = (f"{x / 1e6:.0f} MHz" for x in (shown.asked_clock, shown.sm_clock))
    said = [f"SM clock {asked}" + ("" if held == asked else f", held at {held}")]
    if not shown.feasible:
        said = [f"The power limit cannot be kept; shown is the lowest clock, {held}"]
    if shown.memory > shown.capacity:
        needs, has = (f"{x / 1e9:.1f} GB" for x in (shown.memory, shown.capacity))
        said.append(f"the request does not fit the memory: {needs} of {has}")
    return "; ".join(said) + "."


def _curve(
    shown: Shown, begin: Shown | None, name: str, what: str, unit: str, colour: str,
    top: float,
) -> str:  # fmt: skip
    """A quantity over the clocks that are asked for, the one chosen as a dot; where the
    sliders began in grey, as far as it is of the same size."""
    scale = {"times": lambda _: 1.0, "energies": lambda x: 1 / x.tokens}[name]
    now = getattr(shown, name) * scale(shown)
    before = None if begin is None else getattr(begin, name) * scale(begin)
    point = shown.time if name == "times" else shown.energy_per_token
    values = [point, *now[np.isfinite(now)]]
    if before is not None and _near(before, max(values)):
        values += list(before[np.isfinite(before)])
    else:
        before = None
    mega = shown.clocks / 1e6
    last = name == "energies"
    y = linear(values, what, unit, 4)
    panel = Panel(_LEFT[0], top, _LEFT[1], 112.0, _clocks(mega, last), y)
    parts = [panel.frame(x_labels=last)]
    if begin is not None and before is not None:
        parts.append(_path(panel, begin.clocks / 1e6, before, "curve begin", GREY))
    parts.append(_path(panel, mega, now, "curve", colour))
    px, py = panel.at(shown.asked_clock / 1e6, point)
    parts.append(tag("circle", cx=f"{px:.1f}", cy=f"{py:.1f}", r="5.5", fill=colour,
                     stroke=_TEXT, stroke_width="1.5"))  # fmt: skip
    return "".join(parts)


def _near(before: np.ndarray, most: float) -> bool:
    """Whether a curve can stand on the axis of one that reaches `most`."""
    known = before[np.isfinite(before)]
    return bool(known.size and 1 / _FAR < known.max() / most < _FAR)


def _clocks(mega: np.ndarray, titled: bool) -> Axis:
    """The axis of clocks in `mega`hertz, without prefixes."""
    step = 200 if mega[-1] - mega[0] > 700 else 100
    first = math.ceil(mega[0] / step) * step
    ticks = tuple((float(x), f"{x:g}") for x in np.arange(first, mega[-1] + 1, step))
    room = 0.03 * (mega[-1] - mega[0])
    title = "SM clock that is asked for, MHz" if titled else ""
    return Axis(float(mega[0] - room), float(mega[-1] + room), ticks, title)


def _path(panel: Panel, x: np.ndarray, y: np.ndarray, style: str, colour: str) -> str:
    """A line through the points that are known."""
    places = [panel.at(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    return tag("polyline", points=points, class_=style, stroke=colour, fill="none")


def _bars(shown: Shown, begin: Shown | None) -> str:
    """Energy per token of every unit, coloured by what it is for."""
    left, longest = _BARS
    units = {
        name: energy / shown.tokens
        for name, energy in shown.energy_by_unit.items()
        if energy > _LEAST * shown.energy
    }
    order = sorted(units, key=lambda name: -units[name])
    first = {} if begin is None else begin.energy_by_unit
    scale = begin.tokens if begin is not None else 1
    most = max([*units.values(), *(first.get(x, 0.0) / scale for x in order)])
    parts = [words(left - 92, 100.0, "energy per token by unit", "head")]
    for row, name in enumerate(order):
        y = 112.0 + 24.0 * row
        width = longest * units[name] / most
        share = units[name] / shown.energy_per_token
        parts.append(words(left - 8, y + 13, name.replace("_", " "), "end"))
        parts.append(tag("rect", x=f"{left:g}", y=f"{y:.1f}", height="17",
                         width=f"{width:.1f}", fill=_UNITS[name]))  # fmt: skip
        end = width
        if name in first:
            place = left + longest * first[name] / scale / most
            parts.append(line(place, y - 2, place, y + 19, "begin"))
            end = max(width, place - left)
        text = f"{si(units[name], 'J')}, {share:.0%}".replace("%", " %")
        parts.append(words(left + end + 6, y + 13, text, "tick"))
    return "".join(parts)
