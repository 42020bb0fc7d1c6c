"""Vocabulary of kernel listings: ops, their fields, defaults and limits."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np

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


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of an op: its kind, its default and the least value of a size.

    A default that is a function is given the fields before it (scalars or columns, by
    name) and returns the value or column.
    """

    name: str
    kind: Kind = "size"
    default: Any = REQUIRED
    minimum: float = 1.0


@dataclasses.dataclass(frozen=True)
class Op:
    """One op of the listing format and the fields that describe its shape."""

    name: str
    fields: tuple[Field, ...]


CHOICES: Final = {"layout": ("nn", "nt", "tn", "tt"), "weights": ("a", "b", "none")}
"""Words that text fields allow."""
DISTRIBUTION: Final = re.compile(r"balanced|power_law_(\d+(?:\.\d+)?)")
"""Words that the field `distribution` allows."""
_HEADS: Final = (("num_kv_heads", "num_heads"),)
DIVIDES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "conv2d": (("groups", "in_channels"), ("groups", "out_channels")),
    "context_attention": _HEADS,
    "generation_attention": _HEADS,
    "attention_backward": _HEADS,
    "moe": (("moe_ep_size", "num_experts"),),
}
"""Pairs of fields of an op of which the first divides the second."""

_TILE: Final = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "warps", "threads")
TILE_FIELDS: Final = tuple(Field(name, default=0.0, minimum=0.0) for name in _TILE)
"""Tile of any kernel; 0 means "not given", the model then chooses."""

HAND_TILE: Final = ("mdimc", "ndimc", "mdima", "ndimb", "vwm", "vwn", "sa", "sb")
"""Threads, staging threads, vector widths and staging of a hand-made fp32 product
(`Xgemm`); 0 where there is none."""

COMMON_FIELDS: Final = (
    Field("count", default=1.0, minimum=0.0),
    Field("zero_share", "share", 0.0, 0.0),
    Field("listed", "bool", True),
    Field("layout", "text", ""),
    Field("family", "text", ""),
    Field("framework", "text", ""),
    *TILE_FIELDS,
    *(Field(name, default=0.0, minimum=0.0) for name in HAND_TILE),
)
"""Optional on every kernel. `zero_share`: share of zeros in the operands; `listed`:
false for kernels that a trace does not name."""
