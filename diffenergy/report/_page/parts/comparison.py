"""Two GPUs side by side."""

from typing import Final

from ..._format import Entry, digits
from ..._tables.columns import Column
from ..._views.estimate import assumed_line
from ..markup import escape, si, tag
from .tables import Cell, filled, quantity, table

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
    note = tag("p", escape(text), class_="caption")
    return table("comparison", caption, columns, rows) + note


_WORDS: Final = ("limited_by", "grade")


def _with_interval(figure: Column, side: Entry) -> Cell:
    cell = filled(figure, side)
    interval = side.get(f"{figure.value}_p5_p95")
    if interval is None:
        return cell
    low, high = (si(x, str(figure.shown)) for x in interval)
    between = tag("span", escape(f"{low} to {high}"), class_="between")
    return Cell(cell.shown + between, cell.value)
