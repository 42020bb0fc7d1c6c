"""One chart of all marks, drawn as SVG and with matplotlib."""

import dataclasses
import json
import re

import numpy as np
import pytest
from chart_checks import drawn, drawn_svg

from diffenergy import charts
from diffenergy.charts import Axis, Boxes, Chart, Line, Panel, Reading

HOSTILE = "</script><b>&\"'"
X, Y = Axis("time", "s", low=0.0, high=10.0), Axis("power", "W", low=0.0, high=100.0)
MARKS = [
    Boxes([0, 2.0], [2.0, 4.0], [0, 0], [50.0, 25.0], "work", 2, texts=["one", "2"]),
    charts.Band([0.0, 10.0], [10.0, 20.0], [30.0, 40.0], "range", 5),
    Line([0.0, 5.0, 10.0], [0.0, 50.0, float("nan")], "curve", 1, dashed=True, shape=2),
    Line([0.0, 5.0], [10.0, 20.0], "", "#123456", step=True),
    charts.Points([5.0], [50.0], "best", "ink", 7, 8.0),
    charts.Rule(75.0, "limit"),
    charts.Rule(5.0, axis="x", dashed=False),
    charts.Label(5.0, 50.0, HOSTILE, "above"),
]
POINTS = ((0.0, 50.0, "half"), (10.0, 100.0, "all"), (5.0, 0.0, "half"))
READINGS = [Reading(*point) for point in POINTS]
PANEL = Panel(X, Y, MARKS, READINGS, "Panel", spans=True)
NAMES = ["work", "range", "curve", "best", "limit"]


def test_svg():
    """Data of 10 s and 100 W on the plot of a wide and of a narrow drawing."""
    figure = drawn_svg(Chart("Title " + HOSTILE, [PANEL], "Caption"))
    assert [x.text for x in figure.iter("h3")] == ["Title " + HOSTILE]
    assert ["".join(x.itertext()).strip() for x in figure.iter("li")] == NAMES
    (data,) = (json.loads(x.text or "") for x in figure.iter("script"))
    assert data["texts"] == ["half", "all"] and data["which"] == [0, 1, 0]
    wide = next(x for x in figure.iter("svg") if "wide" in (x.get("class") or ""))
    (left, middle, right, top, across, bottom) = data["wide"]
    assert across - left == pytest.approx((right - left) / 2)
    assert middle - top == pytest.approx((bottom - top) / 2, abs=0.1)
    paths = {x.get("class"): x.get("d") or "" for x in wide.iter("path")}
    boxes = paths["box fill-c2"].strip("Z").split("Z")
    ends = [[float(n) for n in re.findall(r"[\d.]+", box)] for box in boxes]
    # M left floor V top H right V floor: 50 W and 25 W of 100, 2 s of 10
    tops = [middle, bottom - (bottom - top) / 4]
    assert [x[2] for x in ends] == pytest.approx(tops, abs=0.1)
    assert [x[3] - x[0] for x in ends] == pytest.approx([0.2 * (right - left)] * 2)
    assert paths["curve stroke-c1"].count("L") == 1  # it ends at what is not known
    assert "H" in paths["curve"] and paths["curve"].count("L") == 0
    words = [x.text for x in wide.iter("text")]
    assert "time, s" in words and "power, W" in words and HOSTILE in words
    assert "one" in words and "100" in words


def test_matplotlib():
    (axes,) = drawn(charts.to_figure(Chart("Title", [PANEL]))).axes
    legend = axes.get_legend()
    assert legend is not None and [x.get_text() for x in legend.get_texts()] == NAMES
    assert axes.get_title("left") == "Panel" and axes.get_xlabel() == "time, s"
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.0, 10.0), (0.0, 100.0))
    boxes = next(x for x in axes.collections if len(x.get_paths()) == 2)
    corners = [np.asarray(path.vertices) for path in boxes.get_paths()]
    assert [tuple(x.max(axis=0)) for x in corners] == [(2.0, 50.0), (4.0, 25.0)]
    curve, steps, level, finish = axes.get_lines()
    assert curve.get_linestyle() == "--" and curve.get_marker() == "^"
    assert steps.get_drawstyle() == "steps-post" and steps.get_color() == "#123456"
    assert np.all(np.asarray(level.get_ydata()) == 75.0)
    assert np.all(np.asarray(finish.get_xdata()) == 5.0)
    assert {"one", "2", HOSTILE} <= {x.get_text() for x in axes.texts}


def test_panels_of_one_axis_share_it():
    """The picture names it once, and both have the ends of the longer one."""
    x = Axis("time", "s", zero=True)
    panels = [
        Panel(x, Y, [Line([0.0, end], [0.0, 1.0])], [Reading(end, 1.0, "end")])
        for end in (5.0, 10.0)
    ]
    first, second = charts.to_figure(Chart("Two", panels)).axes
    assert first.get_xlim() == second.get_xlim() and first.get_xlim()[1] >= 10.0
    assert (first.get_xlabel(), second.get_xlabel()) == ("", "time, s")
    both = charts.stacked("All", [Chart("A", [panels[0]]), Chart("B", [panels[1]])])
    assert [panel.title for panel in both.panels] == ["A", "B"]
    assert len(drawn_svg(dataclasses.replace(both, columns=2)).findall(".//h4")) == 2


def test_charts_without_panels_say_why():
    missing = Chart("Roofline", [], "no kernel has FLOP.")
    assert "unavailable: no kernel has FLOP." in charts.to_svg(missing, "x")
    with pytest.raises(ValueError, match="Roofline: no kernel has FLOP."):
        charts.to_figure(missing)


def test_categories_and_scales():
    scale, shade = charts.ramp("memory, GB", 10.0, 20.0)
    marks = charts.bars(
        [3.0, -1.0], ["3 s", "-1 s"], name="time", colour=shade([10.0, 20.0])
    )
    readings = [Reading(3.0, 0.0, "3 s"), Reading(-1.0, 1.0, "-1 s")]
    names = Axis(names=["first", "two\nlines"])
    panel = Panel(Axis("change", "%"), names, marks, readings, scale=scale)
    figure = drawn(charts.to_figure(Chart("Bars", [panel])))
    axes, strip = figure.axes
    assert [x.get_text() for x in axes.get_yticklabels()] == ["first", "two\nlines"]
    assert axes.get_ylim() == (1.5, -0.5)  # the first on top
    assert "12" in [x.get_text() for x in strip.get_yticklabels()]
    html = charts.to_svg(Chart("Bars", [panel]), "x")
    for words in ("memory, GB", str(scale.colours[0]), "fill:#472d7b"):
        assert words in html
    drawn_svg(Chart("Bars", [panel]))


@pytest.mark.parametrize(("texts", "shown"), [(("1", "22"), False), (("1", ""), True)])
def test_texts_in_boxes_are_written_where_they_fit(texts, shown: bool):
    """Not in some of many: a gap would look like a meaning."""
    boxes = Boxes([0.0, 5.0], [5.0, 5.1], [0.0, 0.0], [9.0, 9.0], texts=texts)
    panel = Panel(X, Axis("power", "W", low=0.0, high=10.0), [boxes], READINGS)
    (axes,) = charts.to_figure(Chart("T", [panel])).axes
    written = ">1</text>" in charts.to_svg(Chart("T", [panel]), "x")
    assert bool(axes.texts) == written == shown


def test_a_picture_stands_alone():
    """Rules of its own class alone, so that a notebook keeps its looks."""
    text = charts.to_picture(
        Chart("Title", [PANEL, PANEL, PANEL], "Caption", columns=2)
    )
    rules = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert rules is not None and "@media" not in rules[1]
    selectors = re.findall(r"(?:^|})\s*([^{}]+){", rules[1])
    assert all(".de-picture" in x for x in selectors)
    assert text.startswith("<svg") and "<script" not in text


def test_both_themes_have_every_colour():
    light, dark = charts.stylesheet().split("@media", 1)
    names = {f"--c{i}" for i in range(8)} | {"--ink", "--soft", "--light", "--grid"}
    for sheet in (light, dark):
        assert names <= set(re.findall(r"(--\w+):", sheet))
    for colour in [*range(8), "ink", "soft", "light"]:
        name = f"c{colour}" if isinstance(colour, int) else colour
        assert f".fill-{name} {{" in dark and f".stroke-{name} {{" in dark
    for count in (1, 8, 9, 128):
        result = charts.colours(count)
        assert len(set(result)) == len(result) == count


def test_what_is_put_in_stands_for_itself():
    assert charts.tag("p", "", title=HOSTILE) == (
        '<p title="&lt;/script&gt;&lt;b&gt;&amp;&quot;&#x27;"></p>'
    )
    assert "</script><b>" not in charts.embedded("x", {"a": HOSTILE})
