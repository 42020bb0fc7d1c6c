"""Draws a chart as HTML: a figure with SVG for wide and for narrow screens."""

from ._data import Chart


def to_svg(chart: Chart, identity: str) -> str:
    """HTML of a `<figure>` whose id is `identity`; see `page.css` and `page.js`."""
    raise NotImplementedError(f"{identity}: {chart.title}")
