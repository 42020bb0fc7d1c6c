"""`Range`: a number that a caller wants to vary, by its name."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...hardware import CLOCK, FIELDS, NumberField
from ...plans import NETWORK_FIELD

TILES: Final = "tiles"
"""Word of `--vary` for the tiles of every matrix product."""
_UNSUITED: Final = ("warp_size", "fp32_doubled", "sm_clock_step")
"""Numbers that say what kind of hardware it is."""
_RULES: Final[Mapping[str, NumberField]] = {
    **{name: rule for name, rule in FIELDS.items() if name not in _UNSUITED},
    "sm_clock": CLOCK,
    "mem_clock": CLOCK,
    "power_cap": FIELDS["tdp"],
    NETWORK_FIELD: FIELDS["link_bandwidth"],
}
"""Fields that can be varied, with unit and range."""


@dataclasses.dataclass(frozen=True)
class Range:
    """A field that a caller wants to vary; None: default bounds. `words`: of
    `process_node` and `memory`, which of them."""

    name: str
    low: int | float | None = None
    high: int | float | None = None
    words: tuple[str, ...] = ()


def rule_of(name: str) -> NumberField:
    """Unit and range of the number `name` that can be varied.

    Raises `ValueError` for one that cannot, naming the nearest.

    >>> rule_of("power_cap").unit
    'W'
    """
    if name in _RULES:
        return _RULES[name]
    near = difflib.get_close_matches(name, [*_RULES, TILES], n=3, cutoff=0.4)
    raise ValueError(
        f"`{name}` cannot be varied; {'nearest:' if near else 'allowed are'} "
        f"{', '.join(near or _RULES)}."
    )


Vary = str | Sequence[str | Range] | Mapping[str, Sequence[Any] | None]
"""Names, `Range`s, or a mapping to bounds in SI."""
