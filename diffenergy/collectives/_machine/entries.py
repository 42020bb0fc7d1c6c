"""Entries of topology files: text, numbers, flags and lists of nodes, each checked."""

import difflib
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

NAMES: Final = re.compile(r"(gpu|sw|nic)?(\d+)(?:\.\.(?:(gpu|sw|nic))?(\d+))?")
"""A node, or a range of them: gpu0, 0, sw1..8; plain numbers are GPUs."""
MOST_NODES: Final = 200_000


def check_keys(where: str, row: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raises `ValueError` for a key of `row` that is none of `allowed`."""
    for key in row:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=2) or allowed
            place = f" of `{where}`" if where else ""
            raise ValueError(
                f"`{key}` is not a key{place}; nearest: {', '.join(near)}."
            )


def expand_names(text: str, key: str) -> list[str]:
    """ "sw0..2 5" -> sw0, sw1, sw2, gpu5."""
    names = []
    for word in text.split():
        found = NAMES.fullmatch(word)
        prefix = (found[1] or "gpu") if found else ""
        if not found or found[3] not in (None, prefix):
            raise ValueError(
                f"`{key}` has {word!r}; allowed are names such as gpu0, sw0, nic0..7."
            )
        first = int(found[2])
        last = int(found[4] or first)
        if not first <= last < MOST_NODES:
            raise ValueError(
                f"`{key}` has {word!r}; a range rises, below {MOST_NODES}."
            )
        names += [f"{prefix}{number}" for number in range(first, last + 1)]
    return names


def split_name(name: str) -> tuple[str, int]:
    prefix = name.rstrip("0123456789")
    return prefix, int(name[len(prefix) :])


def rows(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = table.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise ValueError(f"`{key}` is {rows!r}; give tables, `[[{key}]]`.")
    return rows


def subtable(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"`{key}` is {value!r}; give a table.")
    return value


def text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{key}` is {value!r}; give text in quotes.")
    return value


def optional_text(row: Mapping[str, Any], key: str) -> str | None:
    return text(row, key) if key in row else None


def flag(row: Mapping[str, Any], key: str, default: bool) -> bool:
    value = row.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"`{key}` is {value!r}; allowed are true and false.")
    return value


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def count(row: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = row.get(key, default)
    if not is_int(value) or value < 1:
        raise ValueError(f"`{key}` is {value!r}; give a whole number from 1 on.")
    return value


def number(key: str, value: Any, unit: str) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(value):
        raise ValueError(f"`{key}` is {value!r}; give a finite number ({unit}).")
    return float(value)
