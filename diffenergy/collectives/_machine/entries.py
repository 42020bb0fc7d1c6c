"""`Entry`: a table of a topology file whose values are checked as they are read."""

import difflib
import math
import re
from collections.abc import Collection
from typing import Any, Final

NAMES: Final = re.compile(r"(gpu|sw|nic)?(\d+)(?:\.\.(?:(gpu|sw|nic))?(\d+))?")
"""A node, or a range of them: gpu0, 0, sw1..8; plain numbers are GPUs."""
MOST_NODES: Final = 200_000


class Entry(dict[str, Any]):
    """A table; every method raises `ValueError` naming the key that is wrong."""

    def check_keys(self, where: str, allowed: Collection[str]) -> None:
        """No keys but `allowed` ones."""
        for key in self:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=2) or allowed
                place = f" of `{where}`" if where else ""
                raise ValueError(
                    f"`{key}` is not a key{place}; nearest: {', '.join(near)}."
                )

    def rows(self, key: str) -> "list[Entry]":
        """A list of tables, empty if there is none."""
        rows = self.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            raise ValueError(f"`{key}` is {rows!r}; give tables, `[[{key}]]`.")
        return [Entry(row) for row in rows]

    def table(self, key: str) -> "Entry":
        """A table, empty if there is none."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise ValueError(f"`{key}` is {value!r}; give a table.")
        return Entry(value)

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"`{key}` is {value!r}; give text in quotes.")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self else None

    def names(self, key: str = "names") -> list[str]:
        """Nodes that a text names."""
        return expand_names(self.text(key), key)

    def flag(self, key: str) -> bool:
        """True or false; false if it is left out."""
        value = self.get(key, False)
        if not isinstance(value, bool):
            raise ValueError(f"`{key}` is {value!r}; allowed are true and false.")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value: Any = self.get(key, default)
        if type(value) is not int or value < 1:
            raise ValueError(f"`{key}` is {value!r}; give a whole number from 1 on.")
        return value

    def number(self, key: str, unit: str) -> float:
        value: Any = self.get(key)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"`{key}` is {value!r}; give a finite number ({unit}).")
        return float(value)


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
    """ "sw3" -> sw, 3."""
    prefix = name.rstrip("0123456789")
    return prefix, int(name[len(prefix) :])
