"""What every chart must be: units, finite numbers, a text for each point."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from diffenergy.charts import (
    Axis,
    Band,
    Boxes,
    Chart,
    Label,
    Line,
    Panel,
    Points,
    Rule,
    house,
    readings_of,
    to_figure,
    to_svg,
)

LEAST_POINTS = 9.0
COUNTS = (
    "rows of", "model evaluations", "multiple of", "requests", "running requests",
    "GPUs", "slot of",
)  # fmt: skip
"""Axes without a unit begin so."""


def check(charts: Mapping[str, Chart]) -> None:
    """All charts of a result; the first one also as a picture."""
    for name, chart in charts.items():
        assert re.fullmatch(r"[a-z][\w.-]*", name) and chart.title
        for panel in chart.panels:
            _check(panel)
        drawn_svg(chart)
    first = next(iter(charts.values()))
    assert first.panels
    drawn(to_figure(first))


def _check(panel: Panel) -> None:
    for axis in (panel.x, panel.y):
        _check_units(axis)
    places = {(float(x), float(y)) for x, y, _ in readings_of(panel)}
    assert places
    for x, y, text in readings_of(panel):
        assert math.isfinite(x) and math.isfinite(y) and text.strip()
    for mark in panel.marks:
        for values in columns(mark):
            known = [x for x in values if not math.isnan(x)]
            assert isinstance(mark, Line) or len(known) == len(values)
            assert all(map(math.isfinite, known))
        sizes = {len(x) for x in columns(mark)}
        assert len(sizes) == 1
        if (
            isinstance(mark, Points)
            or isinstance(mark, Line)
            and mark.shape is not None
        ):
            pairs = zip(mark.x, mark.y, strict=True)
            own = {(float(x), float(y)) for x, y in pairs if not math.isnan(y)}
            assert own <= places, "a point without a text"


def _check_units(axis: Axis) -> None:
    named = axis.names or axis.unit or axis.title.startswith(COUNTS)
    assert named, axis


def columns(mark: object) -> Sequence[Sequence[float]]:
    """Numbers of a mark."""
    match mark:
        case Line() | Points():
            return mark.x, mark.y
        case Boxes():
            return mark.left, mark.right, mark.low, mark.high
        case Band():
            return mark.x, mark.low, mark.high
        case Rule():
            return ([mark.at],)
        case Label():
            return ([mark.x], [mark.y])
    raise AssertionError(mark)


def drawn_svg(chart: Chart) -> ElementTree.Element:
    """The HTML of a chart: well formed, every number known, every point in sight."""
    text = to_svg(chart, "chart")
    figure = ElementTree.fromstring(text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert not re.search(r"\b(nan|inf|None)\b", re.sub(r">[^<]*<", "><", svg))
    stages = [x for x in figure.iter("div") if x.get("class") == "stage"]
    assert len(stages) == len(chart.panels)
    scripts = {x.get("id"): json.loads(x.text or "") for x in figure.iter("script")}
    for stage, panel in zip(stages, chart.panels, strict=True):
        data = scripts[stage.get("data-points")]
        which = data["which"] or range(len(data["texts"]))
        said = [data["texts"][i] for i in which]
        assert said == [reading.text for reading in readings_of(panel)]
        assert data["read"] == ("span" if panel.spans else "nearest")
        for svg in stage.findall("svg"):
            name = (svg.get("class") or "").split()[-1]
            _, _, width, height = map(float, (svg.get("viewBox") or "").split())
            assert len(data[name]) == 2 * len(said)
            assert all(0 <= x <= width for x in data[name][::2])
            assert all(0 <= y <= height for y in data[name][1::2])
    return figure


def drawn(figure: Figure) -> Figure:
    """The figure, laid out: no text is small or cut off."""
    with house():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    renderer = canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_text().strip() and text.get_visible():
            assert float(text.get_fontsize()) >= LEAST_POINTS, text.get_text()
            box = text.get_window_extent(renderer)
            inside = box.x0 >= -2 and box.x1 <= width + 2
            assert inside and box.y0 >= -2 and box.y1 <= height + 2, text.get_text()
    return figure


def words(chart: Chart) -> str:
    """Every text that both drawers write."""
    result = [chart.title]
    for panel in chart.panels:
        names = [
            mark.text if isinstance(mark, Label) else mark.name for mark in panel.marks
        ]
        axes = [panel.x.title, panel.y.title, *panel.y.names]
        result += [panel.title, *axes, *names, *(x.text for x in readings_of(panel))]
        if panel.scale is not None:
            result += [panel.scale.title, *panel.scale.labels.values()]
    return " | ".join(filter(None, result))


def bars(panel: Panel) -> list[float]:
    """Lengths of all boxes."""
    return [
        right - left if left >= 0 else left
        for mark in panel.marks
        if isinstance(mark, Boxes)
        for left, right in zip(mark.left, mark.right, strict=True)
    ]


def only(panel: Panel, name: str) -> Line | Points | Boxes | Band | Rule:
    """The mark of that name."""
    (result,) = (x for x in panel.marks if not isinstance(x, Label) and x.name == name)
    return result
