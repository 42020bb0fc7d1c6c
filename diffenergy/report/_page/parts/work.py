"""The kernels of the page, sortable."""

from collections.abc import Callable

from ....workload import kernel_name
from ..._format import Entries, Entry, percent
from ..._summaries.kernel_work import longest
from ..._views.estimate import limit_words
from ..markup import escape, si, tag
from .tables import table


def kernel_list(summary: Entry, kernels: Entries) -> str:
    """All kernels that are launched, those that take most time first."""
    live, rest = longest(kernels)
    busy = sum(k["count"] * k["time_s"] for k in kernels if k["time_s"])
    columns = [
        ("kernel", kernel_name),
        ("class", "class"),
        *([("phase", "phase")] if len(summary["phases"]) > 1 else []),
        ("launches", "count", "{:g}"),
        ("time", lambda k: k["count"] * k["time_s"], "s"),
        ("share", lambda k: k["count"] * k["time_s"] / busy, percent),
        ("energy", lambda k: k["count"] * k["energy_j"], "J"),
        ("power", lambda k: k["energy_j"] / k["time_s"], "{:.0f} W"),
        ("a launch", "time_s", "s"),
        ("compute", lambda k: k["flop"] / k["time_s"], _rate("FLOP/s")),
        ("DRAM", lambda k: k["dram_bytes"] / k["time_s"], _rate("B/s")),
        ("limited by", limit_words),
    ]
    text = (
        f"{len(live)} kernels, those that take most time first; press a heading to "
        "sort. Time and energy are of all launches, the share is of the GPU's time; "
        f"energy includes idle and leakage power while the kernel runs.{rest}"
    )
    made = table(
        "kernel-table", "Kernels", columns, live, sortable=True,
        sorted_by=[heading for heading, *_ in columns].index("time"), tall=True,
    )  # fmt: skip
    return tag("p", escape(text), class_="caption") + made


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: si(value, unit) if value else "none"
