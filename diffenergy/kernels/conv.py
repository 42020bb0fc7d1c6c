"""2-D convolutions and their gradients as implicit GEMM, with groups; depthwise layers
stream.

Fields are those of the forward convolution of x by w into y (P pixels of y, Q of x, T
taps, channels C of x and K of y of a group); `batch` = groups, and all three have
2 P K C T FLOP:

| | m | n | k | reads | writes |
|---|---|---|---|---|---|
| y | P | K | C T | x, w | y |
| dx | Q | C | P K T / Q (the taps that reach a pixel, on average) | dy, w | dx |
| dw | C T | K | P | x, dy | dw |

A has the bytes of the *image*, not of the unfolded matrix; weights have the pass as
distance. P = images x out_hw^2, out_hw = floor((hw + 2 padding - kernel)/stride) + 1. A
depthwise layer (groups = in_channels > 1) streams its image and output with 2 taps FLOP
per output at `depthwise_efficiency` of the fp32 rate.

dw is small, and the pixels are divided among CTAs until tiles of 128 x 128 make 256 (at
least 256 pixels each). Layout conversions and BatchNorm are rows of their own (Unlisted
kernels).

Images that are cut into patches (kernel = stride >= 8, fewer than 8 channels, 16 bit)
have their channels padded to 8 and gathered by 16 B from wgmma on: an SM gets 5.5 B a
cycle, the kernels that change the layout included.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..dtypes import BYTES, stored_bytes
from ._launch import Context, Fields, Launches, as_floats, take_rows
from ._ops import Field, Op, Row, TraceClass, output_dtype
from .gemm import product_launches
from .stream import stream_launches


def _wrong(kernel: Row) -> str:
    """Why the kernel does not fit on its input."""
    padded = kernel["input_hw"] + 2 * kernel["padding"]
    if kernel["kernel_size"] <= padded:
        return ""
    return (
        f"`kernel_size` is {kernel['kernel_size']}; allowed is at most the padded "
        f"input, `input_hw` + 2 `padding` = {padded}"
    )


def _activation_bytes(k: Row) -> float:
    """Bytes of the image and its result."""
    reach = k["input_hw"] + 2 * k["padding"] - k["kernel_size"]
    output = k["out_channels"] * (reach // k["stride"] + 1) ** 2
    image = k["in_channels"] * k["input_hw"] ** 2
    return k["images"] * (image + output) * stored_bytes(k["dtype"])


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
_FORWARD: Final = Op(
    "conv2d",
    _FIELDS,
    named=_NAMED,
    products=True,
    wrong=_wrong,
    activation_bytes=_activation_bytes,
)
OPS: Final = (
    _FORWARD,
    dataclasses.replace(_FORWARD, name=INPUT_GRAD),
    dataclasses.replace(_FORWARD, name=WEIGHT_GRAD),
)
TRACE: Final = TraceClass(
    "conv",
    {
        60: r"(?:de)?conv(?!ert)|implicit|wgrad|dgrad|fprop|nchwtonhwc|nhwctonchw"
        r"|winograd|scudnn|fft2d|gcgemm|cudnn::.*?(?:im2col|transform)"
        r"|igemm_(?:fwd|bwd|wrw)|im2col|col2im|computeb?offsets|batched_transpose_"
        r"|miopensp3"
    },
    shares=(0.35, 0.1, 0.35, 0.3),
    matrix=True,
)


_CTAS: Final = 256
"""CTAs among which libraries divide the pixels of a weight gradient, whose result is
small: about two for each SM of an A100 or H100."""
_DEPTH: Final = 256.0
"""Pixels that each of them adds up at least: an estimate."""
_TILE: Final = 128
"""Sides of their tiles."""


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


class _Convolution(NamedTuple):
    """An op as a product: elements, FLOP a pixel and channel aside."""

    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    read: np.ndarray
    """Elements of A (image or gradient)."""
    written: np.ndarray
    """Elements of the result."""
    result: np.ndarray
    """Elements of the forward result."""


def _product(op: str, f: Fields) -> _Convolution:
    """Sizes by the table above."""
    padded = f["input_hw"] + 2 * f["padding"]
    out_hw = np.floor((padded - f["kernel_size"]) / f["stride"]) + 1
    pixels, taps = f["images"] * out_hw**2, f["kernel_size"] ** 2
    inputs, outputs = f["in_channels"] / f["groups"], f["out_channels"] / f["groups"]
    # strides longer than the kernel leave pixels out
    read_hw = np.minimum(f["input_hw"], out_hw * f["kernel_size"])
    image = f["images"] * f["in_channels"] * read_hw**2
    result = pixels * f["out_channels"]
    if op == INPUT_GRAD:
        whole = f["images"] * f["input_hw"] ** 2
        reached = pixels * outputs * taps / whole
        gradient = whole * f["in_channels"]
        return _Convolution(whole, inputs, reached, result, gradient, result)
    if op == WEIGHT_GRAD:
        weights = f["out_channels"] * inputs * taps
        return _Convolution(inputs * taps, outputs, pixels, image, weights, result)
    return _Convolution(pixels, outputs, inputs * taps, image, result, result)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """Implicit GEMM of the groups (`batch` = groups); one group a channel is depthwise
    work on CUDA cores that reads and writes each pixel once."""
    product = _product(op, fields)
    depthwise = (fields["groups"] > 1) & (fields["groups"] == fields["in_channels"])
    launches = []
    dense = np.flatnonzero(~depthwise)
    if dense.size:
        columns = take_rows(_columns(op, fields, context, product), dense)
        part = product_launches(take_rows(dict(fields), dense), columns)
        launches.append(dataclasses.replace(part, rows=dense))
    rows = np.flatnonzero(depthwise)
    if rows.size:
        launches.append(_depthwise(op, fields, product, rows))
    return launches


def _columns(
    op: str, f: Fields, context: Context, product: _Convolution
) -> dict[str, np.ndarray]:
    """Columns of `Gemm`."""
    none = np.zeros_like(product.m)
    columns = {
        "batch": f["groups"],
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "dtype": f["dtype"],
        "out_dtype": f["out_dtype"],
        "tensor_core": as_floats(f["tensor_core"]),
        "linear": none,
        "a_bytes": product.read * np.asarray(BYTES)[f["dtype"]],
        "a_distance": none,
        "b_distance": none if op == WEIGHT_GRAD else context.pass_bytes,
        "eager": context.eager,
        "gathered": _gathered(f) * (op == "conv2d"),
        # a mean k need not be whole
        "k_beside": f["out_channels"] / f["groups"] * (op == INPUT_GRAD),
    }
    if op == WEIGHT_GRAD:
        columns["split_k"] = _pixels_apart(f, product.m, product.n, product.k)
    return columns


def _depthwise(op: str, f: Fields, product: _Convolution, rows: np.ndarray) -> Launches:
    """Layers whose groups are channels, as streams."""
    read = product.read + (product.result if op == WEIGHT_GRAD else 0.0)
    size = np.asarray(BYTES)
    return stream_launches(
        (read * size[f["dtype"]])[rows],
        (product.written * size[f["out_dtype"]])[rows],
        host="matrix",
        rows=rows,
        fma=(2 * f["kernel_size"] ** 2 * product.result)[rows],
        zero_share=f["zero_share"][rows],
    )
