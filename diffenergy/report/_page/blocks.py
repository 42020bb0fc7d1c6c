"""Blocks as HTML, for pages and notebooks."""

import itertools
import re
from collections.abc import Iterable
from typing import Any, Final

from ...charts import Chart, escape, tag, to_svg
from .._blocks import Block, Column, Section, Table, Tile, Tiles, as_text

_TALL: Final = 14
"""Number of rows above which a table scrolls in a box."""
_DENSE: Final = 8
"""Number of columns above which a table has a smaller font."""
_MOST: Final = 1000
"""Maximum number of rows of a table on a page."""
_SORTED: Final = 6
"""Number of rows above which clicking a table's headings sorts it."""
_LABEL: Final = re.compile(r"([a-z][a-zA-Z -]{2,28}): (?=\S)")
"""Matches the label of a line such as "grade: calibrated"."""


def to_html(blocks: Iterable[Block], prefix: str = "") -> str:
    """Return HTML of `blocks`; `prefix` starts the ids of their parts."""
    return _Writer(prefix).all(blocks)


def slug(text: str) -> str:
    """Return `text` as an HTML id.

    >>> slug("Data behind the figures")
    'data-behind-the-figures'
    """
    return re.sub(r"\W+", "-", text.lower()).strip("-")


class _Writer:
    """Writes blocks as HTML; gives every chart a unique id from its title."""

    def __init__(self, prefix: str):
        self._prefix, self._names = prefix, set[str]()

    def _identity(self, chart: Chart) -> str:
        name = f"{self._prefix}chart-{slug(chart.title)}"
        while name in self._names:
            name += "-again"
        self._names.add(name)
        return name

    def all(self, blocks: Iterable[Block]) -> str:
        """Return HTML of blocks; adjacent half-width charts are placed side by side."""
        html = ""
        for half, group in itertools.groupby(blocks, _is_half):
            inner = "".join(map(self.one, group))
            html += tag("div", inner, class_="halves") if half else inner
        return html

    def one(self, block: Block) -> str:
        match block:
            case str():
                return _line(block)
            case Table():
                return _table(block)
            case Tiles():
                return _tiles(block)
            case Chart():
                return to_svg(block, self._identity(block))
            case Section(folded=True):
                return self._folded(block)
            case Section():
                return self._section(block)

    def _section(self, block: Section) -> str:
        identity = self._prefix + slug(block.link or block.title)
        label = f"{identity}-heading"
        return tag(
            "section",
            tag("h2", escape(block.title), id=label),
            _caption(block.note),
            self.all(block.blocks),
            id=identity,
            aria_labelledby=label,
        )

    def _folded(self, block: Section) -> str:
        """HTML of a collapsible section with a field that filters its rows."""
        field = '<input type="search" autocomplete="off">'
        return tag(
            "details",
            tag("summary", escape(block.title)),
            tag("label", "Filter rows ", field, class_="filter"),
            _caption(block.note),
            self.all(block.blocks),
        )


def _caption(text: str) -> str:
    return tag("p", escape(text), class_="caption") if text else ""


def _is_half(block: Block) -> bool:
    return isinstance(block, Chart) and block.half


def _line(text: str) -> str:
    """HTML of a paragraph; a leading label ("grade:") is bold."""
    label = _LABEL.match(text := text.strip())
    if label is None:
        return tag("p", typeset(text), class_="line")
    rest = typeset(text[label.end() :])
    return tag("p", tag("b", escape(label[1])), " ", rest, class_="line")


def typeset(text: str) -> str:
    """Return text as HTML, with real micro signs and arrows.

    >>> typeset("2.000 us < 3.000 uJ: a -> b")
    '2.000 µs &lt; 3.000 µJ: a → b'
    """
    return escape(re.sub(r"(?<=\d )u(?=[sJWg]\b)", "µ", text).replace("->", "→"))


def _tiles(block: Tiles) -> str:
    tiles = [_tile(x) for x in block.entries if x.value is not None]
    style = f"tiles {'small' if block.small else 'large'}"
    return tag("dl", *tiles, class_=style) if tiles else ""


def _tile(tile: Tile) -> str:
    """HTML of a tile: its value and, if known, its 5 to 95 % interval."""
    value, unit = tile.value, tile.shown
    shown = tag("dd", _value(value, as_text(value, unit)), class_="figure")
    name = tag("dt", escape(tile.name))
    if tile.interval is None:
        return tag("div", name, shown)
    low, high = tile.interval
    left, width, dot = (100 * x / (high * 1.08) for x in (low, high - low, value))
    drawn = tag(
        "span",
        tag("span", class_="range", style=f"left:{left:.1f}%;width:{width:.1f}%"),
        tag("span", class_="centre", style=f"left:{dot:.1f}%"),
        class_="interval",
        aria_hidden="true",
    )
    ends = " to ".join(_value(x, as_text(x, unit)) for x in (low, high))
    note = tag("span", "5 to 95 %: ", ends, class_="between")
    return tag("div", name, shown, tag("dd", drawn, note))


def _value(value: Any, text: str) -> str:
    """HTML of a formatted value; numbers carry their exact value as data."""
    if value is None:
        return tag("span", "unavailable", class_="none")
    if _is_number(value):
        return tag("data", typeset(text), value=repr(float(value)))
    return typeset(text)


def _table(block: Table) -> str:
    """HTML of a table in its own scrollable box; numeric columns are right-aligned."""
    rows, sorts = block.rows[:_MOST], len(block.rows) > _SORTED
    columns = [
        (x, "fold" if x.heading in block.fold else "num" if i >= block.left else None)
        for i, x in enumerate(block.columns)
    ]
    head = (_heading(*x, block, sorts) for x in columns)
    body = (tag("tr", *(_cell(*x, row) for x in columns)) for row in rows)
    caption = block.title or block.columns[0].heading or "Figures"
    hidden = tag("caption", escape(caption), class_="hidden")
    whole = (hidden, tag("thead", tag("tr", *head)), tag("tbody", *body))
    looks = [
        "sortable" if sorts else "",
        "dense" if len(columns) > _DENSE else "",
    ]
    tall = len(rows) > _TALL
    # focus lets the keyboard scroll the box
    box = tag(
        "div",
        tag("table", *whole, class_=" ".join(filter(None, looks)) or None),
        class_="box tall" if tall else "box",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
    title = tag("h3", escape(block.title)) if block.title else ""
    rest = len(block.rows) - len(rows)
    return title + box + (_line(f"and {rest} more rows") if rest else "")


def _heading(column: Column, style: str | None, block: Table, sorts: bool) -> str:
    name = escape(column.heading)
    sorts = sorts and name != ""
    falls = "descending" if column.heading == block.sorted_by else "none"
    return tag(
        "th",
        tag("button", name, type="button") if sorts else name,
        scope="col",
        class_=style,
        aria_sort=falls if sorts else None,
    )


def _cell(column: Column, style: str | None, entry: Any) -> str:
    value, text = column.of(entry), column.text(entry)
    shown = _value(value, text)
    exact = repr(float(value)) if _is_number(value) else None
    return tag("td", shown, class_=style, data_value=exact)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
