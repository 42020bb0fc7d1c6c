"""What the page's charts are made of: axes with nice ticks, the frame in SVG; drawn for
wide and for narrow screens, read point by point with pointer or arrow keys."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from ..._format import scaled
from ..markup import embedded, escape, paragraph, tag

WIDE: Final = 1100.0
HALF: Final = 530.0
NARROW: Final = 350.0
"""Widths of viewBoxes, about the CSS pixels that a chart gets: text keeps its size."""
COLOURS: Final = 8
"""Classes c0, c1, ... of the style sheet."""
MARKS: Final = ("●", "■", "▲", "◆")
"""One for each phase, beside position: a shape needs no colour."""
_NICE: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_LOG_ROOM: Final = 2.0
"""Factor between the data and the ends of a logarithmic axis."""
_LOG_TICKS: Final = 7
"""Ticks of a logarithmic axis at most."""
_CLOSE: Final = 1e3
"""Ratio of such ends up to which powers of ten are too few ticks."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """A range with its ticks; `title` says what is on it, in which unit."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str
    log: bool = False

    def share(self, value: float) -> float:
        """Where `value` lies: 0 at the low end, 1 at the high end, cut to that."""
        if self.log:
            value = max(value, self.low)
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return min(max(place, 0.0), 1.0)


@dataclasses.dataclass(frozen=True)
class Panel:
    """Where the data of a chart are drawn, in units of its viewBox."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Position of a point of data."""
        return (
            self.left + self.width * self.x.share(x),
            self.top + self.height * (1 - self.y.share(y)),
        )

    def frame(self, x_labels: bool = True) -> str:
        """Grid lines, tick labels and titles."""
        parts = []
        bottom, right = self.top + self.height, self.left + self.width
        for value, label in self.y.ticks:
            y = self.at(self.x.low, value)[1]
            parts.append(line(self.left, y, right, y, "grid"))
            parts.append(words(self.left - 6, y + 4, label, "tick end"))
        for value, label in self.x.ticks:
            if value > self.x.high * (1 + 1e-9):
                continue
            x = self.at(value, self.y.low)[0]
            parts.append(line(x, bottom, x, bottom + 4, "axis"))
            if x_labels:
                parts.append(words(x, bottom + 17, label, "tick mid"))
        parts.append(line(self.left, bottom, right, bottom, "axis"))
        parts.append(words(4.0, self.top - 10, self.y.title, "title"))
        if x_labels:
            parts.append(words(right, bottom + 35, self.x.title, "title end"))
        return "".join(parts)

    def level(self, value: float, text: str) -> str:
        """A dashed line at `value`, and above the data what it is."""
        y, right = self.at(0.0, value)[1], self.left + self.width
        rule = line(self.left, y, right, y, "limit")
        return rule + words(right, self.top - 10, f"- - -  {text}", "title end")


def linear(
    values: Sequence[float], what: str, unit: str, most: int = 6, zero: bool = False
) -> Axis:
    """Axis around `values` with a prefix that suits them; `zero`: from 0 on."""
    top, bottom = max(values), 0.0 if zero else min(values)
    if top <= bottom:
        top, bottom = top + (abs(top) or 1.0) * 0.05, bottom - abs(bottom) * 0.05
    room = 0.0 if zero else 0.04 * (top - bottom)
    low, high = bottom - room, top + max(room, 0.04 * (top - bottom))
    step = _step((high - low) / most)
    first = math.ceil(low / step - 1e-9)
    marks = [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
    scale, prefix = scaled(max(abs(low), abs(high)))
    places = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    if step / scale * 10**places % 1 > 1e-6:  # 2.5
        places += 1
    ticks = tuple((mark, f"{mark / scale:.{places}f}") for mark in marks)
    return Axis(low, high, ticks, _title(what, prefix.replace("u", "µ") + unit))


def time_axis(end: float, width: float) -> Axis:
    """From 0 to `end`, s, of a chart of `width`."""
    axis = linear([0.0, end], "time", "s", 4 if width == NARROW else 8, zero=True)
    return dataclasses.replace(axis, high=end)


def logarithmic(
    values: Sequence[float], what: str, unit: str, room: float = _LOG_ROOM
) -> Axis:
    """Axis around positive `values`, its ticks at powers of ten (of close
    values also 2 and 5 times them), with their prefix."""
    low, high = min(values) / room, max(values) * room
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    every = max(1, math.ceil((last - first) / _LOG_TICKS))
    within = (1.0, 2.0, 5.0) if high / low < _CLOSE else (1.0,)
    marks = (x * 10.0**e for e in range(first - 1, last + 1) for x in within)
    ticks = tuple(
        (x, _short(x))
        for x in marks
        if low <= x <= high and math.floor(math.log10(x) + 1e-9) % every == 0
    )
    return Axis(low, high, ticks, _title(what, unit), log=True)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'class="{style}"/>'
    )


def words(x: float, y: float, text: str, style: str) -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(text)}</text>'


def mark(x: float, y: float, radius: float, shape: int, style: str) -> str:
    """A circle, square, triangle or diamond of about the same area."""
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{style}"/>'
    r = radius * (0.89, 1.25, 1.25)[min(shape, 3) - 1]
    corners = {
        1: ((-r, -r), (r, -r), (r, r), (-r, r)),
        2: ((0, -r), (r, 0.8 * r), (-r, 0.8 * r)),
        3: ((0, -r), (r, 0), (0, r), (-r, 0)),
    }[min(shape, 3)]
    path = "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in corners)
    return f'<path d="M{path}Z" class="{style}"/>'


def _title(what: str, unit: str) -> str:
    return f"{what}, {unit}" if unit else what


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(nice for nice in _NICE if nice * power >= rough * (1 - 1e-9)) * power


def _short(value: float) -> str:
    scale, prefix = scaled(value * 1.0000001)
    return f"{value / scale:g}{prefix}".replace("u", "µ")


class Drawn(NamedTuple):
    """A chart at one width: its height, what its SVG holds, where its points are."""

    height: float
    content: Sequence[str]
    points: Sequence[tuple[float, float]]


def figure(
    identity: str,
    title: str,
    caption: str,
    draw: Callable[[float], Drawn],
    texts: Sequence[str],
    *,
    which: Sequence[int] | None = None,
    read: Literal["nearest", "span"] = "nearest",
    width: float = WIDE,
    keys: Sequence[tuple[str, str]] = (),
) -> str:
    """The HTML of a chart, drawn at `width` and for narrow screens.

    `texts` says what a point is, `which` text belongs to each point (None: one each).
    `read`: points are hit where they are "nearest", or "span" from their x to the next
    one's. `keys`: of the legend.
    """
    data: dict[str, Any] = {"texts": list(texts), "which": which, "read": read}
    drawings = []
    for shown, across in (("wide", width), ("narrow", NARROW)):
        drawn = draw(across)
        drawings.append(
            tag(
                "svg",
                *drawn.content,
                viewBox=f"0 0 {across:g} {drawn.height:g}",
                class_=f"plot {shown}",
                aria_hidden="true",
                focusable="false",
            )
        )
        data[shown] = [round(x, 1) for point in drawn.points for x in point]
    points = f"{identity}-points"
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("h3", escape(title), id=f"{identity}-title"),
            paragraph(caption),
        ),
        legend(keys) if keys else "",
        tag(
            "div",
            *drawings,
            class_="stage",
            tabindex="0",
            role="slider",
            aria_labelledby=f"{identity}-title",
            aria_valuemin="1",
            aria_valuemax=str(len(data["wide"]) // 2),
            aria_valuenow="1",
            aria_valuetext=texts[which[0] if which else 0],
            data_points=points,
        ),
        tag("p", "Hover, tap or use the arrow keys to read it.", class_="readout"),
        embedded(points, data),
        class_="chart",
        id=identity,
    )


def unavailable(identity: str, title: str, why: str) -> str:
    """What stands where a chart cannot be drawn."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", escape(title))),
        tag("p", f"unavailable: {escape(why)}", class_="none"),
        class_="chart",
        id=identity,
    )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """(markup of a key, what it means)."""
    items = [tag("li", key, escape(" " + text)) for key, text in entries]
    return tag("ul", *items, class_="legend")


def swatch(colour: int | str) -> str:
    """A square in the colour of a class."""
    name = f"c{colour}" if isinstance(colour, int) else colour
    return tag("span", class_=f"swatch {name}", aria_hidden="true")
