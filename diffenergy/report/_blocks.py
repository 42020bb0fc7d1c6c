"""Blocks: what an answer says, as data that a terminal, a notebook and a page show.

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
"""Fields of a `Column` each, or a heading alone: of entries that are rows of values."""
Shown = str | Callable[[Any], str]
"""How a value is shown: a unit (the number with its SI prefix), a format such as
"{:.1f} W", or a function of the value."""

TEXT: Final = "{}"
"""Shows a value as it is."""


def as_text(value: Any, shown: Shown) -> str:
    """`value` as `shown` says; a dash for None."""
    if value is None:
        return UNKNOWN
    if callable(shown):
        return shown(value)
    return shown.format(value) if "{" in shown else si(value, shown)


class Column(NamedTuple):
    """`value`: key of an entry, or a function of the entry."""

    heading: str
    value: Any
    shown: Shown = TEXT

    def of(self, entry: Any) -> Any:
        """The value of an entry."""
        return self.value(entry) if callable(self.value) else entry[self.value]

    def text(self, entry: Any) -> str:
        """What stands in the row of an entry."""
        return as_text(self.of(entry), self.shown)


@dataclasses.dataclass(frozen=True)
class Table:
    """A row for each of `entries`.

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
        """The columns in full."""
        return [
            Column(column, number) if isinstance(column, str) else Column(*column)
            for number, column in enumerate(self.layout)
        ]

    @functools.cached_property
    def rows(self) -> list[Any]:
        """The entries, which may be read once alone."""
        return list(self.entries)


class Tile(NamedTuple):
    """A value in large; `interval`: its 5th and 95th percentile."""

    name: str
    value: Any
    shown: Shown = TEXT
    interval: Sequence[float] | None = None


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Values in large beside each other; those of no value are left out. `small`: of
    second rank."""

    entries: Sequence[Tile]
    small: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """Blocks under a heading. `link`: the heading in short, for the top of a page;
    `note`: a remark below it; `folded`: it opens on demand, and its rows can be
    filtered."""

    title: str
    blocks: Sequence["Block"]
    link: str = ""
    note: str = ""
    folded: bool = False


Block = str | Table | Tiles | Chart | Section


def lines_and_tables(blocks: Iterable[Block]) -> Iterator[str | Table]:
    """What can be printed as text, in its order."""
    for block in blocks:
        match block:
            case str() | Table():
                yield block
            case Section():
                yield from lines_and_tables(block.blocks)
            case _:
                pass
