"""Two GPUs side by side."""

from collections.abc import Mapping
from typing import Any, Final

from ..._format import digits
from ..._tables.comparison import comparison
from ..._tables.estimates import assumed_line
from ..markup import escape, si, tag
from .tables import Cell, plain, quantity, table

_ROWS: Final = (
    ("energy", "energy_j", "J"),
    ("time", "time_s", "s"),
    ("mean power", "avg_power_w", "W"),
    ("energy per token", "energy_j_per_token", "J"),
    ("tokens per second", "tokens_per_s", ""),
    ("time to first token", "ttft_s", "s"),
    ("time per output token", "tpot_s", "s"),
)


def compared(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Table of two summaries and their ratios, B / A."""
    ratios = comparison(a, b)["ratio"]
    rows = []
    for name, key, unit in _ROWS:
        first, second = a.get(key), b.get(key)
        if first is None or second is None:
            continue
        ratio = ratios.get(key, second / first)
        cells = [_figure(x, unit, side, key) for x, side in ((first, a), (second, b))]
        rows.append([plain(name), *cells, quantity(ratio, digits(ratio))])
    for name, key, unit in (
        ("SM clock, mean over time", "sm_clock_mhz", " MHz"),
        ("power limit", "power_limit_w", " W"),
    ):
        shown = [quantity(x[key], f"{x[key]:.0f}{unit}") for x in (a, b)]
        ratio = b[key] / a[key]
        rows.append([plain(name), *shown, quantity(ratio, digits(ratio))])
    for name, key in (("limited by", "limited_by"), ("grade", "grade")):
        rows.append([plain(name), plain(a[key]), plain(b[key]), plain("")])
    columns = ["", a["gpu"], b["gpu"], "ratio"]
    caption = f"{a['gpu']} against {b['gpu']}"
    text = (
        f"The same workload; {b['gpu']} with its own default clocks and power limit "
        f"({assumed_line(b)})."
    )
    note = tag("p", escape(text), class_="caption")
    return table("comparison", caption, columns, rows) + note


def _figure(value: float, unit: str, side: Mapping[str, Any], key: str) -> Cell:
    cell = quantity(value, si(value, unit) if unit else digits(value))
    interval = side.get(f"{key}_p5_p95")
    if interval is None:
        return cell
    low, high = (si(x, unit) for x in interval)
    between = tag("span", escape(f"{low} to {high}"), class_="between")
    return Cell(cell.shown + between, value)
