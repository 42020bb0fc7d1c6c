"""Types of listings, and bytes, of the types that frameworks and graphs name."""

import math
from collections.abc import Sequence
from typing import Final

from ...dtypes import BYTES
from ...dtypes import code as dtype_code
from ...workload import Number

_NAMES: Final = {
    "bfloat16": "bf16", "bf16": "bf16",
    "half": "fp16", "float16": "fp16", "f16": "fp16",
    "float": "fp32", "float32": "fp32", "f32": "fp32",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8_e4m3": "fp8",
}  # fmt: skip
_WIDE: Final = {
    name.strip(): size
    for size, names in (
        (8.0, "double, float64, long int, long, int64, uint64, complex64"),
        (4.0, "int, int32, uint32"),
        (2.0, "short, int16, uint16"),
        (1.0, "bool, int8, uint8, char, signed char, unsigned char, byte"),
        (0.5, "int4, uint4"),
    )
    for name in names.split(",")
}
"""Bytes of an element of types that listings do not have: they only move."""
_CARRIERS: Final = ((8.0, "fp32"), (4.0, "fp32"), (2.0, "bf16"), (0.0, "int8"))
"""(bytes from, type) that stands for a type that only moves."""


def listing_type(name: str) -> str | None:
    """Type of a listing, None for types that it does not have.

    >>> listing_type("c10::BFloat16"), listing_type("long int")
    ('bf16', None)
    """
    return _NAMES.get(name.lower().removeprefix("c10::"))


def element_bytes(name: str) -> float | None:
    """Bytes of an element, None for what is no type of a tensor.

    >>> element_bytes("long int"), element_bytes("Scalar")
    (8.0, None)
    """
    dtype = listing_type(name)
    return BYTES[dtype_code(dtype)] if dtype else _WIDE.get(name.lower())


def carrier(name: str) -> str:
    """Type of a listing whose elements a tensor that only moves is counted in.

    >>> carrier("long int"), carrier("bool")
    ('fp32', 'int8')
    """
    dtype, size = listing_type(name), element_bytes(name) or 4.0
    return dtype or next(kind for least, kind in _CARRIERS if size >= least)


def elementwise_row(
    fn: str,
    elements: Number,
    reads: Sequence[tuple[Number, str]],
    writes: Sequence[tuple[Number, str]],
) -> dict[str, object]:
    """Element-wise row of `elements` that reads and writes tensors of (elements, type).

    Bytes are kept: reads and writes are counted in elements of the first type.
    """
    size = lambda kind: element_bytes(kind) or 4.0  # noqa: E731
    first = (*reads, *writes)[0][1]
    dtype = carrier(first)
    out = carrier(writes[0][1]) if writes else dtype
    per = lambda parts, kind: (  # noqa: E731
        sum(n * size(x) for n, x in parts) / BYTES[dtype_code(kind)] / max(elements, 1)
    )
    return {
        "op": "elementwise",
        "fn": fn,
        "elements": elements,
        "dtype": dtype,
        "out_dtype": out,
        "reads": _short(per(reads, dtype)),
        "writes": _short(per(writes, out)),
    }


def gather_row(rows: int, cols: int, kind: str) -> dict[str, object]:
    """Row of a gather of `rows` of `cols` elements of type `kind`."""
    dtype = carrier(kind)
    wide = (element_bytes(kind) or 4.0) / 4 if dtype == "fp32" else 1.0
    return {"op": "gather", "rows": rows, "cols": int(cols * wide), "dtype": dtype}


def _short(x: Number) -> float:
    """Six digits, so that rows of one kind are equal."""
    return float(f"{x:.6g}")


def numel(sizes: Sequence[int]) -> int:
    """Elements of a tensor."""
    return math.prod(sizes)
