"""Text of a GPU file."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ._fields import FIELDS, WORDS
from ._files import GpuCard


def gpu_toml(card: GpuCard) -> str:
    """Text of a complete GPU file, a start for a file of one's own.

    `read_gpu` reads it back to the same numbers. Every number carries its unit in a
    comment.
    """
    lines = ["# Numbers in SI; rates are dense, per cycle of the SM clock and per SM."]
    lines += [f"{word} = {_text(getattr(card, word))}" for word in WORDS]
    if card.corrections is not None:
        lines.append(
            f"corrections = {_text(card.corrections)}  # whose corrections serve it"
        )
    lines += [
        f"{key} = {_literal(value)}"
        for key in ("machine", "lane", "links")
        if (value := getattr(card, key))
    ]
    lines += [
        f"aliases = {_literal(card.aliases)}",
        f"mem_clocks = {_literal(card.mem_clocks)}  # Hz, those that can be locked",
        "",
    ]
    lines += [
        f"{field} = {_literal(card.values[field])}  # {rule.unit}"
        for field, rule in FIELDS.items()
    ]
    tables = {
        "published": "dense peaks, FLOP/s, at the clock they are quoted at, Hz; B/s",
        "physical": "mm2 and counts",
        "provenance": "source, quality and year of every number above",
    }
    for table, comment in tables.items():
        lines += ["", f"[{table}]  # {comment}"]
        lines += [
            f"{_key(key)} = {_literal(value)}"
            for key, value in getattr(card, table).items()
        ]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda x: f"\\u{ord(x[0]):04x}", escaped)
    return f'"{escaped}"'


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _literal(value: Any) -> str:
    """TOML of a string, number, list or inline table."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _digits(value)
    if isinstance(value, Mapping):
        body = ", ".join(f"{_key(k)} = {_literal(v)}" for k, v in value.items())
        return f"{{{body}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(entry) for entry in value)}]"
    return str(value)


def _digits(value: float) -> str:
    """Shortest text that reads back to `value`: 108, 0.225, 1.41e9."""
    if not math.isfinite(value):
        return repr(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    exact = (text for n in range(18) if float(text := f"{value:.{n}e}") == value)
    mantissa, _, exponent = next(exact).partition("e")
    power = int(exponent)
    return repr(value) if -4 < power < 6 else f"{mantissa}e{power}"
