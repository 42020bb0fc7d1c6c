"""Estimates side by side, from the dict that `compare --json` prints."""

from collections.abc import Sequence
from typing import Any, Final

from .._blocks import Block, Table
from .._format import UNKNOWN, Entry, digits, si
from .lines import (
    BOARD_ONLY,
    WALL,
    assumed_line,
    has_node,
    title_line,
    warning_lines,
)

_COMPARED: Final = {
    "time_s": ("time", "s"),
    "energy_j": ("energy", "J"),
    "avg_power_w": ("power", "W"),
    "wall_energy_j": ("energy at the wall", "J"),
    "wall_power_w": ("power at the wall", "W"),
}
_TOKENS: Final = {
    "ttft_s": ("TTFT", "s"),
    "tpot_s": ("TPOT", "s"),
    "tokens_per_s": ("tokens/s", ""),
    "energy_j_per_token": ("energy per token", "J"),
}
_WORDS: Final = {
    "sm_clock_mhz": "SM clock",
    "limited_by": "limited by",
    "grade": "grade",
}


def sides_by_letter(content: Entry) -> dict[str, Entry]:
    """Return the compared summaries by letter, A first."""
    letters = sorted(key for key in content if len(key) == 1)
    return {letter.upper(): content[letter] for letter in letters}


def comparison_blocks(content: Entry) -> list[Block]:
    """Return the blocks that `compare` prints."""
    sides = sides_by_letter(content)
    parts: list[Block] = []
    for name, summary in sides.items():
        parts.append(f"{name}: {title_line(summary)}")
        parts.append(f"   {assumed_line(summary)}")
    lines = [
        f"{name}: {line}"
        for name, summary in sides.items()
        for line in warning_lines(summary)
    ]
    scope = WALL if any(map(has_node, sides.values())) else BOARD_ONLY
    return [*parts, comparison_table(sides), *lines, scope]


def comparison_table(sides: dict[str, Entry]) -> Table:
    """Return a table of time, energy, power and, if all sides have them, figures per
    token."""
    summaries = list(sides.values())
    rows = []
    for key, (name, unit) in (_COMPARED | _TOKENS).items():
        rows.append((name, unit, [summary.get(key) for summary in summaries]))
    needs = [(summary.get("memory") or {}).get("total") for summary in summaries]
    rows.append(("memory", "B", needs))
    entries = [_row(*row) for row in rows if all(row[2])]
    for key, name in _WORDS.items():
        first, *others = (_text(summary.get(key)) for summary in summaries)
        entries.append((name, first, *(x for word in others for x in (word, ""))))
    first, *others = sides
    columns = ("", first, *(x for side in others for x in (side, f"{side} / {first}")))
    return Table(columns, entries)


def _row(name: str, unit: str, values: Sequence[float]) -> tuple[str, ...]:
    """Row of a quantity: its value for every side, with the ratio to the first."""
    first, *words = (si(x, unit) if unit else digits(x) for x in values)
    ratios = (digits(x / values[0]) for x in values[1:])
    pairs = zip(words, ratios, strict=True)
    return (name, first, *(x for pair in pairs for x in pair))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f} MHz"
    return UNKNOWN if value is None else str(value)
