"""Strict reading of the numbers of a command line; all errors are `ValueError`."""

import math
import re
from typing import Final

from ...units import MHz

MOST: Final = 10**9
"""Largest batch or length; more is a slip of the keyboard."""
_UNIT: Final = re.compile(r"([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%]+)")
_NUMBER: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def number(flag: str, text: str, unit: str = "") -> float:
    """Finite number; `unit` is what the flag is read in, for the message."""
    text = text.strip()
    found = _UNIT.fullmatch(text)
    if found and unit:
        raise ValueError(
            f"`{flag}` is '{text}'; give {unit} as a number, such as {found[1]}."
        )
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        in_unit = f" ({unit})" if unit else ""
        raise ValueError(f"`{flag}` is '{text}'; allowed is a finite number{in_unit}.")
    return value


def positive(flag: str, text: str, unit: str = "") -> float:
    """Finite number above 0."""
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


def positives(flag: str, text: str, unit: str) -> list[float]:
    """Comma-separated numbers above 0, each once, in the order given."""
    values = [positive(flag, part, unit) for part in text.split(",")]
    return list(dict.fromkeys(values))


def clocks(flag: str, text: str) -> tuple[float, ...]:
    """Comma-separated clocks in MHz -> Hz.

    >>> clocks("--sm-clock", "900,1410")
    (900000000.0, 1410000000.0)
    """
    values = positives(flag, text, "MHz")
    for value in values:
        if value < 10 or value > 1e5:
            slip, meant = ("GHz", value * 1e3) if value < 10 else ("Hz", value / 1e6)
            hint = f"; if that is {slip}, give {meant:g}" if 100 <= meant < 1e4 else ""
            raise ValueError(f"`{flag}` is '{value:g}'; it is read in MHz{hint}.")
    return tuple(value * MHz for value in values)


def watts(flag: str, text: str) -> tuple[float, ...]:
    """Comma-separated powers in W."""
    return tuple(positives(flag, text, "W"))


def celsius(flag: str, text: str) -> float:
    """A temperature in C."""
    return positive(flag, text, "C")


def dtype(flag: str, text: str) -> str:
    """A number format under its own name; what is unknown stays as it is."""
    from ...dtypes import SYNONYMS

    return SYNONYMS.get(text, text)


def columns(flag: str, text: str) -> tuple[str, ...]:
    """Comma-separated names of columns."""
    found = tuple(part.strip() for part in text.split(","))
    if "" in found:
        raise ValueError(f"`{flag}` is '{text}'; give columns, such as gpu,workload.")
    return found


def seed(flag: str, text: str) -> int:
    """Whole number from 0 on."""
    value = number(flag, text)
    if value != int(value) or not 0 <= value <= MOST:
        raise ValueError(
            f"`{flag}` is '{text}'; allowed is a whole number from 0 to {MOST:,}."
        )
    return int(value)


def assignments(flag: str, texts: list[str]) -> dict[str, float]:
    """`FIELD=VALUE`, each field once."""
    found: dict[str, float] = {}
    for text in texts:
        field, value = assignment(flag, text)
        if field in found:
            raise ValueError(f"`{flag} {field}` is given twice; give it once.")
        found[field] = value
    return found


def assignment(flag: str, text: str) -> tuple[str, float]:
    """`FIELD=VALUE` -> (field, value).

    >>> assignment("--set", "l2_capacity=5e7")
    ('l2_capacity', 50000000.0)
    """
    field, equals, value = text.partition("=")
    if not equals or not field.strip():
        raise ValueError(
            f"`{flag}` is '{text}'; give FIELD=VALUE, such as dram_bandwidth=6.7e12."
        )
    return field.strip(), number(f"{flag} {field.strip()}", value)
