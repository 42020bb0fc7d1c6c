"""`SPEC.toml`: which flags of `estimate` are crossed, in blocks of one program."""

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..files import read_toml
from ..units import MHz, quantity

GROUP: Final = ("model", "gpu", "phase")
"""Axes of which each combination is a program of its own."""
SHAPE: Final = ("dtype", "batch", "input_len", "output_len")
"""Axes of the workload."""
POINT: Final = ("power_limit", "sm_clock")
"""Axes of the operating point."""
AXES: Final = (*GROUP, *SHAPE, *POINT)
_FIXED: Final = (
    *AXES, "mem_clock", "temperature", "kv_dtype", "attention", "stack", "dispatch",
    "tp", "topology", "routing", "accumulation", "checkpointing",
)  # fmt: skip
_WHOLE: Final = ("batch", "input_len", "output_len", "tp", "accumulation")
_UNITS: Final = {"sm_clock": "MHz", "mem_clock": "MHz", "power_limit": "W"}
_PLAIN: Final = ("temperature", "checkpointing")
"""A number in C, and true or false; the rest are texts."""
_TEXTS: Final = tuple(x for x in _FIXED if x not in (*_WHOLE, *_UNITS, *_PLAIN))
_MOST: Final = 10**10
_MOST_BLOCK: Final = 1_000_000
_RANGE: Final = 1_000_000


@dataclasses.dataclass(frozen=True)
class Block:
    """`number` of a block, the axes of its program, its workloads, all points."""

    number: int
    group: Mapping[str, Any]
    shapes: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Spec:
    """`axes`: values by axis, in the order of `AXES`; `fixed`: other arguments, units
    as the flags; `block`: estimates of a block."""

    axes: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any]
    block: int = 10_000

    @property
    def rows(self) -> int:
        """How many configurations there are."""
        return math.prod(len(x) for x in self.axes.values())

    @property
    def points(self) -> int:
        """Operating points of each workload."""
        return math.prod(len(self.axes[x]) for x in POINT if x in self.axes)

    @property
    def hash(self) -> str:
        """Tells one sweep from another: the same for the same rows in such blocks."""
        content = {"axes": self.axes, "fixed": self.fixed, "block": self.block}
        text = json.dumps(content, sort_keys=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def shapes_a_block(self) -> int:
        """Workloads of a block."""
        return max(1, self.block // self.points)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        groups = math.prod(len(self.axes[x]) for x in GROUP if x in self.axes)
        shapes = math.prod(len(self.axes[x]) for x in SHAPE if x in self.axes)
        return groups * -(-shapes // self.shapes_a_block)

    def listed(self) -> Iterator[Block]:
        """All blocks in order."""
        number = 0
        for group in crossed(self.axes, GROUP):
            shapes = crossed(self.axes, SHAPE)
            while part := list(itertools.islice(shapes, self.shapes_a_block)):
                yield Block(number, group, part)
                number += 1

    def to_json(self) -> dict[str, Any]:
        """All of it, and its hash."""
        return {
            "spec_hash": self.hash,
            "axes": {x: list(y) for x, y in self.axes.items()},
            "fixed": dict(self.fixed),
            "block": self.block,
        }


def read_spec(path: str) -> Spec:
    """Reads the SPEC.toml at `path`.

    Raises `ValueError` in one sentence that names table, key, value and remedy.
    """
    content = read_toml(Path(path), "spec", "spec.toml")
    for key in content:
        if key not in ("axes", "fixed", "block"):
            raise _wrong(path, f"`{key}` is no key", "[axes], [fixed], block")
    block = content.get("block", 10_000)
    whole = isinstance(block, int) and not isinstance(block, bool)
    if not whole or not 1 <= block <= _MOST_BLOCK:
        raise _wrong(path, f"`block` is {block!r}", f"1 to {_MOST_BLOCK:,}")
    given, fixed = content.get("axes", {}), content.get("fixed", {})
    for name, table in (("axes", given), ("fixed", fixed)):
        if not isinstance(table, dict):
            raise _wrong(path, f"`{name}` is no table", f"a table [{name}]")
    axes: dict[str, tuple[Any, ...]] = {}
    for key in given:
        if key not in AXES:
            raise _wrong(path, f"[axes] `{key}` is no axis", ", ".join(AXES))
    for key in AXES:
        if key in given:
            axes[key] = _values(path, key, given[key])
    if not axes:
        raise _wrong(path, "[axes] has no axis", ", ".join(AXES))
    taken: dict[str, Any] = {}
    for key, value in fixed.items():
        if key in axes:
            raise _wrong(path, f"[fixed] `{key}` is an axis too", "one of both")
        if key not in _FIXED:
            raise _wrong(path, f"[fixed] `{key}` is no flag", ", ".join(_FIXED))
        taken[key] = _value(path, "fixed", key, value)
    if "model" not in axes and "model" not in taken:
        raise _wrong(path, "`model` is missing", "a `model` in [axes] or [fixed]")
    found = Spec(axes, taken, block)
    if found.rows > _MOST:
        raise _wrong(path, f"[axes] make {found.rows:,} rows", f"at most {_MOST:,}")
    return found


def _values(path: str, key: str, given: Any) -> tuple[Any, ...]:
    """Values of an axis: a list, or a range as text, FROM:TO:STEP."""
    if isinstance(given, str) and key not in _TEXTS and given.count(":") == 2:
        start, stop, step = (
            quantity(key, x, _UNITS.get(key, "")) / _scale(key)
            for x in given.split(":")
        )
        count = 1 + math.floor((stop - start) / step + 1e-9) if step > 0 else 0
        if not 1 <= count <= _RANGE:
            raise _wrong(
                path, f"[axes] `{key}` is '{given}'", "FROM:TO:STEP with FROM below TO"
            )
        found = [start + i * step for i in range(count)]
        given = [int(x) for x in found] if key in _WHOLE else found
    if not isinstance(given, list) or not given:
        raise _wrong(
            path, f"[axes] `{key}` is {given!r}", "a list of values, or FROM:TO:STEP"
        )
    values = tuple(_value(path, "axes", key, x) for x in given)
    if len(set(values)) < len(values):
        twice = next(x for x in values if values.count(x) > 1)
        raise _wrong(path, f"[axes] `{key}` has {twice!r} twice", "each value once")
    return values


def _value(path: str, table: str, key: str, value: Any) -> Any:
    """One value as the flag takes it."""
    shown = f"[{table}] `{key}` is {value!r}"
    if key in _TEXTS:
        if not isinstance(value, str) or not value:
            raise _wrong(path, shown, "a text")
    elif key in _WHOLE:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= 10**9:
            raise _wrong(path, shown, "a whole number from 1 on")
    elif key == "checkpointing":
        if not isinstance(value, bool):
            raise _wrong(path, shown, "true or false")
    else:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise _wrong(path, shown, f"a number, in {_UNITS.get(key, 'C')}")
        if key in _UNITS and value <= 0:
            raise _wrong(path, shown, f"a number above 0, in {_UNITS[key]}")
        return float(value)
    return value


def _scale(key: str) -> float:
    return MHz if _UNITS.get(key) == "MHz" else 1.0


def crossed(
    axes: Mapping[str, Sequence[Any]], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Every combination of the axes among `names`, the first outermost."""
    known = [x for x in names if x in axes]
    for values in itertools.product(*(axes[x] for x in known)):
        yield dict(zip(known, values, strict=True))


def _wrong(path: str, what: str, allowed: str) -> ValueError:
    return ValueError(f"{path}: {what}; allowed: {allowed}.")
