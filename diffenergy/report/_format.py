"""Entries of JSON, and their numbers as people read them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..workload import kernel_name

Entry = Mapping[str, Any]
"""A JSON object: the summary of an answer, a kernel, a row of a table."""
Entries = Sequence[Entry]
_PREFIXES: Final = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "u"),
    (1e-9, "n"),
    (1e-12, "p"),
)
_MOST: Final = 1e12
"""Largest prefix in texts."""
QUANTITIES: Final = ("time", "power", "energy")
UNKNOWN: Final = "-"
"""Shown where a value is not known."""
_SHOWN: Final = 1000
"""Kernels that a page shows."""


def digits(value: int | float | None, places: int = 4) -> str:
    """`value` with `places` significant digits, no exponent where it can be avoided.

    >>> digits(1234.56), digits(0.05)
    ('1235', '0.05000')
    """
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    size = abs(value)
    if not 1e-4 <= size < 1e9:
        return f"{value:.{places - 1}e}"
    return f"{value:.{max(0, places - 1 - math.floor(math.log10(size)))}f}"


def si(value: int | float | None, unit: str) -> str:
    """`value` with the SI prefix that suits it.

    >>> si(0.01973, "s"), si(None, "J")
    ('19.73 ms', '-')
    """
    if value is None:
        return UNKNOWN
    if value == 0:
        return f"0 {unit}"
    scale, prefix = scaled(min(abs(value), _MOST))
    return f"{digits(value / scale)} {prefix}{unit}"


def scaled(value: int | float) -> tuple[float, str]:
    """The largest SI prefix that leaves `value` at 1 or more, and its factor.

    >>> scaled(0.02)
    (0.001, 'm')
    """
    fits = [(scale, prefix) for scale, prefix in _PREFIXES if value >= scale]
    return fits[0] if fits else _PREFIXES[-1]


def percent(share: int | float | None, places: int = 1) -> str:
    """Share of one in percent.

    >>> percent(0.1234)
    '12.3 %'
    """
    return UNKNOWN if share is None else f"{100 * share:.{places}f} %"


def plain(value: int | float | None) -> str:
    """Shortest text of a number: 1980, 0.99, 3.352e+12."""
    return UNKNOWN if value is None else f"{value:.6g}"


def change(percent: float | None) -> str:
    """Change in per cent with its sign.

    >>> change(-15.638), change(0.0)
    ('-15.64 %', '0 %')
    """
    if percent is None:
        return UNKNOWN
    return "0 %" if abs(percent) < 0.005 else f"{percent:+.2f} %"


def product(kernel: Entry) -> str:
    """Sizes of a matrix product, without the word and a batch of one."""
    return kernel_name(kernel).removeprefix("gemm ").removeprefix("1x")


def longest(kernels: Entries) -> tuple[list[Entry], str]:
    """The kernels that are launched, those that take most time first, as far as they
    can be shown; and a remark on the rest."""
    live = sorted(
        (kernel for kernel in kernels if kernel["time_s"]),
        key=lambda kernel: -kernel["count"] * kernel["time_s"],
    )
    rest = len(live) - _SHOWN
    return live[:_SHOWN], f" {rest} shorter ones are not shown." if rest > 0 else ""
