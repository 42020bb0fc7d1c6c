"""What every picture must be: readable, labelled, nothing cut off."""

import re
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

LEAST_POINTS = 9.0
_NUMBER = re.compile(r"[−-]?[\d.,]+")
_COUNTS = ("rows of", "model evaluations", "multiple of", "price")
"""Axes without a unit begin so."""


def drawn(figure: Figure) -> Figure:
    """The figure, laid out; checks its texts and axes."""
    from diffenergy.report._charts import style

    with style.house():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    renderer = canvas.get_renderer()
    hidden = _out_of_view(figure)
    width, height = figure.bbox.width, figure.bbox.height
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if not (text.get_text().strip() and text.get_visible()):
            continue
        assert float(text.get_fontsize()) >= LEAST_POINTS, text.get_text()
        if id(text) in hidden:
            continue
        box = text.get_window_extent(renderer)
        inside = box.x0 >= -1 and box.x1 <= width + 1
        assert inside and box.y0 >= -1 and box.y1 <= height + 1, text.get_text()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            _check_units(axis)
    return figure


def words(figure: Figure) -> str:
    """Every text of a figure."""
    return " | ".join(
        text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)
    )


def widths(axes: Any) -> list[float]:
    """Of the bars that lie."""
    return [bar.get_width() for bar in axes.patches]


def heights(axes: Any) -> list[float]:
    """Of the bars that stand."""
    return [bar.get_height() for bar in axes.patches]


def points(line: Any) -> np.ndarray:
    """x and y of a line."""
    return np.array([line.get_xdata(), line.get_ydata()], float)


def corners(bars: Any) -> np.ndarray:
    """Of the first rectangle of a collection."""
    return bars.get_paths()[0].vertices


def spans(axes: Any) -> np.ndarray:
    """Ends of all error bars, rising."""
    lines = [part for bars in axes.collections for part in bars.get_segments()]
    return np.sort(np.concatenate(lines)[:, 0])


def _out_of_view(figure: Figure) -> set[int]:
    """Texts of ticks beyond the limits, which exist but are not shown."""
    found = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.majorTicks, *axis.minorTicks):
                if not low <= tick.get_loc() <= high:
                    found |= {id(tick.label1), id(tick.label2)}
    return found


def _check_units(axis: Any) -> None:
    """Ticks that are bare numbers need a unit in the name of their axis, or a word
    for what is counted."""
    labels = [tick.get_text() for tick in axis.get_ticklabels() if tick.get_visible()]
    bare = [x for x in labels if x != "0" and _NUMBER.fullmatch(x)]
    if bare:
        name = axis.get_label().get_text()
        shared = axis.axes.get_shared_x_axes().get_siblings(axis.axes)
        if not name and axis.axis_name == "x":
            name = max((x.get_xlabel() for x in shared), key=len)
        assert re.search(r",\s\S", name) or name.startswith(_COUNTS), (name, bare)
