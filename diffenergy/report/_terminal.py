"""Blocks as `rich` prints them: lines and tables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ._blocks import Block, Column, Table, lines_and_tables

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable

_GAP: Final = 3
"""Characters between two columns."""
_FOLDED: Final = 15
"""Minimum width in characters of a column whose text may wrap."""


def to_rich(blocks: Iterable[Block]) -> Iterator["RenderableType"]:
    """Renderables of `rich`: lines unchanged, tables fitted to the terminal's width."""
    for block in lines_and_tables(blocks):
        yield block if isinstance(block, str) else _Fitted(block)


class _Fitted:
    """A table that drops optional columns until it fits the terminal, and then splits
    into tables below each other that share the first column: no number is cut."""

    def __init__(self, table: Table):
        self._table = table

    def __rich_console__(self, console: "Console", options: "ConsoleOptions"):
        """Yield the table; drop `spare` columns while it is too wide, then split it."""
        columns, spare = list(self._table.columns), list(self._table.spare)
        while spare and _width(self._table, columns) > options.max_width:
            gone = spare.pop(0)
            columns = [column for column in columns if column.heading != gone]
        for number, part in enumerate(self._parts(columns, options.max_width)):
            if number:
                yield ""
            fits = _width(self._table, part) <= options.max_width
            yield _plain(self._table, part, wrapped=not fits)

    def _parts(self, columns: list[Column], most: int) -> list[list[Column]]:
        """Columns of each table: the first one, and as many others as fit `most`
        characters."""
        parts = [columns[:1]]
        for column in columns[1:]:
            if len(parts[-1]) > 1 and _width(self._table, [*parts[-1], column]) > most:
                parts.append(columns[:1])
            parts[-1].append(column)
        return parts


def _plain(
    table: Table, columns: Sequence[Column], wrapped: bool = False
) -> "RichTable":
    """`rich` table of the given columns of `table`; `wrapped`: all of them may break
    over lines."""
    from rich import box
    from rich.table import Table as RichTable

    grid = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, title=table.title or None,
        title_justify="left", title_style="bold", pad_edge=False, padding=(0, 1),
    )  # fmt: skip
    texts = table.columns[: table.left]
    for column in columns:
        folds = column.heading in table.fold
        grid.add_column(
            column.heading,
            justify="left" if column in texts or folds else "right",
            no_wrap=not (folds or wrapped),
            overflow="fold" if folds or wrapped else "ellipsis",
        )
    for entry in _printed(table):
        grid.add_row(*(column.text(entry) for column in columns))
    return grid


def _printed(table: Table) -> Sequence[Any]:
    return table.rows[: table.most]


def _width(table: Table, columns: Sequence[Column]) -> int:
    """Minimum width of the columns in characters, with whole headings and numbers."""
    widths = []
    for column in columns:
        texts = (column.heading, *map(column.text, _printed(table)))
        longest = max(len(line) for text in texts for line in text.split("\n"))
        folds = column.heading in table.fold
        widths.append(min(longest, _FOLDED) if folds else longest)
    return sum(widths) + _GAP * (len(widths) - 1)
