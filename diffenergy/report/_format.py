"""Entries of JSON, and formatted numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..units import UNKNOWN as UNKNOWN
from ..units import digits as digits
from ..units import si as si
from ..workload import kernel_name

Entry = Mapping[str, Any]
"""A JSON object: the summary of a result, a kernel, a row of a table."""
Entries = Sequence[Entry]
QUANTITIES: Final = ("time", "power", "energy")
_SHOWN: Final = 1000
"""Maximum number of kernels on a page."""
_UNITS: Final = {
    "tensor": "tensor cores",
    "fma": "CUDA cores",
    "sfu": "special functions",
    "issue": "instructions",
    "smem": "shared memory",
    "l2": "L2",
    "dram": "DRAM",
    "link": "links",
    "clock_tree": "clock tree",
    "idle": "idle power",
    "launch": "launches",
}
"""Display names of the energy's hardware units, where they differ from the key."""


def percent(share: int | float | None, places: int = 1) -> str:
    """Return a share as a percentage.

    >>> percent(0.1234)
    '12.3 %'
    """
    return UNKNOWN if share is None else f"{100 * share:.{places}f} %"


def plain(value: int | float | None) -> str:
    """Return the shortest text of a number: 1980, 0.99, 3.352e+12."""
    return UNKNOWN if value is None else f"{value:.6g}"


def change(percent: float | None) -> str:
    """Return a change in percent with its sign.

    >>> change(-15.638), change(0.0)
    ('-15.64 %', '0 %')
    """
    if percent is None:
        return UNKNOWN
    return "0 %" if abs(percent) < 0.005 else f"{percent:+.2f} %"


def product(kernel: Entry) -> str:
    """Return the sizes of a matrix product, without its name and a batch of one."""
    return kernel_name(kernel).removeprefix("gemm ").removeprefix("1x")


def longest(kernels: Entries) -> tuple[list[Entry], str]:
    """Return the launched kernels by falling total time, at most 1000, and a remark on
    the rest."""
    live = sorted(
        (kernel for kernel in kernels if kernel["time_s"]),
        key=lambda kernel: -kernel["count"] * kernel["time_s"],
    )
    rest = len(live) - _SHOWN
    return live[:_SHOWN], f" {rest} shorter ones are not shown." if rest > 0 else ""


def unit_words(unit: str) -> str:
    """Return the display name of a hardware unit."""
    return _UNITS.get(unit, unit.replace("_", " "))
