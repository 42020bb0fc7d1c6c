"""Tables of tuned tiles."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .._format import plain, si
from .estimates import kernel_name
from .schedules import change
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType

_TILE: Final = ("tile_m", "tile_n", "tile_k", "stages", "split_k")


def tiles_parts(summary: Mapping[str, Any]) -> list["RenderableType"]:
    """What `codesign --tune-tiles` prints, from the summary of `tiles_json`."""
    goal = summary["goal"]
    columns = ["GEMM", "count", "tile x stages", "split", "time", "energy", "default"]
    rows = [_cells(entry) for entry in summary["gemms"]]
    totals = [
        _total("library's choice", summary, "default_"),
        _total("these tiles", summary, ""),
    ]
    words = (
        f"default: {goal} of the library's choice above that of the tile; tiles are "
        f"compared at the clock of the library's choice, the whole with the limiter."
    )
    return [
        table(columns, rows, fold=["GEMM"]),
        words,
        table(["whole workload", "time", "change", "energy", "change"], totals),
    ]


def _cells(entry: Mapping[str, Any]) -> Sequence[str]:
    return [
        kernel_name(entry).removeprefix("gemm ").removeprefix("1x"),
        plain(entry["count"]),
        "x".join(str(entry[name]) for name in _TILE[:4]),
        str(entry["split_k"]),
        si(entry["time_s"], "s"),
        si(entry["energy_j"], "J"),
        change(entry["default_costs_more_pct"]),
    ]


def _total(name: str, summary: Mapping[str, Any], prefix: str) -> Sequence[str]:
    cells = [name]
    for key, unit in (("time_s", "s"), ("energy_j", "J")):
        value = summary[prefix + key]
        cells += [
            si(value, unit),
            change(100 * (value / summary[f"default_{key}"] - 1)),
        ]
    return cells
