"""How tuned tiles read and look."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .._blocks import Block, Table
from .._charts import style
from .._format import Entry, change, plain, product, si
from .._tables.lines import framed, title_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...codesign import TuneResult

_SIZES: Final = ("tile_m", "tile_n", "tile_k", "stages")
TILE: Final = (
    ("tile x stages", lambda tile: "x".join(str(tile[size]) for size in _SIZES)),
    ("split", "split_k"),
)
"""Columns that say what a tile is."""
_MOST: Final = 16
"""Matrix products in a picture, those with most of the time first."""
_LONGEST: Final = 26
"""Characters of a name."""


def line(result: "TuneResult") -> str:
    """What was tuned, and what the whole costs by the library's choice and with it."""
    summary = result.summary
    costs = [
        f"{si(summary[f'default_{key}'], unit)} -> {si(summary[key], unit)}"
        for key, unit in (("time_s", "s"), ("energy_j", "J"))
    ]
    count = len(summary["gemms"])
    return (
        f"{title_line(summary)}: tiles of {count} matrix products for least "
        f"{summary['goal']}, {', '.join(costs)}, {summary['grade']}"
    )


def blocks(result: "TuneResult") -> list[Block]:
    """Assumptions, the tiles, the whole workload."""
    return framed(result.summary, tiles_blocks(result.summary))


def figure(result: "TuneResult") -> "Figure":
    """What the library's choice costs more, by product."""
    return tiles_figure(result.summary)


def tiles_blocks(summary: Entry) -> list[Block]:
    """The tiles and the whole workload, from the summary of `tiles_json`."""
    default = {key: summary[f"default_{key}"] for key in ("time_s", "energy_j")}
    time, energy = ("time", "time_s", "s"), ("energy", "energy_j", "J")

    def above(key: str) -> Callable[[Entry], float]:
        return lambda whole: 100 * (whole[key] / default[key] - 1)

    tiles = (
        ("GEMM", product),
        ("count", "count", "{:.6g}"),
        *TILE,
        time,
        energy,
        ("default", "default_costs_more_pct", change),
    )
    words = (
        f"default: {summary['goal']} of the library's choice above that of the tile; "
        "tiles are compared at the clock of the library's choice, the whole with the "
        "limiter."
    )
    whole = (
        ("whole workload", "name"),
        *(time, ("change", above("time_s"), change)),
        *(energy, ("change", above("energy_j"), change)),
    )
    totals = [
        {"name": "library's choice", **default},
        {"name": "these tiles", **summary},
    ]
    spare = ("count", "split", "default", "energy")
    products = Table(tiles, summary["gemms"], spare=spare, fold=["GEMM"])
    return [products, words, Table(whole, totals)]


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
