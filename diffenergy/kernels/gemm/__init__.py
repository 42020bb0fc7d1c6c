"""Matrix products on tensor or CUDA cores: batched, split-K, tile given or chosen."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...dtypes import BYTES, stored_bytes
from .._launch import Context, Fields, Launches, as_floats, take_rows
from .._ops import (
    Field,
    Op,
    Row,
    TraceClass,
    on_tensor_cores,
    output_dtype,
    weight_bytes,
)
from ..stream import stream_launches
from ._library import demand as demand
from ._shape import Gemm, product_launches
from .simt import SimtGemm


def _weights(fields: Mapping[str, Any]) -> Any:
    """Which operand is a weight: `b` of an unbatched product, none of a batched one."""
    which = np.where(np.asarray(fields["batch"], float) == 1, "b", "none")
    return which if which.ndim else str(which)


def _flop(k: Row) -> float:
    return 2.0 * k["batch"] * k["m"] * k["n"] * k["k"]


def _activation_bytes(k: Row) -> float:
    """Operands that are no weights, and the result."""
    m, n, inner = k["m"], k["n"], k["k"]
    read = {"a": n * inner, "b": m * inner}.get(k["weights"], (m + n) * inner)
    size = stored_bytes(k["dtype"]), stored_bytes(k["out_dtype"])
    return k["batch"] * (read * size[0] + m * n * size[1])


OPS: Final = (
    Op(
        "gemm",
        (
            Field("batch", default=1.0),
            Field("m"),
            Field("n"),
            Field("k"),
            Field("dtype", "dtype"),
            Field("out_dtype", "dtype", output_dtype),
            Field("tensor_core", "bool", on_tensor_cores),
            Field("weights", "text", _weights, choices=("a", "b", "none")),
            Field("slices", default=1.0),
        ),
        named=("batch", "m", "n", "k"),
        moved={"mdimc": "clblast_gemm"},
        products=True,
        model_flop=_flop,
        activation_bytes=_activation_bytes,
    ),
)
TRACE: Final = TraceClass(
    "gemm",
    {
        70: r"(?:[a-z]|gc|tiny)?gemm|cutlass|cublas|nvjet|xmma|cijk|[a-z]?gemv"
        r"|splitkreduce|matmul|b?mm(?![a-z])|dot_kernel|s16816|tensorop|marlin"
        r"|dot_product"
    },
    shares=(0.42, 0.1, 0.35, 0.3),
    matrix=True,
)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row (a split-K reduction is part of a candidate); products on CUDA
    cores whose tile is known are a class of their own."""
    weights, stored = fields["weights"], weight_bytes(fields)
    columns = {
        name: fields[name] for name in ("batch", "m", "n", "k", "dtype", "out_dtype")
    }
    columns |= {
        "tensor_core": as_floats(fields["tensor_core"]),
        "linear": as_floats((fields["layout"] == "tn") | (weights != "none")),
        "a_stored": np.where(weights == "a", stored, 0.0),
        "b_stored": np.where(weights == "b", stored, 0.0),
        "a_distance": np.where(weights == "a", context.pass_bytes, 0.0),
        "b_distance": np.where(weights == "b", context.pass_bytes, 0.0),
        "eager": context.eager,
    }
    launches = product_launches(fields, columns)
    return [*_by_core(launches, fields), *_quantisation(fields)]


def _by_core(launches: Launches, fields: Fields) -> list[Launches]:
    """Rows on CUDA cores whose tile is given as `SimtGemm`, the rest as they are."""
    columns = {**launches.columns, "slices": fields["slices"]}
    has_tile = (columns["tile_m"] > 0) & (columns["tile_n"] > 0)
    tiled = has_tile & (columns["tensor_core"] == 0)
    parts = []
    for shape, mask in ((Gemm, ~tiled), (SimtGemm, tiled)):
        rows = np.flatnonzero(mask)
        if rows.size:
            part = take_rows(columns, rows)
            names = set(shape.__dataclass_fields__) & set(columns)
            part = {name: part[name] for name in names}
            key = launches.key if shape is Gemm else ()
            parts.append(
                Launches(shape, part, launches.bytes[rows], "matrix", key, rows)
            )
    return parts


def _quantisation(fields: Fields) -> list[Launches]:
    """Activations of 8-bit products with weights are quantised by a kernel of their own
    (reads 16 bit, writes 8; one CTA a row)."""
    size = np.asarray(BYTES)[fields["dtype"]]
    rows = np.flatnonzero((size < 2) & (fields["weights"] != "none"))
    if not rows.size:
        return []
    first = fields["weights"][rows] == "b"  # the activations are A
    tokens = np.where(first, fields["m"][rows], fields["n"][rows])
    elements = tokens * fields["k"][rows]
    return [
        stream_launches(
            2 * elements,
            elements,
            host="none",
            rows=rows,
            issue=8 * elements,
            ctas=tokens,
            makes=fields["dtype"][rows],
        )
    ]
