"""The effect of changes of a GPU's numbers, as a table."""

from typing import Final

from .._blocks import Table
from .._format import Entries, change

_MOST: Final = 20
"""Maximum number of rows shown; JSON has all."""


def effect_table(rows: Entries) -> Table:
    """Return a table of the largest effects on time and energy (%)."""
    rest = len(rows) - _MOST
    columns = [
        (f"one step (and {rest} more)" if rest > 0 else "one step", "field"),
        ("step", lambda x: f"{x['step']:+g} {x['unit']}"),
        *(
            (name, lambda x, key=f"{name}_pct": change(x[key]))
            for name in ("time", "energy")
            if rows and f"{name}_pct" in rows[0]
        ),
        ("by", "by"),
    ]
    return Table(columns, rows[:_MOST], spare=("by",))
