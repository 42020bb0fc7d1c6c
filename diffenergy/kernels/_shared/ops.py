"""Vocabulary of kernel listings: ops, their fields, defaults and limits."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np

from ...dtypes import DTYPES, STORED, stored_bytes

REQUIRED: Final = object()
Kind = Literal["size", "dtype", "bool", "text", "share"]
Default = Callable[[Mapping[str, Any]], Any]


def same_as(name: str) -> Default:
    """Default that copies another field."""
    return lambda fields: fields[name]


def output_dtype(fields: Mapping[str, Any]) -> Any:
    """Default output type: the operands', bf16 where these are below 16 bit."""
    dtype = np.asarray(fields["dtype"])
    wide = np.where(np.isin(dtype, ("fp32", "tf32", "bf16", "fp16")), dtype, "bf16")
    return wide if wide.ndim else str(wide)


def on_tensor_cores(fields: Mapping[str, Any]) -> Any:
    """Default of `tensor_core`: every type but fp32."""
    tensor = np.asarray(fields["dtype"]) != "fp32"
    return tensor if tensor.ndim else bool(tensor)


_NUMBER: Final = "[0-9]+(?:[.][0-9]+)?"


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of an op: its kind, its default, the least value of a size and whether
    a listing gives it `whole` (not so a mean or a time).

    A default that is a function is given the fields before it (scalars or columns, by
    name) and returns the value or column. `choices`: the words that a text allows, any
    if there are none; a word that ends in `_X` allows every number there. `divides`:
    sizes of the op that this one has to divide. `quiet`: a row has it only where it is
    not the default.
    """

    name: str
    kind: Kind = "size"
    default: Any = REQUIRED
    minimum: float = 1.0
    whole: bool = True
    choices: tuple[str, ...] = ()
    divides: tuple[str, ...] = ()
    quiet: bool = False

    def takes(self, word: str) -> bool:
        """Whether a text may be `word`.

        >>> Field("kind", "text", choices=("even", "power_X")).takes("power_1.5")
        True
        """
        if not self.choices or word == self.default:
            return True
        patterns = (re.sub("_X$", f"_{_NUMBER}", x) for x in self.choices)
        return any(re.fullmatch(pattern, word) for pattern in patterns)


@dataclasses.dataclass(frozen=True)
class Op:
    """One op of the listing format and the fields that describe its shape.

    `named`: sizes by which tables call a kernel [those that a row must say].
    `products`: whether `dtype` is that of products on tensor cores, which a GPU may
    lack. `wrong`: says of a row whose fields are each allowed why they cannot be
    together, "" where they can.
    """

    name: str
    fields: tuple[Field, ...]
    named: tuple[str, ...] = ()
    products: bool = False
    wrong: Callable[[Mapping[str, Any]], str] = lambda kernel: ""

    @property
    def required(self) -> tuple[str, ...]:
        """Sizes that a row must say."""
        return tuple(
            field.name
            for field in self.fields
            if field.kind == "size" and field.default is REQUIRED
        )

    @property
    def divisions(self) -> tuple[tuple[str, str], ...]:
        """Pairs of fields of which the first divides the second."""
        return tuple((x.name, whole) for x in self.fields for whole in x.divides)


_TILE: Final = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "warps", "threads")
TILE_FIELDS: Final = tuple(Field(name, default=0.0, minimum=0.0) for name in _TILE)
"""Tile of any kernel; 0 means "not given", the model then chooses."""

HAND_TILE: Final = ("mdimc", "ndimc", "mdima", "ndimb", "vwm", "vwn", "sa", "sb")
"""Threads, staging threads, vector widths and staging of a hand-made fp32 product
(`Xgemm`); 0 where there is none."""

COMMON_FIELDS: Final = (
    Field("count", default=1.0, minimum=0.0, whole=False),
    Field("zero_share", "share", 0.0, 0.0),
    Field("listed", "bool", True),
    Field("layout", "text", "", choices=("nn", "nt", "tn", "tt")),
    Field("family", "text", ""),
    Field("framework", "text", ""),
    Field("weight_dtype", "text", "", choices=STORED),
    Field("weight_group", default=0.0, minimum=0.0),
    *TILE_FIELDS,
    *(Field(name, default=0.0, minimum=0.0) for name in HAND_TILE),
)
"""Optional on every kernel. `zero_share`: share of zeros in the operands; `listed`:
false for kernels that a trace does not name; `weight_dtype`: what the weights of
products are stored in where it is not `dtype`, `weight_group`: their elements a scale
(0: the type's own)."""


def weight_bytes(fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """Bytes of a stored weight's element, of columns as `lower` has them."""
    columns = (fields[name] for name in ("weight_dtype", "weight_group", "dtype"))
    return np.array(
        [
            stored_bytes(str(name) or DTYPES[dtype], float(group))
            for name, group, dtype in zip(*columns, strict=True)
        ],
        dtype=float,
    )
