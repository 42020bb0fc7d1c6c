"""Element-wise kernels: maps, casts, copies, fused activations."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...dtypes import BYTES, stored_bytes
from .._launch import Context, Fields, Launches
from .._ops import Field, Op, Row, TraceClass
from . import SCALAR_ACCESS, stream_launches

TWO_READS: Final = (
    "pointwise_add", "pointwise_mul", "pointwise_sub", "pointwise_div", "add", "mul",
    "sub", "div", "silu_mul", "gelu_mul",
)  # fmt: skip
ONE_READ: Final = (
    "scalar_add", "scalar_mul", "unspecified_scalar", "unspecified_tensor", "relu",
    "gelu", "silu", "tanh", "exp", "pow", "copy", "cast", "typecast_to_fp32",
    "typecast_to_bf16", "typecast_to_fp16",
)  # fmt: skip
_TRANSCENDENTAL: Final = ("gelu", "silu", "tanh", "exp", "pow", "silu_mul", "gelu_mul")
_STRIDED: Final = ("where", "unspecified_tensor")
"""Maps of which one operand is broadcast, as in sums and products of one read."""
_ONE_BY_ONE: Final = "strided_"
"""Beginning of the names of maps that find the address of every element of every
operand, because one is transposed or broadcast (PyTorch's `elementwise_kernel`)."""
_JOINED: Final = "strided_cat"
_JOINED_MORE: Final = 1.45
"""The same of `cat`, whose kernel fills half of each SM: 3.7 to 4.9 ps an element on an
H100 where a strided copy takes 3.0."""
_INSTRUCTIONS: Final = 4.0
"""Lane instructions per element: address, load, operation, store (vectorised)."""


def _reads(fields: Mapping[str, Any]) -> Any:
    reads = np.where(
        np.isin(np.asarray(fields["fn"], object).astype(str), TWO_READS), 2.0, 1.0
    )
    return reads if reads.ndim else float(reads)


def _out_dtype(fields: Mapping[str, Any]) -> Any:
    fn = np.asarray(fields["fn"], object).astype(str)
    out = np.asarray(fields["dtype"], object).astype(str).astype("U16")
    for name in ("fp32", "bf16", "fp16"):
        out = np.where(fn == f"typecast_to_{name}", name, out)
    return out if out.ndim else str(out)


def _remark(raw: Row) -> str:
    """Remark on a name whose traffic had to be assumed."""
    if raw["fn"] in (*ONE_READ, *TWO_READS) or "reads" in raw:
        return ""
    return f"`fn` '{raw['fn']}' is unknown: taken to read and write each element once"


def _activation_bytes(k: Row) -> float:
    written = k["writes"] * stored_bytes(k["out_dtype"])
    return k["elements"] * (k["reads"] * stored_bytes(k["dtype"]) + written)


OPS: Final = (
    Op(
        "elementwise",
        (
            Field("fn", "text"),
            Field("elements"),
            Field("dtype", "dtype"),
            Field("out_dtype", "dtype", _out_dtype),
            Field("reads", default=_reads, minimum=0.0, whole=False),
            Field("writes", default=1.0, minimum=0.0, whole=False),
        ),
        remark=_remark,
        part="small",
        activation_bytes=_activation_bytes,
    ),
)
TRACE: Final = TraceClass(
    "elementwise",
    {
        90: r"rotary|rope",
        110: r"elementwise|pointwise|copy|fill|(?:de|re)?quant|adam|foreach"
        r"|multi_tensor|triton_poi|dropout|activation|act_and_mul|silu"
        r"|gelu|subtensorop|op_?tensor|scalepackedtensor|where|(?:broad)?cast"
        r"|tanh|[a-z]*relu|add_|mul_|loop_|input_|fused_|fusion|memset|memcpy"
        r"|threshold|distribution|arange|range|triu|tril|random|philox"
        r"|bias|mask|lerp|pow(?![a-z])|r?sqrt|clamp",
    },
    shares=(0.0, 0.3, 0.55, 0.7),
)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row; `reads` and `writes` are per element of `elements`."""
    size = np.asarray(BYTES)
    elements, fn = fields["elements"], fields["fn"].astype(str)
    alone = np.char.startswith(fn, _ONE_BY_ONE) * (fields["reads"] + fields["writes"])
    alone = alone * np.where(fn == _JOINED, _JOINED_MORE, 1.0)
    strided = np.isin(fn, _STRIDED) | np.isin(fn, TWO_READS) & (fields["reads"] < 2)
    launches = stream_launches(
        elements * fields["reads"] * size[fields["dtype"]],
        elements * fields["writes"] * size[fields["out_dtype"]],
        issue=elements * (_INSTRUCTIONS + SCALAR_ACCESS * alone),
        strided=elements * strided,
        sfu=elements * np.isin(fn, _TRANSCENDENTAL),
        zero_share=fields["zero_share"],
    )
    return [launches]
