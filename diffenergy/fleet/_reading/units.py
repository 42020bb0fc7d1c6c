"""Columns that say the same in another unit."""

from collections.abc import Sequence
from typing import Final

from ...measurements import Sheet

_OTHERS: Final = {
    "per_s": ("per_min", "per_h", "per_hour", "per_day"),
    "s": ("ms", "us"),
    "w": ("kw", "mw"),
    "mhz": ("hz", "khz", "ghz"),
}
"""By the unit that a column ends in, units that are not read."""
_SAID: Final = {"per_s": "1/s", "w": "W", "mhz": "MHz"}


def check_units(sheet: Sheet, columns: Sequence[str]) -> None:
    """Raises `ValueError` unless each quantity stands once, in its own unit."""
    for column in columns:
        unit = next((x for x in _OTHERS if column.endswith(f"_{x}")), None)
        if unit is None:
            continue
        stem = column.removesuffix(unit)
        for other in _OTHERS[unit]:
            if f"{stem}{other}" in sheet.columns:
                raise ValueError(
                    f"{sheet.file}: there is a column `{stem}{other}`; allowed is "
                    f"`{column}` alone, in {_SAID.get(unit, unit)}; convert it."
                )
