"""Tables and bars of the page."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..._format import percent
from ..._tables.columns import TEXT, Column, Columns, resolved
from ..charts.figures import swatch
from ..markup import escape, number, si, tag


class Cell(NamedTuple):
    """What a cell shows (markup) and what it is sorted by; text if None."""

    shown: str
    value: int | float | None = None


def plain(text: Any) -> Cell:
    """A cell of text."""
    return Cell(escape(text))


def quantity(value: int | float | None, text: str) -> Cell:
    """A cell of a figure."""
    return Cell(number(value, text), value)


def table(
    identity: str | None,
    caption: str,
    columns: Columns,
    entries: Iterable[Any],
    *,
    sortable: bool = False,
    sorted_by: int | None = None,
    tall: bool = False,
) -> str:
    """A table in a box of its own that scrolls; columns of figures stand right.

    A value is a figure if its column says how it is shown, else text; or it is a cell.
    `sorted_by`: the column that already falls from row to row.
    """
    made = resolved(columns)
    rows = [[filled(column, entry) for column in made] for entry in entries]
    right = [any(row[i].value is not None for row in rows) for i in range(len(made))]
    head = "".join(
        tag(
            "th",
            tag("button", name, type="button") if sortable else name,
            scope="col",
            class_="num" if right[i] else None,
            aria_sort="descending" if i == sorted_by else "none" if sortable else None,
        )
        for i, name in enumerate(escape(column.heading) for column in made)
    )
    body = "".join(tag("tr", *map(_cell, row, right)) for row in rows)
    box = tag(
        "table",
        tag("caption", escape(caption), class_="hidden"),
        tag("thead", tag("tr", head)),
        tag("tbody", body),
        id=identity,
        class_="sortable" if sortable else None,
    )
    # focus lets the keyboard scroll the box
    return tag(
        "div",
        box,
        class_="box tall" if tall else "box",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def filled(column: Column, entry: Any) -> Cell:
    """The cell of an entry: text as it is, a figure beside its exact value."""
    value, shown = column.of(entry), column.shown
    if isinstance(value, Cell):
        return value
    if shown == TEXT:
        return plain("unavailable" if value is None else value)
    is_unit = isinstance(shown, str) and "{" not in shown
    return quantity(value, si(value, str(shown)) if is_unit else column.text(entry))


def _cell(cell: Cell, right: bool) -> str:
    value = None if cell.value is None else repr(float(cell.value))
    return tag("td", cell.shown, class_="num" if right else None, data_value=value)


def bars(
    identity: str,
    heading: str,
    parts: Mapping[str, float],
    unit: str,
    colours: Mapping[str, int] | None = None,
    beside: Mapping[str, float] | None = None,
    names: tuple[str, str] = ("", ""),
) -> str:
    """Horizontal bars, the largest first, each with value and share of the sum; with
    those of a second GPU `beside` them (`names`: of both). Parts of nothing are named
    below."""
    both = beside or {}
    order = sorted(parts, key=lambda name: (-parts[name], -both.get(name, 0.0)))
    live = [x for x in order if parts[x] > 0 or both.get(x, 0.0) > 0]
    most = max([*parts.values(), *both.values(), 1e-300])
    rows = []
    for name in live:
        colour = "c0" if colours is None else f"c{colours.get(name, 'wait')}"
        colour = colour.replace("cwait", "wait")
        sides = [(parts[name], sum(parts.values()), colour)]
        if beside is not None:
            sides.append((both.get(name, 0.0), sum(both.values()), "second"))
        rows.append(
            tag(
                "tr",
                tag("th", escape(name), scope="row"),
                tag("td", *(_bar(v / most, style) for v, _, style in sides)),
                tag("td", *(_value(v, unit) for v, _, _ in sides), class_="num"),
                tag("td", *(_share(v, whole) for v, whole, _ in sides), class_="num"),
            )
        )
    nothing = [name for name in order if name not in live]
    rest = f"Without a share: {', '.join(nothing)}." if nothing else ""
    key = ""
    if beside is not None:
        first = "c0" if colours is None else "several"
        items = zip((first, "second"), names, strict=True)
        key = tag(
            "ul",
            *(tag("li", swatch(style), " ", escape(name)) for style, name in items),
            class_="legend",
        )
    return tag(
        "figure",
        tag("figcaption", tag("h3", escape(heading))),
        key,
        tag(
            "table",
            tag("caption", escape(heading), class_="hidden"),
            tag("tbody", *rows),
            class_="bars",
        ),
        tag("p", escape(rest), class_="caption") if rest else "",
        class_="chart",
        id=identity,
    )


def _bar(share: float, style: str) -> str:
    width = max(100 * share, 0.15) if share > 0 else 0.0
    return tag("span", class_=f"bar {style}", style=f"width:{width:.2f}%")


def _value(value: float, unit: str) -> str:
    return tag("div", number(value, si(value, unit)))


def _share(value: float, whole: float) -> str:
    return tag("div", escape(percent(value / whole) if whole > 0 else "unavailable"))
