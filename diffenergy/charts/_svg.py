"""Draws a chart as HTML: SVG for wide and for narrow screens, read point by point with
pointer or arrow keys (`chart.css`, and the page's script)."""

import dataclasses
import math
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple

from ._data import (
    Band,
    Boxes,
    Chart,
    Colour,
    Label,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    Scale,
    readings_of,
)
from ._layout import (
    CHARACTER,
    LINE,
    Named,
    Range,
    data_height,
    each,
    fitting,
    legends,
    ranges,
    shortened,
)
from ._markup import embedded, escape, tag

WIDE: Final = 1100.0
HALF: Final = 530.0
NARROW: Final = 350.0
"""Widths of viewBoxes, about the CSS pixels that a panel gets: text keeps its size."""
_LEAST_LEFT: Final = 46.0
_MOST_LEFT: Final = 0.4
"""Share of the width that names of categories take at most."""
_EDGED: Final = 4.0
"""px of a box that has room for an edge."""
_PICTURE: Final = "de-picture"
"""Class of a picture that stands alone; its rules hold for nothing else."""
_READ: Final = "Hover, tap or use the arrow keys to read it."


@dataclasses.dataclass(frozen=True)
class Frame:
    """Where the data of a panel are drawn, in units of its viewBox."""

    left: float
    top: float
    width: float
    height: float
    x: Range
    y: Range

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Position of a point of data."""
        return (
            self.left + self.width * self.x.share(x),
            self.top + self.height * (1 - self.y.share(y)),
        )


class Drawn(NamedTuple):
    """A panel at one width: its height, what its SVG holds, where its points are."""

    height: float
    content: str
    points: Sequence[tuple[float, float]]


def stylesheet() -> str:
    """CSS of what `to_svg` draws, in both themes."""
    folder = resources.files("diffenergy.charts")
    return (folder / "chart.css").read_text(encoding="utf-8")


def to_svg(chart: Chart, identity: str) -> str:
    """HTML of a `<figure>` with `identity` as its id.

    Args:
        chart: what to draw; without panels its caption says why there are none.
        identity: id of the figure, unique in its page; ids inside begin with it.
    """
    several = len(chart.panels) > 1
    parts = []
    shown = legends(chart.panels)
    for i, panel in enumerate(chart.panels):
        width = WIDE if _alone(chart, i) and not chart.half else HALF
        name = f"{identity}-{i}" if several else identity
        own = f"{name}-title" if several and panel.title else ""
        drawn = _panel(panel, name, width, own or f"{identity}-title", shown[i])
        heading = tag("h4", escape(panel.title), id=own) if own else ""
        parts.append(tag("div", heading, drawn, class_="panel"))
    columns = "panels pair" if chart.columns > 1 else "panels"
    missing = tag("p", f"unavailable: {escape(chart.caption)}", class_="none")
    caption = tag("p", escape(chart.caption), class_="caption") if chart.caption else ""
    title = tag("h3", escape(chart.title), id=f"{identity}-title")
    return tag(
        "figure",
        tag("figcaption", title, caption if parts else ""),
        tag("div", *parts, class_=columns) if parts else missing,
        class_="chart half" if chart.half else "chart",
        id=identity,
    )


def to_picture(chart: Chart) -> str:
    """One `svg` element, complete in itself and in light colours: title, caption and
    panels, without what only a page has (legends, readings).

    Args:
        chart: what to draw, `columns` panels side by side.
    """
    parts, y, tall = [], 62.0, 0.0
    for i, panel in enumerate(chart.panels):
        alone = _alone(chart, i)
        drawn, x = draw(panel, WIDE if alone else HALF), (i % chart.columns) * WIDE / 2
        at = f"translate({0 if alone else x:g} {y:g})"
        parts.append(tag("g", drawn.content, transform=at))
        tall = max(tall, drawn.height)
        if alone or i % chart.columns == chart.columns - 1:
            y, tall = y + tall, 0.0
    rules = re.sub(r"@media.*?\n}\n", "", stylesheet(), flags=re.DOTALL)
    rules = re.sub(r"\.(?=[a-z][\w-]*[ ,{.:])", f".{_PICTURE} .", rules)
    rules = rules.replace(":root", f".{_PICTURE}")
    rules += f".{_PICTURE} {{ font: 12px sans-serif; }}"
    return tag(
        "svg",
        f"<style>{escape(rules)}</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="18" y="24" font-weight="bold" font-size="13.5">{escape(chart.title)}'
        "</text>",
        words(18.0, 46.0, chart.caption, "title"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDE:g} {y:g}",
        class_=f"{_PICTURE} plot",
        role="img",
        aria_label=chart.title,
    )


def _alone(chart: Chart, i: int) -> bool:
    """Whether a panel has its row for itself."""
    last = i == len(chart.panels) - 1
    return chart.columns == 1 or last and i % chart.columns == 0


def _panel(
    panel: Panel, identity: str, wide: float, title: str, legend: Sequence[Named]
) -> str:
    """Content of a panel below its own title: legend, drawings, readout. `title`: id of
    what names it."""
    of_points = [reading.text for reading in readings_of(panel)]
    texts = list(dict.fromkeys(of_points))
    place = {text: i for i, text in enumerate(texts)}
    which = [place[text] for text in of_points]
    data: dict[str, Any] = {
        "texts": texts,
        "which": None if which == list(range(len(texts))) else which,
        "read": "span" if panel.spans else "nearest",
    }
    drawings = []
    for shown, width in (("wide", wide), ("narrow", NARROW)):
        drawn = draw(panel, width)
        data[shown] = [round(x, 1) for point in drawn.points for x in point]
        box = f"0 0 {width:g} {drawn.height:g}"
        drawings.append(
            tag("svg", drawn.content, viewBox=box, class_=f"plot {shown}",
                aria_hidden="true", focusable="false")
        )  # fmt: skip
    keys = [tag("li", _key(mark), escape(" " + mark.name)) for mark in legend]
    parts = [
        tag("ul", *keys, class_="legend") if keys else "",
        "" if panel.scale is None else _scale(panel.scale),
        tag(
            "div",
            *drawings,
            class_="stage",
            tabindex="0",
            role="slider",
            aria_labelledby=title,
            aria_valuemin="1",
            aria_valuemax=str(len(which)),
            aria_valuenow="1",
            aria_valuetext=texts[0] if texts else "",
            data_points=f"{identity}-points",
        ),
        tag("p", _READ, class_="readout"),
        embedded(f"{identity}-points", data),
    ]
    return "".join(parts)


def draw(panel: Panel, width: float) -> Drawn:
    """The SVG of a panel at a width of its viewBox."""
    height = data_height(panel)
    if width < HALF and not panel.y.names:
        height *= 0.85
    most = int(width * _MOST_LEFT / CHARACTER) if panel.y.names else 99
    x, y = ranges(panel, width - 100, height)
    names = [part for _, name in y.ticks for part in name.split("\n")]
    longest = max((min(len(name), most) for name in names), default=0)
    left = max(_LEAST_LEFT, CHARACTER * longest + 14)
    over = any(isinstance(x, Label) and x.side == "over" for x in panel.marks)
    top = 8.0 + (20.0 if y.title else 0.0) + (18.0 if over else 0.0)
    x, y = ranges(panel, width - left - 16, height)
    frame = Frame(left, top, width - left - 16, height, x, y)
    marks = [_mark(mark, frame) for mark in panel.marks]
    points = [frame.at(reading.x, reading.y) for reading in readings_of(panel)]
    below = 44.0 if x.title else 26.0
    return Drawn(top + height + below, _axes(frame, most) + "".join(marks), points)


def _axes(frame: Frame, most: int) -> str:
    """Grid lines, tick labels and titles."""
    bottom, right = frame.top + frame.height, frame.left + frame.width
    parts = []
    for value, name in frame.y.ticks:
        y = frame.at(frame.x.low, value)[1]
        lines = name.split("\n")
        if not frame.y.down:
            parts.append(line(frame.left, y, right, y, "grid"))
        for i, text in enumerate(lines):
            down = y + 4 + LINE * (i - (len(lines) - 1) / 2)
            parts.append(words(frame.left - 6, down, shortened(text, most), "tick end"))
    for value, name in frame.x.ticks:
        x = frame.at(value, frame.y.low)[0]
        if frame.y.down:
            parts.append(line(x, frame.top, x, bottom, "grid"))
        parts.append(line(x, bottom, x, bottom + 4, "axis"))
        parts.append(words(x, bottom + 17, name, "tick mid"))
    parts.append(line(frame.left, bottom, right, bottom, "axis"))
    if frame.y.title:
        parts.append(words(4.0, 14.0, frame.y.title, "title"))
    if frame.x.title:
        parts.append(words(right, bottom + 35, frame.x.title, "title end"))
    return "".join(parts)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'class="{style}"/>'
    )


def words(x: float, y: float, text: str, style: str) -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(text)}</text>'


def _mark(mark: Mark, frame: Frame) -> str:
    match mark:
        case Line():
            return _line(mark, frame)
        case Points():
            return _points(mark, frame)
        case Boxes():
            return _boxes(mark, frame)
        case Band():
            return _band(mark, frame)
        case Rule():
            return _rule(mark, frame)
        case Label():
            return _label(mark, frame)


def paint(colour: Colour, how: str, style: str) -> str:
    """Attributes of a shape that is filled ("fill") or drawn ("stroke") in a colour."""
    if isinstance(colour, str) and colour.startswith("#"):
        return f'class="{style}" style="{how}:{colour}"'
    name = f"c{colour}" if isinstance(colour, int) else colour
    return f'class="{style} {how}-{name}"'


def _line(mark: Line, frame: Frame) -> str:
    path, pen, last = "", "M", 0.0
    shapes = []
    for x, y in zip(mark.x, mark.y, strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            pen = "M"
            continue
        a, b = frame.at(x, y)
        if pen == "L" and mark.step:
            path += f"H{a:.1f}V{b:.1f}"
        else:
            path += f"{pen}{a:.1f} {last if pen == 'L' and mark.step else b:.1f}"
        pen, last = "L", b
        if mark.shape is not None:
            shapes.append(shape_path(a, b, max(3.4, 0.8 * mark.width), mark.shape))
    drawn = _stroke(path, mark)
    if shapes:
        drawn += f'<path d="{"".join(shapes)}" {paint(mark.colour, "fill", "dot")}/>'
    return drawn


def _points(mark: Points, frame: Frame) -> str:
    count, style = len(mark.x), "chosen" if mark.outlined else "dot"
    columns = (each(x, count) for x in (mark.colour, mark.shape, mark.size))
    drawn = []
    for x, y, colour, shape, size in zip(mark.x, mark.y, *columns, strict=True):
        path = shape_path(*frame.at(x, y), size, shape)
        drawn.append(f'<path d="{path}" {paint(colour, "fill", style)}/>')
    return "".join(drawn)


def shape_path(x: float, y: float, radius: float, shape: int) -> str:
    """A path of a shape, all of about the same area, around a point."""
    if shape == 0:
        arc = f"a{radius:.1f} {radius:.1f} 0 1 0"
        there, back = f"{2 * radius:.1f} 0", f"{-2 * radius:.1f} 0"
        return f"M{x - radius:.1f} {y:.1f}{arc} {there}{arc} {back}Z"
    places = (
        f"{x + radius * a:.1f} {y + radius * b:.1f}"
        for a, b in _CORNERS[(shape - 1) % len(_CORNERS)]
    )
    return f"M{'L'.join(places)}Z"


_CROSS: Final = (
    (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4),
    (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
)  # fmt: skip
_CORNERS: Final = (
    ((-0.89, -0.89), (0.89, -0.89), (0.89, 0.89), (-0.89, 0.89)),
    ((0.0, -1.25), (1.25, 1.0), (-1.25, 1.0)),
    ((0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)),
    ((0.0, 1.25), (1.25, -1.0), (-1.25, -1.0)),
    _CROSS,
    tuple((0.71 * (a - b), 0.71 * (a + b)) for a, b in _CROSS),
    tuple(
        (r * math.sin(math.pi * i / 5), -r * math.cos(math.pi * i / 5))
        for i in range(10)
        for r in ((0.62, 1.5)[i % 2 == 0],)
    ),
)
"""Square, triangle, diamond, triangle down, plus, cross, star."""


def _boxes(mark: Boxes, frame: Frame) -> str:
    """All boxes of a colour as one path."""
    count = len(mark.left)
    paths: dict[tuple[Colour, float], list[str]] = {}
    widths: list[float] = []
    middles: list[tuple[float, float]] = []
    columns = (each(mark.colour, count), each(mark.pale, count))
    ends = zip(mark.left, mark.right, mark.low, mark.high, strict=True)
    tall = True
    for (left, right, low, high), colour, pale in zip(ends, *columns, strict=True):
        (x0, y0), (x1, y1) = frame.at(left, low), frame.at(right, high)
        y0, y1 = max(y0, y1), min(y0, y1)
        widths.append(x1 - x0)
        path = f"M{x0:.2f} {y0:.1f}V{y1:.1f}H{x1:.2f}V{y0:.1f}Z"
        paths.setdefault((colour, float(pale)), []).append(path)
        middles.append(((x0 + x1) / 2, (y0 + y1) / 2 + 4))
        tall = tall and y0 - y1 > 11
    edged = mark.edged and count and sorted(widths)[count // 2] > _EDGED
    style = "box edged" if edged else "box"
    drawn = []
    for (colour, pale), parts in paths.items():
        opacity = f' fill-opacity="{1 - pale:.2f}"' if pale else ""
        look = paint(colour, "fill", style)
        drawn.append(f'<path d="{"".join(parts)}"{opacity} {look}/>')
    if tall:
        room = [(width - 4) / CHARACTER for width in widths]
        drawn += [
            words(middles[i][0], middles[i][1], mark.texts[i], "inside mid")
            for i in fitting(mark.texts, room)
        ]
    return "".join(drawn)


def _band(mark: Band, frame: Frame) -> str:
    high = [frame.at(x, y) for x, y in zip(mark.x, mark.high, strict=True)]
    low = [frame.at(x, y) for x, y in zip(mark.x, mark.low, strict=True)]
    corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in (*high, *low[::-1]))
    return f'<path d="M{corners}Z" {paint(mark.colour, "fill", "band")}/>'


def _rule(mark: Rule, frame: Frame) -> str:
    if mark.axis == "y":
        y, right = frame.at(frame.x.low, mark.at)[1], frame.left + frame.width
        path = f"M{frame.left:.1f} {y:.1f}H{right:.1f}"
    else:
        x, bottom = frame.at(mark.at, frame.y.low)[0], frame.top + frame.height
        path = f"M{x:.1f} {frame.top:.1f}V{bottom:.1f}"
    return _stroke(path, mark)


def _stroke(path: str, mark: Line | Rule) -> str:
    width = mark.width if isinstance(mark, Line) else 1.3
    dashes = ' stroke-dasharray="5 4"' if mark.dashed else ""
    look = paint(mark.colour, "stroke", "curve")
    return f'<path d="{path}" stroke-width="{width:g}"{dashes} {look}/>'


def _label(mark: Label, frame: Frame) -> str:
    """Words on their side, or on the other one where they would leave the panel."""
    x, y = frame.at(mark.x, mark.y)
    length, end = CHARACTER * len(mark.text) + 7, frame.left + frame.width
    side = mark.side
    if side == "right" and x + length > end + 14:
        side = "left"
    elif side == "left" and x - length < frame.left and x + length < end:
        side = "right"
    style, right, down = {
        "left": ("end", -9.0, 4.0),
        "right": ("", 9.0, 4.0),
        "above": ("mid", 0.0, -9.0),
        "below": ("mid", 0.0, 20.0),
        "over": ("mid", 0.0, 0.0),
    }[side]
    if side == "over":
        y = frame.top - 5
    if style == "mid":
        x = min(max(x, frame.left + length / 2), end - length / 2)
    return words(x + right, y + down, mark.text, f"tick halo {style}".rstrip())


def _key(mark: Named) -> str:
    """How a mark looks, in 24 x 14 px."""
    colour, shape = each(mark.colour, 1)[0], getattr(mark, "shape", None)
    if isinstance(mark, Boxes | Band):
        style = "band" if isinstance(mark, Band) else "box"
        drawn = f'<path d="M5 1H19V13H5Z" {paint(colour, "fill", style)}/>'
    else:
        drawn = "" if isinstance(mark, Points) else _stroke("M0 7H24", mark)
        if shape is not None:
            path = shape_path(12.0, 7.0, 4.2, each(shape, 1)[0])
            drawn += f'<path d="{path}" {paint(colour, "fill", "dot")}/>'
    return tag("svg", drawn, viewBox="0 0 24 14", class_="key", aria_hidden="true")


def _scale(scale: Scale) -> str:
    """Colours in a row, words under some of them."""
    width, count = 330.0, len(scale.colours)
    step = width / count
    boxes = "".join(
        f'<rect x="{10 + i * step:.1f}" y="0" width="{step + 0.5:.1f}" height="10" '
        f"{paint(colour, 'fill', 'box')}/>"
        for i, colour in enumerate(scale.colours)
    )
    marks = [
        words(10 + (i + 0.5) * step, 24, text, "tick mid")
        for i, text in scale.labels.items()
    ]
    svg = tag("svg", boxes, *marks, viewBox="0 0 350 28", class_="scale")
    return tag("div", tag("span", escape(scale.title)), svg, class_="legend")
