"""Picture of tuned tiles: what each matrix product gains."""

from typing import TYPE_CHECKING, Final

from .._format import Entry, change, plain, product, si
from .._views.estimate import title_line
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST: Final = 16
"""Matrix products in a picture, those with most of the time first."""
_LONGEST: Final = 26
"""Characters of a name."""


@style.house()
def tiles_figure(summary: Entry) -> "Figure":
    """Speed-up and saving of energy of each matrix product by its tile, and of the
    whole; `summary` is that of `tiles_json`."""
    order = sorted(summary["gemms"], key=lambda x: -x["count"] * x["default_time_s"])
    rows = [*order[:_MOST], {**summary, "whole": True}]
    figure = style.canvas(1.5 + 0.36 * len(rows))
    axes = figure.subplots()
    quantities = (("time_s", "time", style.SKY), ("energy_j", "energy", style.GREEN))
    for which, (key, word, colour) in enumerate(quantities):
        saved = [100 * (row[key] / row[f"default_{key}"] - 1) for row in rows]
        places = [row - 0.19 + 0.38 * which for row in range(len(rows))]
        look = {"color": colour, "height": 0.36, "label": word}
        style.bars(axes, places, saved, map(change, saved), **look)
    axes.axvline(0, color=style.BLACK, linewidth=1.0)
    style.rows_down(axes, [_name(row) for row in rows])
    axes.axhline(len(rows) - 1.5, color=style.GREY, linewidth=1.0)
    rest = len(order) - _MOST
    more = f" ({rest} more products are not shown)" if rest > 0 else ""
    axes.set_xlabel(f"change against the library's tiles, %{more}")
    axes.margins(x=0.2)
    axes.set_title(f"Tiles of least {summary['goal']}")
    style.legend_above(axes)
    style.headline(figure, f"{title_line(summary)} ({summary['grade']})")
    return figure


def _name(row: Entry) -> str:
    """Size of a product, how often it runs, and its time."""
    if "whole" in row:
        return f"whole workload, {si(row['time_s'], 's')}"
    times = f"{plain(row['count'])} x {si(row['time_s'], 's')}"
    return f"{style.shortened(product(row), _LONGEST)}\n{times}"
