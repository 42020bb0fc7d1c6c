"""`SPEC.toml`: which flags of `estimate` are crossed, in blocks of one program."""

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from ..estimator import EstimateRequest, combinations
from ..files import read_toml
from ..power_time import POWER
from ..requests import Celsius, Clocks, Limits, Whole, accepts_type, declared
from ..schema import Finite, Positive, fitted
from ..units import MHz, quantity

WORDS: Final = ("gpu.process_node", "gpu.memory")
"""Axes that change a word of the GPU."""
GROUP: Final = ("model", "gpu", *WORDS, "phase")
"""Axes of which each combination is a program of its own."""
SHAPE: Final = ("dtype", "batch", "input_len", "output_len")
"""Axes of the workload."""
POINT: Final = ("power_limit", "sm_clock")
"""Axes of the operating point."""
AXES: Final = (*GROUP, *SHAPE, *POINT)
_Word = Annotated[str, Meta(min_length=1, description="give a text")]
_Whole = Annotated[
    int, Meta(ge=1, le=10**9, description="give a whole number from 1 on")
]
_Watts = Annotated[Positive, Meta(description="give a number above 0, in W")]
_MHz = Annotated[Positive, Meta(description="give a number above 0, in MHz")]
_Celsius = Annotated[Finite, Meta(description="give a number, in C")]
_Number = Annotated[Finite, Meta(description="give a number")]
_Flag = Annotated[bool, Meta(description="give true or false")]
_UNITS: Final = {_MHz: "MHz", _Watts: "W"}
_LEFT: Final = (
    *("plan", "num_gpus", "global_batch", "changes", "workload", "tokens"),
    *("goodput", "mtbf", "restart", "checkpoint_time", "checkpoint_every"),
)
"""Flags of an estimate that are none of a sweep's: training on many GPUs, and listings;
so are its switches that say how an answer is shown."""
_SHOWN: Final = ("detail", "sensitivity", "require_fit", *POWER)


def _kind(hint: Any) -> Any:
    """What a value of a field is in a spec: numbers in the units of the flags."""
    kinds = {
        Clocks: _MHz, Limits: _Watts, Celsius: _Celsius, Whole: _Whole, float: _Number,
        bool: _Flag,
    }  # fmt: skip
    return next((y for x, y in kinds.items() if accepts_type(hint, x)), _Word)


_KINDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(WORDS, _Word),
    **{
        field.name: _kind(field.type)
        for field, _ in declared(EstimateRequest)
        if field.name not in (*_LEFT, *_SHOWN)
    },
}
"""Flags of an estimate that may stand in a spec."""
_MOST: Final = 10**10
_RANGE: Final = 1_000_000
_Block = Annotated[int, Meta(ge=1, le=1_000_000, description="give 1 to 1,000,000")]


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
    def has_node(self) -> bool:
        """Whether rows have figures of the wall."""
        nodes = self.axes.get("node", (self.fixed.get("node", "none"),))
        return any(name != "none" for name in nodes)

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
        for group in combinations(self.axes, GROUP):
            shapes = combinations(self.axes, SHAPE)
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
    content = read_toml(Path(path), "spec", "")
    for key in content:
        if key not in ("axes", "fixed", "block"):
            raise _wrong(path, f"`{key}` is no key", "[axes], [fixed], block")
    block: int = fitted(content.get("block", 10_000), _Block, f"{path}: ", "block")
    listed, fixed = (
        fitted(content.get(key, {}), dict[str, Any], f"{path}: ", key)
        for key in ("axes", "fixed")
    )
    axes: dict[str, tuple[Any, ...]] = {}
    for key in listed:
        if key not in AXES:
            raise _wrong(path, f"[axes] `{key}` is no axis", ", ".join(AXES))
    for key in AXES:
        if key in listed:
            axes[key] = _values(path, key, listed[key])
    if not axes:
        raise _wrong(path, "[axes] has no axis", ", ".join(AXES))
    settings: dict[str, Any] = {}
    for key, value in fixed.items():
        if key in axes:
            raise _wrong(path, f"[fixed] `{key}` is an axis too", "one of both")
        if key not in _KINDS:
            raise _wrong(path, f"[fixed] `{key}` is no flag", ", ".join(_KINDS))
        settings[key] = fitted(value, _KINDS[key], f"{path}: [fixed] ", key)
    if "model" not in axes and "model" not in settings:
        raise _wrong(path, "`model` is missing", "a `model` in [axes] or [fixed]")
    spec = Spec(axes, settings, block)
    if spec.rows > _MOST:
        raise _wrong(path, f"[axes] make {spec.rows:,} rows", f"at most {_MOST:,}")
    return spec


def _values(path: str, key: str, value: Any) -> tuple[Any, ...]:
    """Values of an axis: a list, or a range as text, FROM:TO:STEP."""
    kind = _KINDS[key]
    if isinstance(value, str) and kind is not _Word and value.count(":") == 2:
        unit = _UNITS.get(kind, "")
        start, stop, step = (
            quantity(key, x, unit) / (MHz if kind is _MHz else 1.0)
            for x in value.split(":")
        )
        count = 1 + math.floor((stop - start) / step + 1e-9) if step > 0 else 0
        if not 1 <= count <= _RANGE:
            raise _wrong(
                path, f"[axes] `{key}` is '{value}'", "FROM:TO:STEP with FROM below TO"
            )
        numbers = [start + i * step for i in range(count)]
        value = [int(x) for x in numbers] if kind is _Whole else numbers
    if not isinstance(value, list) or not value:
        raise _wrong(
            path, f"[axes] `{key}` is {value!r}", "a list of values, or FROM:TO:STEP"
        )
    values = tuple(fitted(x, kind, f"{path}: [axes] ", key) for x in value)
    if len(set(values)) < len(values):
        twice = next(x for x in values if values.count(x) > 1)
        raise _wrong(path, f"[axes] `{key}` has {twice!r} twice", "each value once")
    return values


def _wrong(path: str, what: str, allowed: str) -> ValueError:
    return ValueError(f"{path}: {what}; allowed: {allowed}.")
