"""Tables by columns: what stands above, where a value is found, how it is shown; and
tables as HTML, for a notebook."""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .._format import UNKNOWN, si

if TYPE_CHECKING:
    from rich.table import Table

Columns = Sequence[str | tuple[Any, ...]]
"""Fields of a `Column` each, or a heading alone: of entries that are rows of values."""

TEXT: Final = "{}"
"""Shows a value as it is."""

_WIDTH: Final = 100
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
