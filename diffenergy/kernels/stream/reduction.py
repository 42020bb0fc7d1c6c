"""Row reductions: softmax, layer norm, RMS norm."""

from typing import Final

import numpy as np

from ...dtypes import BYTES, stored_bytes
from .._launch import Context, Fields, Launches
from .._ops import Field, Op, TraceClass
from . import SCALAR_ACCESS, stream_launches


def _fields(cols: Field) -> tuple[Field, ...]:
    kind, residual = Field("dtype", "dtype"), Field("residual", "bool", False)
    return (Field("rows"), cols, kind, residual)


OPS: Final = (
    Op(
        "softmax",
        _fields(Field("cols", whole=False)),  # causal rows: their mean
        part="small",
        activation_bytes=lambda k: 2 * k["rows"] * k["cols"] * stored_bytes(k["dtype"]),
    ),
    Op("layernorm", _fields(Field("cols")), part="small"),
    Op("rmsnorm", _fields(Field("cols")), part="small"),
)
TRACE: Final = TraceClass(
    "norm",
    {
        80: r"[a-z]*norm(?!al(?!i))|soft_?max|reduce|triton_(?:red|per)|cub::|bn_|rms"
        r"|gammabeta|mean|welford|(?:search)?sort|radix|scan|cumsum|[a-z]*pool(?!ed)"
        r"|argmax|topk"
    },
    shares=(0.0, 0.3, 0.5, 0.65),
)

_PASSES: Final = 4.0
"""Accesses to an element of a long row by PyTorch's softmax: to find the greatest, to
sum, to divide, and to write."""
_LONG: Final = 1024
"""Columns up to which a warp holds a row of a softmax."""
_ALIGNED: Final = 16
"""B: rows of other lengths are read element by element."""
_INSTRUCTIONS: Final = {"softmax": 12.0, "layernorm": 12.0, "rmsnorm": 8.0}
"""Lane instructions per element, all passes over the row together."""


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row: a CTA a row (four rows where they are short); `residual` adds
    the sum of a skip connection in the same kernel (two reads, two writes)."""
    rows, cols = fields["rows"], fields["cols"]
    elements = rows * cols
    tensors = 1.0 + fields["residual"]
    size = elements * tensors * np.asarray(BYTES)[fields["dtype"]]
    width = cols * np.asarray(BYTES)[fields["dtype"]]
    odd = (cols > _LONG) & (cols % 1 == 0) & (width % _ALIGNED != 0)
    alone = _PASSES * SCALAR_ACCESS * (odd & (op == "softmax"))
    short = np.where(cols <= 1024, 4.0, 1.0)
    launches = stream_launches(
        size,
        size,
        rows=None,
        issue=elements * (_INSTRUCTIONS[op] + alone),
        sfu=elements * (op == "softmax"),
        zero_share=fields["zero_share"],
        threads=np.clip(cols / 4, 128.0, 1024.0),
        ctas=np.ceil(rows / short),
    )
    return [launches]
