"""Kernels of an estimate as a table."""

from typing import Final

from ...workload import kernel_name
from .._blocks import Table
from .._format import Entries, Entry, percent, si

MOST: Final = 8
"""Maximum number of kernels shown, unless all are requested."""


def kernel_table(
    kernels: Entries, busy: float, several: bool, most: int | None
) -> Table:
    """Return a table of kernels with their shares of `busy` (s). `most` None: all, in
    listed order. `several`: with a column for the phase."""
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
    """Return the name of a traced row; that of its kernel if it has no shape."""
    if row["op"] == "traced":
        return f"{row['class']}: {row['kernel'][:50]}"
    return kernel_name(row)


def time_words(us: float) -> str:
    """Format a time given in us."""
    return si(us * 1e-6, "s")


def limit_words(kernel: Entry) -> str:
    """Return what limits a kernel, with the utilization if it is a hardware unit."""
    limit = kernel["limited_by"]
    use = kernel["utilization"].get(limit)
    return limit if use is None else f"{limit} {percent(use, 0)}"
