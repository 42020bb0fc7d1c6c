"""What a chart says: panels with axes, six kinds of marks, and a text for each point.

Nothing here draws. Coordinates are numbers in SI (or in the unit that the axis names);
on an axis with category names, category i lies at i, the first one on top.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from ..units import si

Colour = int | str
"""A number of the palette; "ink", "soft" or "light" of the theme; or "#rrggbb"."""
Values = Sequence[float]
SI: Final = {"s", "J", "W", "B", "g", "Hz", "B/s", "FLOP/s"}
"""Units that get prefixes."""
_PALETTE: Final = 8
_VIRIDIS: Final = (
    (0x47, 0x2D, 0x7B), (0x3B, 0x52, 0x8B), (0x2C, 0x72, 0x8E), (0x21, 0x91, 0x8C),
    (0x28, 0xAE, 0x80), (0x5E, 0xC9, 0x62), (0xAD, 0xDC, 0x30),
)  # fmt: skip
"""Every eighth of matplotlib's viridis but the ends: too dark on black, too pale on
white."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis: `title` says what is on it, `unit` in which unit its values are.

    Values in s, J, W, B, g, Hz and rates of these get the SI prefix that suits them.
    `log`: logarithmic. `zero`: begins at zero. `low`, `high`: ends; else the data's.
    `names`: categories. `ticks`: values and their labels; else round values, `whole`
    numbers alone if that is asked for.
    """

    title: str = ""
    unit: str = ""
    log: bool = False
    zero: bool = False
    low: float | None = None
    high: float | None = None
    names: Sequence[str] = ()
    ticks: Sequence[tuple[float, str]] | None = None
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points, broken at NaN; `name`: in the legend, "" for none.

    `step`: keeps y up to the next x. `shape`: of marks at its points, None for none.
    """

    x: Values
    y: Values
    name: str = ""
    colour: Colour = 0
    width: float = 2.0
    dashed: bool = False
    step: bool = False
    shape: int | None = None


@dataclasses.dataclass(frozen=True)
class Points:
    """Marks at points: of all or one for each, `shape` is a number of `SHAPES` (by
    which they differ without colours), `size` a radius in px. Without points it is an
    entry of the legend."""

    x: Values
    y: Values
    name: str = ""
    colour: Colour | Sequence[Colour] = 0
    shape: int | Sequence[int] = 0
    size: float | Sequence[float] = 4.0
    outlined: bool = False


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Rectangles from `left` to `right` and `low` to `high`: bars, slices of time,
    columns. `pale`: share of each that is background, for shades of a colour; `texts`
    are written inside where they fit."""

    left: Values
    right: Values
    low: Values
    high: Values
    name: str = ""
    colour: Colour | Sequence[Colour] = 0
    pale: float | Sequence[float] = 0.0
    edged: bool = False
    texts: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Band:
    """The pale area between `low` and `high` over `x`, such as an interval."""

    x: Values
    low: Values
    high: Values
    name: str = ""
    colour: Colour = 0


@dataclasses.dataclass(frozen=True)
class Rule:
    """A line across the panel at a value of the `axis`; `name`: what it is."""

    at: float
    name: str = ""
    axis: Literal["x", "y"] = "y"
    colour: Colour = "ink"
    dashed: bool = True


@dataclasses.dataclass(frozen=True)
class Label:
    """Words beside a point, on its `side`; "over" it: centred, above the data. `name`:
    of the bar that they say the length of."""

    x: float
    y: float
    text: str
    side: Literal["left", "right", "above", "below", "over"] = "right"
    name: str = ""


Mark = Line | Points | Boxes | Band | Rule | Label


class Reading(NamedTuple):
    """Text of the point at `x`, `y` for the pointer, the arrow keys and screen
    readers."""

    x: float
    y: float
    text: str


@dataclasses.dataclass(frozen=True)
class Scale:
    """Legend of a row of colours, from the lowest on; `labels`: by number of colour,
    those that have one."""

    title: str
    colours: Sequence[Colour]
    labels: Mapping[int, str]


@dataclasses.dataclass(frozen=True)
class Panel:
    """Marks on two axes, the later ones on top.

    `readings`: a text for every point, in the order of arrow keys (none: what
    `readings_of` makes of the marks); `spans`: each holds from its x on to the next
    one's, else the nearest is read. `height`: of the data, px
    of the page; None: as categories, or the house, need.
    """

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    readings: Sequence[Reading] = ()
    title: str = ""
    spans: bool = False
    scale: Scale | None = None
    height: float | None = None


@dataclasses.dataclass(frozen=True)
class Chart:
    """Panels under a title, `columns` of them side by side; without panels `caption`
    says why there are none. `half`: two such charts stand side by side on a page;
    `joined`: its panels are those of other charts of the same result."""

    title: str
    panels: Sequence[Panel]
    caption: str = ""
    columns: int = 1
    half: bool = False
    joined: bool = False


def readings_of(panel: Panel) -> Sequence[Reading]:
    """The readings of a panel; if it has none, name and coordinates of the points of
    lines and marks, or category, name and words of bars.

    Args:
        panel: what to read.
    """
    if panel.readings:
        return panel.readings
    readings = []
    for mark in panel.marks:
        if panel.y.names and isinstance(mark, Label):
            category = panel.y.names[round(mark.y)].replace("\n", ", ")
            of = f"{category}, {mark.name}" if mark.name else category
            readings.append(Reading(mark.x, mark.y, f"{of}: {mark.text}"))
        elif not panel.y.names and isinstance(mark, Line | Points):
            of = f"{mark.name}: " if mark.name else ""
            for x, y in zip(mark.x, mark.y, strict=True):
                if math.isfinite(x) and math.isfinite(y):
                    text = (
                        f"{of}{_reading_text(panel.x, x)}, {_reading_text(panel.y, y)}"
                    )
                    readings.append(Reading(x, y, text))
    return sorted(readings, key=lambda x: x.y) if panel.y.names else readings


def _reading_text(axis: Axis, value: float) -> str:
    amount = si(value, axis.unit) if axis.unit in SI else f"{value:.5g} {axis.unit}"
    return f"{axis.title} {amount}".replace(" u", " µ").strip()


def stacked(title: str, charts: Sequence[Chart], columns: int = 1) -> Chart:
    """The panels of several charts as one, each under the title of its chart.

    Args:
        title: of the whole.
        charts: what to join; those that cannot be drawn are left out.
        columns: of panels side by side.
    """
    panels = [
        dataclasses.replace(panel, title=panel.title or chart.title)
        for chart in charts
        for panel in chart.panels
    ]
    return Chart(title, panels, columns=columns, joined=True)


def bars(
    values: Sequence[float],
    texts: Sequence[str],
    *,
    name: str = "",
    colour: Colour | Sequence[Colour] = 0,
    rows: Sequence[float] | None = None,
    thick: float = 0.7,
) -> list[Mark]:
    """Horizontal bars from zero with texts behind their ends.

    Args:
        values: lengths, in the unit of the x axis.
        texts: of each bar; none if empty.
        name: in the legend.
        colour: of all, or one for each.
        rows: where they lie on the y axis [0, 1, ...].
        thick: their height, in rows.
    """
    places = range(len(values)) if rows is None else rows
    low, high = [x - thick / 2 for x in places], [x + thick / 2 for x in places]
    left, right = [min(x, 0.0) for x in values], [max(x, 0.0) for x in values]
    labels = [
        Label(value, row, text, "left" if value < 0 else "right", name)
        for value, row, text in zip(values, places, texts, strict=False)
    ]
    return [Boxes(left, right, low, high, name, colour), *labels]


def colours(count: int) -> list[Colour]:
    """Colours of `count` categories in order: the palette, of more a map."""
    if count <= _PALETTE:
        return list(range(count))
    return [viridis(i / (count - 1)) for i in range(count)]


def viridis(share: float) -> str:
    """Colour of a map from dark (0) to light (1), which prints and dims in order.

    >>> viridis(0.0), viridis(1.0)
    ('#472d7b', '#addc30')
    """
    place = min(max(share, 0.0), 1.0) * (len(_VIRIDIS) - 1)
    first = min(int(place), len(_VIRIDIS) - 2)
    pairs = zip(_VIRIDIS[first], _VIRIDIS[first + 1], strict=True)
    mixed = (round(a + (b - a) * (place - first)) for a, b in pairs)
    return "#" + "".join(f"{x:02x}" for x in mixed)
