"""Kernels of an answer as a table."""

from typing import Final

from ...workload import kernel_name
from .._blocks import Table
from .._format import Entries, Entry, percent, si

MOST: Final = 8
"""Kernels that are shown unless all are asked for."""


def kernel_table(
    kernels: Entries, busy: float, several: bool, most: int | None
) -> Table:
    """Kernels by their share of `busy` s (`most` None: all, in listed order); `several`
    phases are told apart."""
    live = [kernel for kernel in kernels if kernel["time_s"] is not None]
    shown = live
    if most is not None:
        shown = sorted(live, key=lambda x: -x["count"] * x["time_s"])[:most]
    rest = len(live) - len(shown)
    name = f"kernel (and {rest} more)" if rest else "kernel"
    columns = [
        (name, kernel_name),
        *([("phase", "phase")] if several else []),
        ("count", "count", "{:.6g}"),
        ("time", "time_s", "s"),
        ("share", lambda x: x["count"] * x["time_s"] / busy, percent),
        ("limit", limit_words),
    ]
    left, fold = len(columns) - 4, [name, "limit"]
    return Table(
        columns, shown, spare=("count", "phase", "limit"), left=left, fold=fold
    )


def traced_name(row: Entry) -> str:
    """What a row of a trace is called; one without shape by its kernel."""
    if row["op"] == "traced":
        return f"{row['class']}: {row['kernel'][:50]}"
    return kernel_name(row)


def time_words(us: float) -> str:
    """A time that is given in us."""
    return si(us * 1e-6, "s")


def limit_words(kernel: Entry) -> str:
    """What limits a kernel, and its utilization where that is a unit."""
    limit = kernel["limited_by"]
    use = kernel["utilization"].get(limit)
    return limit if use is None else f"{limit} {percent(use, 0)}"
