"""Draws a chart with matplotlib, in the house style."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ._data import Band, Boxes, Chart, Colour, Label, Line, Mark, Panel, Points, Rule
from ._layout import (
    CHARACTER,
    Named,
    Range,
    data_height,
    each,
    fitting,
    legends,
    ranges,
    shortened,
)
from ._style import (
    BAND,
    BLACK,
    GREY,
    LIGHT,
    MARKERS,
    PALETTE,
    SMALL,
    WIDTH,
    canvas,
    headline,
    house,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STAR: Final = 7
_NAMED: Final = {"ink": BLACK, "soft": GREY, "light": LIGHT}
_INCH: Final = 105.0
"""px of the page that take an inch."""
_LEGEND_ROW: Final = 13.4
"""Points of a row of the legend."""
_LETTER: Final = 0.067
"""Inches of a letter of small text, about."""
_EDGED: Final = 0.05
"""Inches of a box that has room for an edge."""
_LONGEST: Final = 34
"""Characters of the name of a category."""


@house()
def to_figure(chart: Chart) -> "Figure":
    """A figure in the house style. Raises `ValueError` for a chart without panels."""
    if not chart.panels:
        raise ValueError(f"{chart.title}: {chart.caption}")
    columns, panels = chart.columns, list(chart.panels)
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    across = (WIDTH - 0.9 * columns) / columns
    # panels below each other begin where the longest name of them ends
    left = [max(map(_left, panels[j::columns]), default=0.0) for j in range(columns)]
    flat = [
        _Legend(panel, marks, _data_width(panel, across - left[i % columns]))
        for i, (panel, marks) in enumerate(zip(panels, legends(panels), strict=True))
    ]
    keys = [flat[i : i + columns] for i in range(0, len(panels), columns)]
    heights = [
        max(_inches(panel) + one.inches for panel, one in zip(*both, strict=True))
        for both in zip(rows, keys, strict=True)
    ]
    figure = canvas(sum(heights) + 0.45)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            last = j == len(row) - 1
            axes = figure.add_subplot(grid[i, j:] if last else grid[i, j])
            width = across * columns if last and not j else across
            beside = _sharing(panels, i) if columns == 1 else []
            room = _data_width(panel, width - left[j])
            _draw(panel, axes, room, keys[i][j], beside)
            if beside and panel is not beside[-1]:  # the last one names the axis
                axes.set_xlabel("")
                axes.tick_params(axis="x", labelbottom=False)
    headline(figure, chart.title)
    return figure


def _sharing(panels: Sequence[Panel], i: int) -> Sequence[Panel]:
    """Panels above and below with the same x axis as panel `i`, itself among them."""
    first = last = i
    while first > 0 and panels[first - 1].x == panels[i].x:
        first -= 1
    while last + 1 < len(panels) and panels[last + 1].x == panels[i].x:
        last += 1
    return panels[first : last + 1]


def _inches(panel: Panel) -> float:
    """Height of the data and of the words at the x axis."""
    return data_height(panel) / _INCH + 0.5


class _Legend:
    """Names of marks in rows above the data, beside the title if there is room."""

    def __init__(self, panel: Panel, marks: Sequence[Named], room: float):
        self.marks, names = marks, [mark.name for mark in marks]
        widths = [0.45 + _LETTER * len(name) for name in names]
        self.beside = 1.3 * _LETTER * len(panel.title) + sum(widths) < room
        self.columns = len(names) if self.beside else 1
        for columns in range(len(names), 1, -1) if not self.beside else ():
            size, longer = divmod(len(names), columns)  # as matplotlib fills columns
            ends = [i * size + min(i, longer) for i in range(columns + 1)]
            pairs = zip(ends, ends[1:], strict=False)
            if sum(max(widths[i:j]) for i, j in pairs) < room:
                self.columns = columns
                break
        self.rows = 0 if self.beside else math.ceil(len(names) / self.columns)
        over = any(isinstance(x, Label) and x.side == "over" for x in panel.marks)
        self.low = 14.0 if over else 0.0  # points between the data and the legend
        self.height = data_height(panel) / _INCH
        self.inches = 0.25 + (_LEGEND_ROW * self.rows + self.low) / 72


def _left(panel: Panel) -> float:
    """Inches of the names on the left, beyond the room of short ticks."""
    lines = [part for name in panel.y.names for part in name.split("\n")]
    longest = min(max(map(len, lines), default=0), _LONGEST)
    return max(_LETTER * longest - 0.3, 0.0)


def _data_width(panel: Panel, across: float) -> float:
    """Inches of the data, of `across` between the names and the right edge."""
    return across - (0.9 if panel.scale is not None else 0.0)


def _draw(
    panel: Panel, axes: "Axes", across: float, legend: _Legend, beside: Sequence[Panel]
) -> None:
    """`across`: inches of the data. `beside`: panels that have the same x axis."""
    height = data_height(panel)
    x, y = ranges(panel, across / _LETTER * CHARACTER, height, beside)
    for axis, range_, name in ((axes.xaxis, x, "x"), (axes.yaxis, y, "y")):
        _scale_axis(axes, axis, range_, name)
    if panel.y.names:
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    inch = across / (x.high - x.low) if not x.log else 0.0
    for mark in panel.marks:
        _draw_mark(mark, axes, inch, height / _INCH / abs(y.high - y.low))
    if panel.title:
        pad = 5.0 + legend.low + _LEGEND_ROW * legend.rows
        axes.set_title(panel.title, pad=pad)
    if legend.marks:
        _draw_legend(axes, legend)
    if panel.scale is not None:
        _draw_scale(panel, axes)


def _scale_axis(axes: "Axes", axis: Any, range_: Range, name: str) -> None:
    ends = (range_.high, range_.low) if range_.down else (range_.low, range_.high)
    axes.set(**{f"{name}scale": "log" if range_.log else "linear", f"{name}lim": ends})
    axis.minorticks_off()
    texts = [
        "\n".join(shortened(part, _LONGEST) for part in text.split("\n"))
        for _, text in range_.ticks
    ]
    axis.set_ticks([value for value, _ in range_.ticks], texts)
    axis.set_label_text(range_.title)


def _draw_legend(axes: "Axes", legend: _Legend) -> None:
    place = (1.0 if legend.beside else 0.0, 1.0 + legend.low / 72 / legend.height)
    axes.legend(
        handles=[_handle(mark) for mark in legend.marks],
        loc="lower right" if legend.beside else "lower left",
        bbox_to_anchor=place, ncols=legend.columns,
        frameon=False, borderpad=0.2, borderaxespad=0.0, handlelength=1.6,
        columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip


def _handle(mark: Named) -> Any:
    """How a mark looks in a legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour, name = _colour(each(mark.colour, 1)[0]), mark.name
    match mark:
        case Boxes():
            return Patch(color=colour, label=name)
        case Band():
            return Patch(color=colour, label=name, alpha=BAND, linewidth=0)
        case Points():
            marker = MARKERS[each(mark.shape, 1)[0] % len(MARKERS)]
            look = {"marker": marker, "markersize": 9 if marker == "*" else 6}
            return Line2D([], [], color=colour, linestyle="", label=name, **look)
    look = {"linestyle": "--" if mark.dashed else "-", "linewidth": 1.2}
    if isinstance(mark, Line):
        marker = None if mark.shape is None else MARKERS[mark.shape % len(MARKERS)]
        look |= {"marker": marker, "markersize": 5, "linewidth": 0.8 * mark.width}
    return Line2D([], [], color=colour, label=name, **look)


def _draw_scale(panel: Panel, axes: "Axes") -> None:
    """The colours in a strip on the right."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    scale = panel.scale
    assert scale is not None
    colours = [_colour(x) for x in scale.colours]
    whole = Normalize(-0.5, len(colours) - 0.5)
    figure: Any = axes.figure
    bar = figure.colorbar(
        ScalarMappable(whole, ListedColormap(colours)), ax=axes, pad=0.02, aspect=30
    )
    bar.set_ticks(list(scale.labels), labels=list(scale.labels.values()))
    bar.set_label(scale.title)


def _colour(colour: Colour) -> str:
    if isinstance(colour, int):
        return PALETTE[colour % len(PALETTE)]
    return _NAMED.get(colour, colour)


def _draw_mark(mark: Mark, axes: "Axes", inch: float, row: float) -> None:
    """`inch`: inches of a unit of x; `row`: of a unit of y."""
    match mark:
        case Line():
            shape = None if mark.shape is None else MARKERS[mark.shape % len(MARKERS)]
            axes.plot(
                mark.x, mark.y, color=_colour(mark.colour), linewidth=0.8 * mark.width,
                linestyle="--" if mark.dashed else "-", marker=shape,
                markersize=max(4.5, 1.4 * mark.width),
                drawstyle="steps-post" if mark.step else "default",
            )  # fmt: skip
        case Points():
            _draw_points(mark, axes)
        case Boxes():
            _draw_boxes(mark, axes, inch, row)
        case Band():
            axes.fill_between(
                mark.x, mark.low, mark.high, color=_colour(mark.colour), alpha=BAND,
                linewidth=0,
            )  # fmt: skip
        case Rule():
            draw = axes.axhline if mark.axis == "y" else axes.axvline
            draw(
                mark.at, color=_colour(mark.colour), linewidth=1.2,
                linestyle="--" if mark.dashed else "-", 
            )  # fmt: skip
        case Label():
            _draw_label(mark, axes)


def _draw_points(mark: Points, axes: "Axes") -> None:
    """Points of one shape at a time, in one collection each."""
    count = len(mark.x)
    columns = (mark.colour, mark.shape, mark.size)
    colours, shapes, sizes = (each(x, max(count, 1)) for x in columns)
    edge, width = ("black", 1.2) if mark.outlined else ("white", 0.4)
    width = width if mark.outlined or max(sizes) > 3 else 0.0
    for shape in dict.fromkeys(shapes):
        mine = [i for i in range(count) if shapes[i] == shape]
        bigger = 2.2 if shape == _STAR else 1.0  # little of a star's circle is filled
        axes.scatter(
            [mark.x[i] for i in mine], [mark.y[i] for i in mine],
            s=[bigger * (1.5 * sizes[i]) ** 2 for i in mine] or 40,
            color=[_colour(colours[i]) for i in mine] or _colour(colours[0]),
            marker=MARKERS[shape % len(MARKERS)], alpha=0.9, zorder=3,
             edgecolors=edge, clip_on=False, linewidths=width,
        )  # fmt: skip


def _draw_boxes(mark: Boxes, axes: "Axes", inch: float, row: float) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    left, right, low, high = (
        np.asarray(x, float) for x in (mark.left, mark.right, mark.low, mark.high)
    )
    count = len(left)
    across = np.stack([left, right, right, left], axis=1)
    down = np.stack([low, low, high, high], axis=1)
    rgb = np.array([to_rgb(_colour(x)) for x in each(mark.colour, count)])
    rgb = rgb.reshape(-1, 3)
    pale = np.asarray(each(mark.pale, count), float)[:, None]
    edged = mark.edged and count and np.median(right - left) * inch > _EDGED
    look: dict[str, Any] = {"edgecolors": "none", "linewidths": 0.0}
    look |= {"antialiaseds": False, "snap": False}  # else slits between neighbours
    if edged:
        look = {"edgecolors": "white", "linewidths": 0.5, "snap": True}
    axes.add_collection(
        PolyCollection(
            list(np.stack([across, down], axis=2)),
            facecolors=rgb + pale * (1 - rgb),  zorder=1.5,
            **look,
        ),
        autolim=False,
    )  # fmt: skip
    room = ((right - left) * inch / _LETTER).tolist()  # letters
    tall = bool(count) and abs(high[0] - low[0]) * row > 0.13
    for i in fitting(mark.texts, room) if tall else ():
        axes.text(
            (left[i] + right[i]) / 2, (low[i] + high[i]) / 2, mark.texts[i],
            color="white", ha="center", va="center", fontsize=SMALL,
        )  # fmt: skip


def _draw_label(mark: Label, axes: "Axes") -> None:
    """Words on their side, or on the other one where they would leave the panel."""
    side, length = mark.side, CHARACTER * len(mark.text)
    low, high = axes.transAxes.transform([(0, 0), (1, 1)])[:, 0]
    place = axes.transData.transform((mark.x, mark.y))[0]
    if side == "right" and place + length > high + 14:
        side = "left"
    elif side == "left" and place - length < low and place + length < high:
        side = "right"
    ends = "left" if place - length / 2 < low else "center"
    ends = "right" if place + length / 2 > high else ends
    offset, ha, va = {
        "left": ((-6, 0), "right", "center"),
        "right": ((6, 0), "left", "center"),
        "above": ((0, 6), ends, "bottom"),
        "below": ((0, -9), ends, "top"),
        "over": ((0, 3), ends, "bottom"),
    }[side]
    over = side == "over"
    axes.annotate(
        mark.text, (mark.x, 1.0 if over else mark.y), offset,
        xycoords=("data", "axes fraction") if over else "data",
        textcoords="offset points", ha=ha, va=va, fontsize=SMALL, zorder=4,
        annotation_clip=False,
        bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0.0, "pad": 0.5},
    )  # fmt: skip
