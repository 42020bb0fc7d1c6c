"""2-D convolutions and their gradients as implicit GEMM, with groups; depthwise layers
stream."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..dtypes import BYTES
from ._shared.launch import Context, Fields, Launches, floats, take
from ._shared.ops import Field, Op, output_dtype
from .gemm import product_launches
from .stream import stream_launches


def _wrong(kernel: Mapping[str, Any]) -> str:
    """Why the kernel does not fit on its input."""
    padded = kernel["input_hw"] + 2 * kernel["padding"]
    if kernel["kernel_size"] <= padded:
        return ""
    return (
        f"`kernel_size` is {kernel['kernel_size']}; allowed is at most the padded "
        f"input, `input_hw` + 2 `padding` = {padded}"
    )


_FIELDS: Final = (
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
)
_NAMED: Final = ("images", "in_channels", "input_hw", "out_channels", "kernel_size")
INPUT_GRAD: Final = "conv2d_input_grad"
WEIGHT_GRAD: Final = "conv2d_weight_grad"
OPS: Final = tuple(
    Op(name, _FIELDS, named=_NAMED, products=True, wrong=_wrong)
    for name in ("conv2d", INPUT_GRAD, WEIGHT_GRAD)
)


_CTAS: Final = 256
"""CTAs among which libraries divide the pixels of a weight gradient, whose result is
small: about two for each SM of an A100 or H100."""
_DEPTH: Final = 256.0
"""Pixels that each of them adds up at least."""
_TILE: Final = 128


def _pixels_apart(f: Fields, m: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Split of a weight gradient's sum: as given, else so many that tiles of 128 x 128
    make `_CTAS`."""
    tiles = f["groups"] * np.ceil(m / _TILE) * np.ceil(n / _TILE)
    most = np.maximum(np.floor(k / _DEPTH), 1.0)
    split = np.clip(np.round(_CTAS / tiles), 1.0, most)
    return np.where(f["split_k"] > 0, f["split_k"], split)


_CHANNELS: Final = 8.0
"""Channels of 2 B that a gather of 16 B takes."""
_PATCH: Final = 8
"""Least size of patches, below which a first layer is an ordinary convolution."""


def _gathered(f: Mapping[str, np.ndarray]) -> np.ndarray:
    """Padded channels / channels of images cut into patches (`Gemm.gathered`)."""
    channels = f["in_channels"] / f["groups"]
    apart = (f["kernel_size"] == f["stride"]) & (f["kernel_size"] >= _PATCH)
    narrow = (channels < _CHANNELS) & (np.asarray(BYTES)[f["dtype"]] == 2)
    return np.where(apart & narrow, _CHANNELS / channels, 0.0)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """Implicit GEMM of the groups (`batch` = groups); one group a channel is depthwise
    work on CUDA cores that reads and writes each pixel once.

    Fields are those of the forward convolution of x by w into y (P pixels of y, Q of x,
    T taps, channels C of x and K of y of a group); all three have 2 P K C T FLOP:

    | | m | n | k | reads | writes |
    |---|---|---|---|---|---|
    | y | P | K | C T | x, w | y |
    | dx | Q | C | P K T / Q (the taps that reach a pixel, on average) | dy, w | dx |
    | dw | C T | K | P | x, dy | dw |
    """
    f = dict(fields)
    out_hw = (
        np.floor((f["input_hw"] + 2 * f["padding"] - f["kernel_size"]) / f["stride"])
        + 1
    )
    pixels, taps = f["images"] * out_hw**2, f["kernel_size"] ** 2
    inputs, outputs = f["in_channels"] / f["groups"], f["out_channels"] / f["groups"]
    read, written = np.asarray(BYTES)[f["dtype"]], np.asarray(BYTES)[f["out_dtype"]]
    # strides longer than the kernel leave pixels out
    read_hw = np.minimum(f["input_hw"], out_hw * f["kernel_size"])
    image = f["images"] * f["in_channels"] * read_hw**2
    result = pixels * f["out_channels"]
    whole = f["images"] * f["input_hw"] ** 2
    weights = f["out_channels"] * inputs * taps
    sizes, reads, writes = {
        "conv2d": ((pixels, outputs, inputs * taps), image, result),
        INPUT_GRAD: (
            (whole, inputs, pixels * outputs * taps / whole),
            result,
            whole * f["in_channels"],
        ),
        WEIGHT_GRAD: ((inputs * taps, outputs, pixels), image, weights),
    }[op]
    both = reads + (result if op == WEIGHT_GRAD else 0.0)  # where a group is a channel
    depthwise = (f["groups"] > 1) & (f["groups"] == f["in_channels"])
    columns = {
        "batch": f["groups"],
        **dict(zip("mnk", sizes, strict=True)),
        "dtype": f["dtype"],
        "out_dtype": f["out_dtype"],
        "tensor_core": floats(f["tensor_core"]),
        "linear": np.zeros_like(pixels),
        "a_bytes": reads * read,
        "a_distance": np.zeros_like(pixels),
        "b_distance": np.zeros_like(pixels)
        if op == WEIGHT_GRAD
        else context.pass_bytes,
        "eager": context.eager,
        "gathered": _gathered(f) * (op == "conv2d"),
        "k_beside": outputs * (op == INPUT_GRAD),  # a mean k need not be whole
    }
    if op == WEIGHT_GRAD:
        columns["split_k"] = _pixels_apart(f, *sizes)
    launches = []
    dense = np.flatnonzero(~depthwise)
    if dense.size:
        part = product_launches(take(f, dense), take(columns, dense))
        launches.append(dataclasses.replace(part, rows=dense))
    rows = np.flatnonzero(depthwise)
    if rows.size:
        launches.append(
            stream_launches(
                (both * read)[rows],
                (writes * written)[rows],
                host="matrix",
                rows=rows,
                fma=(2 * taps * result)[rows],
                zero_share=f["zero_share"][rows],
            )
        )
    return launches
