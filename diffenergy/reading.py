"""Strict reading of the numbers of a command line; all errors are `ValueError`."""

import functools
import math
import re
from collections.abc import Callable
from typing import Any, Final

from .dtypes import canonical
from .units import MHz, quantity

MOST: Final = 10**9
"""Largest batch or length; more is a slip of the keyboard."""
_MOST_VALUES: Final = 4096
"""Values of a range."""
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2}(,\d{3})*,0\d\d(,\d{3})*")
"""Digits in groups of which one begins with 0, so that they are no list."""


def number(flag: str, text: str, unit: str = "") -> float:
    """Finite number in SI, with its unit or bare in `unit` (see `units.quantity`)."""
    return quantity(flag, text, unit)


def positive(flag: str, text: str, unit: str = "") -> float:
    """A finite number above 0."""
    value = number(flag, text, unit)
    if value <= 0:
        in_unit = f" ({unit})" if unit else ""
        raise ValueError(
            f"`{flag}` is '{text.strip()}'; allowed is a number above 0{in_unit}."
        )
    return value


def whole(flag: str, text: str) -> int:
    """Whole number of at least 1.

    >>> whole("--batch", "8")
    8
    """
    stripped = text.strip()
    good = re.fullmatch(r"[0-9]{1,12}", stripped)
    if not good or not 1 <= int(stripped) <= MOST:
        raise ValueError(
            f"`{flag}` is '{stripped}'; allowed is a whole number from 1 to {MOST:,}."
        )
    return int(stripped)


def several(flag: str, text: str, one: Callable[[str, str], Any]) -> tuple[Any, ...]:
    """Comma-separated values, each once, in the order given; FROM:TO:STEP stands for
    FROM, FROM + STEP, ... up to TO.

    >>> several("--batch", "1,8:32:8", whole)
    (1, 8, 16, 24, 32)
    """
    values: list[Any] = []
    if _THOUSANDS.fullmatch(text.strip()):
        raise ValueError(
            f"`{flag}` is '{text}'; write a thousand as 1000, a list as 1,10."
        )
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) == 1:
            values.append(one(flag, part))
            continue
        if len(ends) != 3:
            raise ValueError(f"`{flag}` is '{text}'; give a list or FROM:TO:STEP.")
        start, stop, step = (one(flag, x) for x in ends)
        count = 1 + math.floor((stop - start) / step + 1e-9)
        if not 1 <= count <= _MOST_VALUES:
            raise ValueError(
                f"`{flag}` is '{text}', a range of {max(count, 0):,} values; allowed "
                f"are 1 to {_MOST_VALUES:,}, FROM:TO:STEP with FROM below TO."
            )
        values += [start + i * step for i in range(count)]
    return tuple(dict.fromkeys(values))


def wholes(flag: str, text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, as `several`."""
    return several(flag, text, whole)


def names(flag: str, text: str) -> tuple[str, ...]:
    """Comma-separated names, each once."""
    words = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in words:
        raise ValueError(f"`{flag}` is '{text}'; give names, such as h100-sxm,l40s.")
    return words


def clocks(flag: str, text: str) -> tuple[float, ...]:
    """Clocks, bare ones in MHz -> Hz, as `several`.

    >>> clocks("--sm-clock", "900,1.41GHz"), clocks("--sm-clock", "1GHz:1400:200MHz")
    ((900000000.0, 1410000000.0), (1000000000.0, 1200000000.0, 1400000000.0))
    """
    values = several(flag, text, lambda flag, x: positive(flag, x, "MHz"))
    for value in values:
        mhz = value / MHz
        if mhz < 10 or mhz > 1e5:
            units = {"GHz": 1e3} if mhz < 10 else {"kHz": 1e-3, "Hz": 1e-6}
            meant = {x: mhz * y for x, y in units.items() if 100 <= mhz * y < 1e4}
            hint = "".join(f"; if that is {x}, give {y:g}" for x, y in meant.items())
            raise ValueError(f"`{flag}` is {mhz:g} MHz, not the clock of a GPU{hint}.")
    return values


celsius: Final = functools.partial(positive, unit="C")
watt: Final = functools.partial(positive, unit="W")


def watts(flag: str, text: str) -> tuple[float, ...]:
    """Powers in W, as `several`."""
    return several(flag, text, watt)


def seconds(flag: str, text: str) -> float:
    """A time above 0, bare ones in s.

    >>> seconds("--max-ttft", "200ms")
    0.2
    """
    return positive(flag, text, "s")


def dtype(flag: str, text: str) -> str:
    """A number format under its own name; what is unknown stays as it is."""
    return canonical(text)


def dtypes(flag: str, text: str) -> tuple[str, ...]:
    """Comma-separated number formats, each once."""
    return tuple(dict.fromkeys(dtype(flag, name) for name in names(flag, text)))


def columns(flag: str, text: str) -> tuple[str, ...]:
    """Comma-separated names of columns."""
    words = tuple(part.strip() for part in text.split(","))
    if "" in words:
        raise ValueError(f"`{flag}` is '{text}'; give columns, such as gpu,workload.")
    return words


def seed(flag: str, text: str) -> int:
    """Whole number from 0 on."""
    value = number(flag, text)
    if value != int(value) or not 0 <= value <= MOST:
        raise ValueError(
            f"`{flag}` is '{text}'; allowed is a whole number from 0 to {MOST:,}."
        )
    return int(value)
