"""2-D convolutions as implicit GEMM, with groups; depthwise layers stream."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..dtypes import BYTES
from ._shared.launch import Context, Fields, Launches, floats, take
from ._shared.ops import Field, Op, output_dtype
from ._shared.stream import stream_launches
from .gemm import product_launches


def _wrong(kernel: Mapping[str, Any]) -> str:
    """Why the kernel does not fit on its input."""
    padded = kernel["input_hw"] + 2 * kernel["padding"]
    if kernel["kernel_size"] <= padded:
        return ""
    return (
        f"`kernel_size` is {kernel['kernel_size']}; allowed is at most the padded "
        f"input, `input_hw` + 2 `padding` = {padded}"
    )


OPS: Final = (
    Op(
        "conv2d",
        (
            Field("images"),
            Field("in_channels"),
            Field("out_channels"),
            Field("input_hw"),
            Field("kernel_size"),
            Field("stride", default=1.0),
            Field("padding", default=0.0, minimum=0.0),
            Field("groups", default=1.0, divides=("in_channels", "out_channels")),
            Field("dtype", "dtype"),
            Field("out_dtype", "dtype", output_dtype),
            Field("tensor_core", "bool", True),
        ),
        named=("images", "in_channels", "input_hw", "out_channels", "kernel_size"),
        products=True,
        wrong=_wrong,
    ),
)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """Implicit GEMM of the groups (`batch` = groups); one group a channel is depthwise
    work on CUDA cores that reads and writes each pixel once."""
    f = dict(fields)
    out_hw = (
        np.floor((f["input_hw"] + 2 * f["padding"] - f["kernel_size"]) / f["stride"])
        + 1
    )
    pixels = f["images"] * out_hw**2
    taps = f["kernel_size"] ** 2
    size = np.asarray(BYTES)
    # strides longer than the kernel leave pixels out
    read_hw = np.minimum(f["input_hw"], out_hw * f["kernel_size"])
    image = f["images"] * f["in_channels"] * read_hw**2 * size[f["dtype"]]
    depthwise = (f["groups"] > 1) & (f["groups"] == f["in_channels"])
    columns = {
        "batch": f["groups"],
        "m": pixels,
        "n": f["out_channels"] / f["groups"],
        "k": f["in_channels"] / f["groups"] * taps,
        "dtype": f["dtype"],
        "out_dtype": f["out_dtype"],
        "tensor_core": floats(f["tensor_core"]),
        "linear": np.zeros_like(pixels),
        "a_bytes": image,
        "a_distance": np.zeros_like(pixels),
        "b_distance": context.pass_bytes,
        "eager": context.eager,
    }
    launches = []
    dense = np.flatnonzero(~depthwise)
    if dense.size:
        part = product_launches(take(f, dense), take(columns, dense))
        launches.append(dataclasses.replace(part, rows=dense))
    rows = np.flatnonzero(depthwise)
    if rows.size:
        outputs = (pixels * f["out_channels"])[rows]
        launches.append(
            stream_launches(
                image[rows],
                outputs * size[f["out_dtype"]][rows],
                host="matrix",
                rows=rows,
                fma=2 * taps[rows] * outputs,
                zero_share=f["zero_share"][rows],
            )
        )
    return launches
