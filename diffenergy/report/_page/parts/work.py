"""The kernels of the page, sortable."""

from collections.abc import Mapping, Sequence
from typing import Any

from ....workload import kernel_name
from ..._format import percent
from ..._summaries.kernel_work import longest
from ..markup import escape, si, tag
from .tables import Cell, plain, quantity, table

_COLUMNS = (
    "kernel", "class", "phase", "launches", "time", "share", "energy", "power",
    "a launch", "compute", "DRAM", "limited by",
)  # fmt: skip


def kernel_list(
    summary: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]
) -> str:
    """All kernels that are launched, those that take most time first."""
    live, rest = longest(kernels)
    busy = sum(k["count"] * k["time_s"] for k in kernels if k["time_s"])
    several = len(summary["phases"]) > 1
    rows = [_row(kernel, busy) for kernel in live]
    columns = list(_COLUMNS)
    if not several:
        columns.remove("phase")
        rows = [[*row[:2], *row[3:]] for row in rows]
    text = (
        f"{len(live)} kernels, those that take most time first; press a heading to "
        "sort. Time and energy are of all launches, the share is of the GPU's time; "
        f"energy includes idle and leakage power while the kernel runs.{rest}"
    )
    made = table(
        "kernel-table", "Kernels", columns, rows, sortable=True,
        sorted_by=columns.index("time"), tall=True,
    )  # fmt: skip
    return tag("p", escape(text), class_="caption") + made


def _row(kernel: Mapping[str, Any], busy: float) -> list[Cell]:
    count, time, energy = kernel["count"], kernel["time_s"], kernel["energy_j"]
    whole, flop, moved = count * time, kernel["flop"], kernel["dram_bytes"]
    limit, use = kernel["limited_by"], kernel["utilization"].get(kernel["limited_by"])
    return [
        plain(kernel_name(kernel)),
        plain(kernel["class"]),
        plain(kernel["phase"]),
        quantity(count, f"{count:g}"),
        quantity(whole, si(whole, "s")),
        quantity(whole / busy, percent(whole / busy)),
        quantity(count * energy, si(count * energy, "J")),
        quantity(energy / time, f"{energy / time:.0f} W"),
        quantity(time, si(time, "s")),
        quantity(flop / time, si(flop / time, "FLOP/s") if flop else "none"),
        quantity(moved / time, si(moved / time, "B/s") if moved else "none"),
        plain(limit if use is None else f"{limit} {percent(use, 0)}"),
    ]
