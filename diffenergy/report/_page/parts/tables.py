"""Tables and bars of the page: of anything, of the kernels, of two GPUs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ....estimator import is_training_step
from ....workload import kernel_name
from ..._format import Entries, Entry, digits, longest, percent
from ..._tables.columns import TEXT, Column, Columns, resolved
from ..._tables.kernels import limit_words
from ..._tables.lines import assumed_line
from ..charts.figures import legend, swatch
from ..markup import escape, number, paragraph, si, tag

_FIGURES: Final = (
    Column("energy", "energy_j", "J"),
    Column("time", "time_s", "s"),
    Column("mean power", "avg_power_w", "W"),
    Column("energy per token", "energy_j_per_token", "J"),
    Column("tokens per second", "tokens_per_s", digits),
    Column("time to first token", "ttft_s", "s"),
    Column("time per output token", "tpot_s", "s"),
    Column("SM clock, mean over time", "sm_clock_mhz", "{:.0f} MHz"),
    Column("power limit", "power_limit_w", "{:.0f} W"),
)
"""What two GPUs are compared by: figures with a ratio, then words."""
_WORDS: Final = ("limited_by", "grade")


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
    hidden = tag("caption", escape(caption), class_="hidden")
    whole = (hidden, tag("thead", tag("tr", head)), tag("tbody", body))
    box = tag("table", *whole, id=identity, class_="sortable" if sortable else None)
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
        colour = "c0"
        if colours is not None:
            colour = f"c{colours[name]}" if name in colours else "wait"
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
    keys = zip((swatch("c0"), swatch("second")), names, strict=True)
    hidden = tag("caption", escape(heading), class_="hidden")
    return tag(
        "figure",
        tag("figcaption", tag("h3", escape(heading))),
        "" if beside is None else legend(list(keys)),
        tag("table", hidden, tag("tbody", *rows), class_="bars"),
        paragraph(f"Without a share: {', '.join(nothing)}.") if nothing else "",
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


def kernel_list(summary: Entry, kernels: Entries) -> str:
    """All kernels that are launched, those that take most time first."""
    live, rest = longest(kernels)
    busy = sum(k["count"] * k["time_s"] for k in kernels if k["time_s"])
    columns = [
        ("kernel", kernel_name),
        ("class", "class"),
        *([("phase", "phase")] if len(summary["phases"]) > 1 else []),
        ("launches", "count", "{:g}"),
        ("time", lambda k: k["count"] * k["time_s"], "s"),
        ("share", lambda k: k["count"] * k["time_s"] / busy, percent),
        ("energy", lambda k: k["count"] * k["energy_j"], "J"),
        ("power", lambda k: k["energy_j"] / k["time_s"], "{:.0f} W"),
        ("a launch", "time_s", "s"),
        ("compute", lambda k: k["flop"] / k["time_s"], _rate("FLOP/s")),
        ("DRAM", lambda k: k["dram_bytes"] / k["time_s"], _rate("B/s")),
        ("limited by", limit_words),
    ]
    whose = " of the mean GPU" if is_training_step(summary) else ""
    text = (
        f"{len(live)} kernels{whose}, those that take most time first; press a "
        "heading to sort. Time and energy are of all launches, the share is of the "
        "GPU's time; energy includes idle and leakage power while the kernel runs."
        f"{rest}"
    )
    made = table(
        "kernel-table", "Kernels", columns, live, sortable=True,
        sorted_by=[heading for heading, *_ in columns].index("time"), tall=True,
    )  # fmt: skip
    return paragraph(text) + made


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: si(value, unit) if value else "none"


def compared(a: Entry, b: Entry) -> str:
    """Table of two summaries and their ratios, B / A."""
    rows = []
    for figure in _FIGURES:
        first, second = a.get(figure.value), b.get(figure.value)
        if first is not None and second is not None:
            ratio = quantity(second / first, digits(second / first))
            cells = (_with_interval(figure, side) for side in (a, b))
            rows.append((figure.heading, *cells, ratio))
    rows += [(key.replace("_", " "), a[key], b[key], "") for key in _WORDS]
    columns = ("", a["gpu"], b["gpu"], "ratio")
    caption = f"{a['gpu']} against {b['gpu']}"
    text = (
        f"The same workload; {b['gpu']} with its own default clocks and power limit "
        f"({assumed_line(b)})."
    )
    return table("comparison", caption, columns, rows) + paragraph(text)


def _with_interval(figure: Column, side: Entry) -> Cell:
    cell = filled(figure, side)
    interval = side.get(f"{figure.value}_p5_p95")
    if interval is None:
        return cell
    low, high = (si(x, str(figure.shown)) for x in interval)
    between = tag("span", escape(f"{low} to {high}"), class_="between")
    return Cell(cell.shown + between, cell.value)
