"""Vocabulary of kernel listings: ops, their fields, defaults and limits."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np

from ..dtypes import DTYPES, STORED, stored_bytes

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
    name) and returns the value or column. `choices`: the words that a text allows, or a
    function that returns them, any if there are none; a word that ends in `_X` allows
    every number there. `divides`:
    sizes of the op that this one has to divide. `quiet`: a row has it only where it is
    not the default.
    """

    name: str
    kind: Kind = "size"
    default: Any = REQUIRED
    minimum: float = 1.0
    whole: bool = True
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    divides: tuple[str, ...] = ()
    quiet: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words that a text allows, none if it allows all."""
        return self.choices() if callable(self.choices) else self.choices

    def takes(self, word: str) -> bool:
        """Whether a text may be `word`.

        >>> Field("kind", "text", choices=("even", "power_X")).takes("power_1.5")
        True
        """
        words = self.words
        if not words or word == self.default:
            return True
        patterns = (re.sub("_X$", f"_{_NUMBER}", x) for x in words)
        return any(re.fullmatch(pattern, word) for pattern in patterns)


Row = Mapping[str, Any]
"""A row of a listing: the fields of its op by name."""
Part = Literal["linear", "attention", "communication", "experts", "small"]
"""Part of a served step: kernels that see all tokens at once, those that see one
sequence at a time, exchanges; of the first, experts and small kernels (norms,
quantisation, softmax, rotary, adds) apart."""


@dataclasses.dataclass(frozen=True)
class Op:
    """One op of the listing format, the fields that describe its shape, and what other
    rooms need to know of its rows.

    `named`: sizes by which tables call a kernel [those that a row must say].
    `known_as`: the op whose fitted rows say how well this one is known [itself].
    `moved`: columns of files of earlier versions, and the op that has them now.
    `products`: whether `dtype` is that of products on tensor cores, which a GPU may
    lack. `wrong`: says of a row whose fields are each allowed why they cannot be
    together, "" where they can. `remark`: what had to be assumed of a row as written,
    "" for nothing. `part`: of a served step. `model_flop`: FLOP of the products that a
    model asks of a launch, for its utilization. `activation_bytes`: bytes of the
    activations that a launch reads and writes; 0 where it touches no more than the
    products beside it.
    """

    name: str
    fields: tuple[Field, ...]
    named: tuple[str, ...] = ()
    known_as: str = ""
    moved: Mapping[str, str] = dataclasses.field(default_factory=dict)
    products: bool = False
    wrong: Callable[[Row], str] = lambda kernel: ""
    remark: Callable[[Row], str] = lambda kernel: ""
    part: Part = "linear"
    model_flop: Callable[[Row], float] = lambda kernel: 0.0
    activation_bytes: Callable[[Row], float] = lambda kernel: 0.0

    @property
    def required(self) -> tuple[str, ...]:
        """Sizes that a row must say."""
        return tuple(
            field.name
            for field in self.fields
            if field.kind == "size" and field.default is REQUIRED
        )

    def misplaced(self, field: str) -> str:
        """Why a row cannot have one of the `moved` columns, and the remedy."""
        return (
            f"`{field}` is no field of the op '{self.name}'; allowed is the op "
            f"'{self.moved[field]}': name that"
        )

    @property
    def divisions(self) -> tuple[tuple[str, str], ...]:
        """Pairs of fields of which the first divides the second."""
        return tuple((x.name, whole) for x in self.fields for whole in x.divides)


@dataclasses.dataclass(frozen=True)
class TraceClass:
    """How traces show the kernels of a class (`TRACE` of its module).

    `patterns`: regular expressions by rank; of all classes' the first, by rank, that
    hits a kernel's name at the start of a word, whatever its case, says its class. The
    order matters:
    `flash_fwd_combine` is attention though it reduces, `wgrad_gemm` a convolution
    though it is a product. `shares`: of the peaks of tensor pipes, instruction slots,
    L2 and DRAM that its kernels keep busy, for the power of those whose shape no trace
    says. `matrix`: whether its kernels carry the row of a matrix operator.
    """

    name: str
    patterns: Mapping[int, str]
    shares: tuple[float, float, float, float]
    matrix: bool = False


UNKNOWN_CLASS: Final = "unknown"
"""Class in traces of kernels whose names say nothing."""

_TILE: Final = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "warps", "threads")
TILE_FIELDS: Final = tuple(Field(name, default=0.0, minimum=0.0) for name in _TILE)
"""Tile of any kernel; 0 means "not given", the model then chooses."""

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
