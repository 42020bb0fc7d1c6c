"""View of tuned tiles."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .._blocks import Block, Table
from .._format import Entry, change, product, si
from .._tables.lines import frame, title_line

if TYPE_CHECKING:
    from ...charts import Chart
    from ...codesign import TuneResult

_SIZES: Final = ("tile_m", "tile_n", "tile_k", "stages")
TILE: Final = (
    ("tile x stages", lambda tile: "x".join(str(tile[size]) for size in _SIZES)),
    ("split", "split_k"),
)
"""Columns that describe a tile."""


def line(result: "TuneResult") -> str:
    """Return a line with the number of tiles, and time and energy before and after."""
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
    """Return assumptions, the tiles, and the whole workload."""
    return frame(result.summary, tiles_blocks(result.summary))


def charts(result: "TuneResult") -> "dict[str, Chart]":
    """Return a chart of the change of time and energy of each product."""
    from .._charts.tiles import tiles_chart

    return {"tiles": tiles_chart(result.summary)}


def tiles_blocks(summary: Entry) -> list[Block]:
    """Return tables of the tiles and the whole workload; `summary` is that of
    `tiles_json`."""
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
        {"name": "tuned tiles", **summary},
    ]
    spare = ("count", "split", "default", "energy")
    products = Table(tiles, summary["gemms"], spare=spare, fold=["GEMM"])
    return [products, words, Table(whole, totals)]
