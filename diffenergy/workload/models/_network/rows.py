"""Rows of products, reductions and gathers, as models write them."""

from collections.abc import Sequence
from typing import Any

from ..._kernel import Kernel, Number
from .._shared.formats import Precision


def linear(
    precision: Precision, outputs: Number, tokens: Number, inputs: Number, **extra: Any
) -> Kernel:
    """`nn.Linear` as traces write it: m = output features, n = tokens."""
    return _gemm(precision.linear, outputs, tokens, inputs) | {
        "layout": "tn",
        "weights": "a",
        **extra,
    }


def dense(
    dtype: str, tokens: Number, outputs: Number, inputs: Number, **extra: Any
) -> Kernel:
    """Linear layer with m = tokens, n = output features and weights as operand b."""
    return _gemm(dtype, tokens, outputs, inputs) | {"weights": "b", **extra}


def product(
    dtype: str, batch: Number, m: Number, n: Number, k: Number, **extra: Any
) -> Kernel:
    """Batched product of two activations."""
    return _gemm(dtype, m, n, k) | {"batch": batch, "weights": "none", **extra}


def rows_of(op: str, rows: Number, cols: Number, dtype: str, **extra: Any) -> Kernel:
    """Reduction or gather over `rows` rows of `cols` elements."""
    return dict(op=op, rows=rows, cols=cols, dtype=dtype, count=1) | extra


def repeated(rows: Sequence[Kernel], times: Number) -> list[Kernel]:
    """The rows with their counts multiplied."""
    return [{**row, "count": row["count"] * times} for row in rows]


def _gemm(dtype: str, m: Number, n: Number, k: Number) -> Kernel:
    return dict(op="gemm", batch=1, m=m, n=n, k=k, dtype=dtype, count=1)
