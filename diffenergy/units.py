"""Units: multipliers that turn a number into SI (`1.98 * GHz`, `40 * MiB`), and
`quantity`, which reads a number that may carry its unit (`1.98GHz`)."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

MHz = 1e6
GHz = 1e9
us = 1e-6
ms = 1e-3
KiB = 2.0**10
MiB = 2.0**20
GiB = 2.0**30
pJ = 1e-12
hour = 3600.0
kWh = 3.6e6

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
UNKNOWN: Final = "-"
"""Shown where a value is not known."""
_BYTES: Final = {"B": "1", "kB": "1e3", "MB": "1e6", "GB": "1e9", "TB": "1e12"} | {
    f"{prefix}iB": str(2 ** (10 * n)) for n, prefix in enumerate("KMGT", 1)
}
_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "a clock": {"Hz": "1", "kHz": "1e3", "MHz": "1e6", "GHz": "1e9"},
    "a power": {"W": "1", "mW": "1e-3", "kW": "1e3", "MW": "1e6"},
    "a time": {
        "s": "1", "ms": "1e-3", "us": "1e-6", "ns": "1e-9", "min": "60", "h": "3600",
    },
    "a size": _BYTES,
    "a rate": {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    "an energy": {
        "J": "1", "mJ": "1e-3", "kJ": "1e3", "MJ": "1e6", "Wh": "3600", "kWh": "3.6e6",
    },
    "a temperature": {"C": "1"},
    "an area": {"mm2": "1", "cm2": "100"},
    "a percentage": {"%": "1"},
    "a voltage": {"V": "1", "mV": "1e-3"},
    "a slope": {"V/Hz": "1", "V/MHz": "1e-6", "V/GHz": "1e-9"},
    "a curvature": {"V/Hz^2": "1", "V/GHz^2": "1e-18"},
    "a clock-tree power": {"W/(V^2 Hz)": "1", "W/(V^2 GHz)": "1e-9"},
    "a thermal resistance": {"K/W": "1"},
}  # fmt: skip
"""Units that a number may carry, by what they measure: exact factors to the first one
of each line, which is SI but for C, mm2 and %."""
_SPELLINGS: Final = {"µ": "u", "μ": "u", "²": "2", "°": ""}
_WRITTEN: Final = re.compile(
    r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([^\W\d_].*|[%°].*|)"
)
_BITS: Final = re.compile(r"[KMGT]i?b(/s)?")


def digits(value: int | float | None, places: int = 4) -> str:
    """`value` with `places` significant digits, no exponent where it can be avoided.

    >>> digits(1234.56), digits(0.05)
    ('1235', '0.05000')
    """
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    size = _rounded(value, places)
    if not 1e-4 <= size < 1e9:
        return f"{value:.{places - 1}e}"
    return f"{value:.{max(0, places - 1 - math.floor(math.log10(size)))}f}"


def si(value: int | float | None, unit: str) -> str:
    """`value` with the SI prefix that suits it; from 1000 s on in minutes or hours.

    >>> si(0.01973, "s"), si(5400, "s"), si(None, "J")
    ('19.73 ms', '90.00 min', '-')
    """
    if value is None:
        return UNKNOWN
    if value == 0:
        return f"0 {unit}"
    if unit == "s" and _rounded(value) >= 1000:
        long = (hour, "h") if abs(value) >= 2 * hour else (60.0, "min")
        return f"{digits(value / long[0])} {long[1]}"
    scale, prefix = scaled(min(_rounded(value), _MOST))
    return f"{digits(value / scale)} {prefix}{unit}"


def _rounded(value: int | float, places: int = 4) -> float:
    """Size of a number as it is shown: 999.97 has the digits of 1000."""
    return abs(float(f"{value:.{places - 1}e}"))


def scaled(value: int | float) -> tuple[float, str]:
    """The largest SI prefix that leaves `value` at 1 or more, and its factor.

    >>> scaled(0.02)
    (0.001, 'm')
    """
    fits = [(scale, prefix) for scale, prefix in _PREFIXES if value >= scale]
    return fits[0] if fits else _PREFIXES[-1]


def quantity(name: str, text: str, unit: str = "") -> float:
    """The finite number that `text` says, in SI (temperatures in C, areas in mm2,
    percentages as they stand).

    Arguments:

    - `name`: of the flag or argument, for messages.
    - `text`: a number, with or without a unit of the same kind as `unit`; upper and
      lower case count only where they tell two units apart (mW and MW).
    - `unit`: what a bare number is in. One that `units_like` does not know, as "count",
      takes bare numbers alone and stands in messages.

    Raises `ValueError` for what is no such number.

    >>> quantity("sm_clock", "1.98GHz", "MHz"), quantity("sm_clock", "1980", "MHz")
    (1980000000.0, 1980000000.0)
    """
    shown = text.strip()
    match = _WRITTEN.fullmatch(shown)
    value = float(match[1]) if match else math.nan
    if not match or not math.isfinite(value):
        raise ValueError(f"`{name}` is '{shown}'; allowed is {allowed(unit)}.")
    factors = units_like(unit)
    suffix = "".join(_SPELLINGS.get(x, x) for x in match[2]) or unit
    if suffix not in factors and not match[2]:
        return value
    factor = _factor(suffix, factors)
    if factor is None:
        raise ValueError(f"`{name}` is '{shown}'{_instead(match[2], unit)}.")
    return float(Decimal(match[1]) * Decimal(factor)) if value else 0.0


def units_like(unit: str) -> Mapping[str, str]:
    """Units of the same kind with their factors; none for a unit that is not known.

    >>> list(units_like("W"))
    ['W', 'mW', 'kW', 'MW']
    """
    return _KINDS.get(_kind(unit), {})


def allowed(unit: str) -> str:
    """Words for the numbers that `quantity` accepts.

    >>> allowed("MHz")
    'a finite number (bare in MHz, or with Hz, kHz, MHz or GHz)'
    """
    units = units_like(unit)
    if len(units) > 1:
        return f"a finite number (bare in {unit}, or with {_either(list(units))})"
    return f"a finite number ({unit})" if unit else "a finite number"


def _factor(unit: str, factors: Mapping[str, str]) -> str | None:
    """Factor of the unit `unit`; None where none, or more than one, is meant."""
    if unit in factors or _BITS.fullmatch(unit):
        return factors.get(unit)
    like = [x for x in factors if x.lower() == unit.lower()]
    return factors[like[0]] if len(like) == 1 else None


def _kind(unit: str) -> str:
    """Quantity that a unit measures, such as "power"; "" of an unknown unit."""
    return next((kind for kind, units in _KINDS.items() if unit in units), "")


def _instead(suffix: str, unit: str) -> str:
    """Remedy for a wrong unit: what it is and what to give."""
    units = units_like(unit)
    if not units:
        what = f" ({unit})" if unit else ""
        return f"; give the number{what} without a unit"
    ways = f"give {_kind(unit)} in {_either(list(units))} (a bare number is in {unit})"
    if _BITS.fullmatch(suffix):
        return f", which reads as bits; {ways}"
    other = next((k for k, u in _KINDS.items() if _factor(suffix, u)), "")
    what = f", {other}" if other else f", and '{suffix}' is no unit of {_kind(unit)}"
    return f"{what}; {ways}"


def _either(words: list[str]) -> str:
    """Words as a choice: "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
