"""Blocks: the content of a result, as data that a terminal, a notebook and a page show.

A line is text. Terminals show lines and tables; tiles, headings, notes and charts are
for screens that can draw them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ..charts import Chart
from ._format import UNKNOWN, si

Columns = Sequence[str | tuple[Any, ...]]
"""Column layout: fields of a `Column` each, or a heading alone for rows of plain
values."""
Shown = str | Callable[[Any], str]
"""How a value is formatted: a unit (number with SI prefix), a format such as "{:.1f}
W", or a function of the value."""

TEXT: Final = "{}"
"""Format that shows a value unchanged."""


def as_text(value: Any, shown: Shown) -> str:
    """Return `value` formatted by `shown`; a dash for None."""
    if value is None:
        return UNKNOWN
    if callable(shown):
        return shown(value)
    return shown.format(value) if "{" in shown else si(value, shown)


class Column(NamedTuple):
    """A table column. `value`: key of an entry, or a function of the entry."""

    heading: str
    value: Any
    shown: Shown = TEXT

    def of(self, entry: Any) -> Any:
        """Return the column's value of an entry."""
        return self.value(entry) if callable(self.value) else entry[self.value]

    def text(self, entry: Any) -> str:
        """Return the column's formatted text of an entry."""
        return as_text(self.of(entry), self.shown)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with one row per entry.

    The first `left` columns are text and the others numbers. Columns in `fold` break
    over lines where the width does not suffice; the others never do. Columns in `spare`
    are left out, the first one first, where a terminal is too narrow for all.
    `sorted_by`: heading of the column that falls from row to row. `most`: rows that a
    terminal prints, the first ones.
    """

    layout: Columns
    entries: Iterable[Any]
    _: dataclasses.KW_ONLY
    left: int = 1
    title: str = ""
    fold: Sequence[str] = ()
    spare: Sequence[str] = ()
    sorted_by: str = ""
    most: int | None = None

    @functools.cached_property
    def columns(self) -> list[Column]:
        """The layout as `Column` records."""
        return [
            Column(column, number) if isinstance(column, str) else Column(*column)
            for number, column in enumerate(self.layout)
        ]

    @functools.cached_property
    def rows(self) -> list[Any]:
        """The entries as a list; `entries` may be an iterator that can be read only
        once."""
        return list(self.entries)


class Tile(NamedTuple):
    """A value shown large. `interval`: its 5th and 95th percentile."""

    name: str
    value: Any
    shown: Shown = TEXT
    interval: Sequence[float] | None = None


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Large values side by side; those without a value are left out. `small`: less
    prominent."""

    entries: Sequence[Tile]
    small: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """Blocks under a heading. `link`: short heading for the page's navigation; `note`:
    remark below the heading; `folded`: collapsed, with a filter for its rows."""

    title: str
    blocks: Sequence["Block"]
    link: str = ""
    note: str = ""
    folded: bool = False


Block = str | Table | Tiles | Chart | Section


def lines_and_tables(blocks: Iterable[Block]) -> Iterator[str | Table]:
    """Yield the blocks that can be printed as text, in order."""
    for block in blocks:
        match block:
            case str() | Table():
                yield block
            case Section():
                yield from lines_and_tables(block.blocks)
            case _:
                pass
