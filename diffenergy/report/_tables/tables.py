"""How all tables look: plain columns, readable at 80 characters."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    title: str | None = None,
    fold: Sequence[str] = (),
) -> "Table":
    """Table whose first `left` columns are text and the others numbers.

    Columns in `fold` break over lines where the width does not suffice; the others
    never do.
    """
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        padding=(0, 1),
    )
    for number, name in enumerate(columns):
        made.add_column(
            name,
            justify="left" if number < left or name in fold else "right",
            no_wrap=name not in fold,
            overflow="fold" if name in fold else "ellipsis",
        )
    for row in rows:
        made.add_row(*row)
    return made
