"""Changes of time and energy of each matrix product by its tile."""

from typing import Final

from ...charts import Axis, Chart, Mark, Panel, Rule, bars, shortened
from .._format import Entry, change, plain, product
from .._page.markup import si
from .._tables.lines import title_line

_MOST: Final = 16
"""Maximum number of products drawn, those with most time."""
_LONGEST: Final = 28
"""Maximum length of a product's name in characters."""


def tiles_chart(summary: Entry) -> Chart:
    """Return a chart of the change of time and energy (%) of each matrix product and of
    the whole workload; `summary` is that of `tiles_json`."""
    order = sorted(summary["gemms"], key=lambda x: -x["count"] * x["default_time_s"])
    rows = [*order[:_MOST], {**summary, "whole": True}]
    marks: list[Mark] = []
    for which, (key, word) in enumerate((("time_s", "time"), ("energy_j", "energy"))):
        saved = [100 * (row[key] / row[f"default_{key}"] - 1) for row in rows]
        places = [row - 0.19 + 0.38 * which for row in range(len(rows))]
        look = {"colour": (5, 2)[which], "rows": places, "thick": 0.36}
        marks += bars(saved, [change(x) for x in saved], name=word, **look)
    last = len(rows) - 1.5  # the whole stands apart
    marks.append(Rule(last, colour="soft", dashed=False))
    rest = len(order) - _MOST
    more = f" ({rest} more products are not shown)" if rest > 0 else ""
    panel = Panel(
        Axis(f"change against the library's tiles{more}", "%", zero=True),
        Axis(names=[_name(row) for row in rows]),
        marks, title=f"Tiles of least {summary['goal']}",
    )  # fmt: skip
    return Chart(f"{title_line(summary)} ({summary['grade']})", [panel])


def _name(row: Entry) -> str:
    """Label of a product: its sizes, count and time."""
    if "whole" in row:
        return f"whole workload,\n{si(row['time_s'], 's')}"
    times = f"{plain(row['count'])} x {si(row['time_s'], 's')}"
    return f"{shortened(product(row), _LONGEST)}\n{times}"
