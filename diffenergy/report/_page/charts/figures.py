"""A chart on the page: drawn for wide and for narrow screens, read point by point with
pointer or arrow keys."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from ..markup import embedded, escape, tag

WIDE: Final = 1100.0
HALF: Final = 530.0
NARROW: Final = 350.0
"""Widths of viewBoxes, about the CSS pixels that a chart gets: text keeps its size."""
COLOURS: Final = 8
"""Classes c0, c1, ... of the style sheet."""
MARKS: Final = ("●", "■", "▲", "◆")
"""One for each phase, beside position: a shape needs no colour."""


class Drawn(NamedTuple):
    """A chart at one width: its SVG and where its points are, in their order."""

    svg: str
    points: list[tuple[float, float]]


class Chart(NamedTuple):
    """A chart at all widths. `texts` says what a point is, `which` text belongs to each
    point (None: one each). `read`: points are hit where they are "nearest", or "span"
    from their x to the next one's."""

    identity: str
    title: str
    caption: str
    draw: Callable[[float, str], Drawn]
    texts: Sequence[str]
    which: Sequence[int] | None = None
    read: Literal["nearest", "span"] = "nearest"
    width: float = WIDE
    legend: str = ""


def figure(chart: Chart) -> str:
    """The chart's HTML."""
    wide = chart.draw(chart.width, "wide")
    narrow = chart.draw(NARROW, "narrow")
    identity = f"{chart.identity}-points"
    data = {
        "texts": list(chart.texts),
        "which": None if chart.which is None else list(chart.which),
        "read": chart.read,
        "wide": _flat(wide.points),
        "narrow": _flat(narrow.points),
    }
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("h3", escape(chart.title), id=f"{chart.identity}-title"),
            tag("p", escape(chart.caption), class_="caption"),
        ),
        chart.legend,
        tag(
            "div",
            wide.svg,
            narrow.svg,
            class_="stage",
            tabindex="0",
            role="slider",
            aria_labelledby=f"{chart.identity}-title",
            aria_valuemin="1",
            aria_valuemax=str(len(wide.points)),
            aria_valuenow="1",
            aria_valuetext=chart.texts[chart.which[0] if chart.which else 0],
            data_points=identity,
        ),
        tag("p", "Hover, tap or use the arrow keys to read it.", class_="readout"),
        embedded(identity, data),
        class_="chart",
        id=chart.identity,
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


def _flat(points: Sequence[tuple[float, float]]) -> list[Any]:
    return [round(number, 1) for point in points for number in point]
