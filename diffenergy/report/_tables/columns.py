"""Tables by columns: what stands above, where a value is found, how it is shown; and
tables as HTML, for a notebook."""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .._format import UNKNOWN, si

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

Columns = Sequence[str | tuple[Any, ...]]
"""Fields of a `Column` each, or a heading alone: of entries that are rows of values."""

TEXT: Final = "{}"
"""Shows a value as it is."""

_WIDTH: Final = 100
_GAP: Final = 3
"""Characters between two columns."""
_FOLDED: Final = 15
"""Least characters that a column which breaks over lines is left, if it has them."""
_PRE: Final = '<pre style="line-height:1.25;font-family:monospace">{code}</pre>'


class Column(NamedTuple):
    """`value`: key of an entry, or a function of the entry. `shown`: a unit (the number
    with its SI prefix), a format such as "{:.1f} W", or a function of the value."""

    heading: str
    value: Any
    shown: str | Callable[[Any], str] = TEXT

    def of(self, entry: Any) -> Any:
        """The value of an entry."""
        return self.value(entry) if callable(self.value) else entry[self.value]

    def text(self, entry: Any) -> str:
        """What stands in the row of an entry; a dash for None."""
        value = self.of(entry)
        if value is None:
            return UNKNOWN
        if callable(self.shown):
            return self.shown(value)
        if "{" in self.shown:
            return self.shown.format(value)
        return si(value, self.shown)


def resolved(columns: Columns) -> list[Column]:
    """The columns in full."""
    return [
        Column(given, number) if isinstance(given, str) else Column(*given)
        for number, given in enumerate(columns)
    ]


def table(
    columns: Columns,
    entries: Iterable[Any],
    *,
    left: int = 1,
    title: str | None = None,
    fold: Sequence[str] = (),
) -> "Table":
    """Plain table, readable at 80 characters, with a row for each of `entries`.

    The first `left` columns are text and the others numbers. Columns in `fold` break
    over lines where the width does not suffice; the others never do.
    """
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD, show_edge=False, title=title, title_justify="left",
        title_style="bold", pad_edge=False, padding=(0, 1),
    )  # fmt: skip
    shown = resolved(columns)
    for number, column in enumerate(shown):
        folds = column.heading in fold
        made.add_column(
            column.heading,
            justify="left" if number < left or folds else "right",
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
        )
    for entry in entries:
        made.add_row(*(column.text(entry) for column in shown))
    return made


class Narrowing:
    """A table that leaves columns out where the terminal is too narrow for all.

    `spare`: headings of those that go, the first one first; `given`: as of `table`.
    """

    def __init__(
        self,
        columns: Columns,
        entries: Iterable[Any],
        spare: Sequence[str],
        **given: Any,
    ):
        self._columns, self._entries = resolved(columns), list(entries)
        self._spare, self._given = spare, dict[str, Any](given)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions"):
        """The table with as many columns as fit."""
        kept, spare = list(self._columns), list(self._spare)
        while spare and self._need(kept) > options.max_width:
            gone = spare.pop(0)
            kept = [column for column in kept if column.heading != gone]
        first = self._columns[: self._given.get("left", 1)]
        left = sum(column in kept for column in first)
        yield table(kept, self._entries, **{**self._given, "left": left})

    def _need(self, columns: Sequence[Column]) -> int:
        """Least characters that the columns take with whole headings and numbers."""
        widths = []
        for column in columns:
            texts = (column.heading, *map(column.text, self._entries))
            longest = max(len(line) for text in texts for line in text.split("\n"))
            folds = column.heading in self._given.get("fold", ())
            widths.append(min(longest, _FOLDED) if folds else longest)
        return sum(widths) + _GAP * (len(widths) - 1)


def html(parts: Iterable[Any]) -> str:
    """Lines and tables of `rich` as HTML."""
    from rich.console import Console

    console = Console(
        record=True, width=_WIDTH, file=io.StringIO(), markup=False, highlight=False,
        emoji=False, force_jupyter=False,
    )  # fmt: skip
    for part in parts:
        console.print(part)
    return console.export_html(inline_styles=True, code_format=_PRE)
