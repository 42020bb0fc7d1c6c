"""Rows of operators with matrix kernels: products, convolutions, attention, experts.

A rule is a function of the operator and of the name of the kernel that carries it; it
gives the row without its count, None where the sizes do not decide it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...workload import normalise_kernel
from .._launches import Operator
from . import names
from .types import listing_type, numel

Row = dict[str, Any]
Rule = Callable[[Operator, str], Row | None]


def valid(row: Row | None) -> Row | None:
    """The row as a listing has it; None where its sizes cannot be (a tensor of no
    elements)."""
    if row is None:
        return None
    try:
        return normalise_kernel(row, "a kernel")
    except ValueError:
        return None


def base_name(operator: str) -> str:
    """Name without namespace and overload.

    >>> base_name("aten::add_.Tensor")
    'add_'
    """
    return operator.rpartition("::")[2].partition(".")[0]


def product_type(operator: Operator, kernel: str, index: int = 0) -> tuple[str, bool]:
    """(type, on tensor cores) of a product: the operator says float of fp32 and tf32,
    the kernel's name tells them apart."""
    stated = listing_type(operator.type(index))
    named = names.kernel_dtype(kernel)
    if stated in (None, "fp32"):
        either = "tf32" if named == "tf32" else "fp32"
        kind = (named or "fp32") if stated is None else either
        return kind, kind != "fp32"
    if stated == "fp8" and named in ("nvfp4", "mxfp4"):
        return named, True
    return stated, True


def product(
    operator: Operator, kernel: str, batch: int, m: int, n: int, k: int, at: int = 0
) -> Row | None:
    """Row of a matrix product."""
    if min(batch, m, n, k) < 1:
        return None
    dtype, tensor = product_type(operator, kernel, at)
    row = {"op": "gemm", "batch": batch, "m": m, "n": n, "k": k, "dtype": dtype}
    layout = names.product_layout(kernel)
    return row | {"tensor_core": tensor} | ({"layout": layout} if layout else {})


def _mm(first: int = 0) -> Rule:
    """[.., m, k] x [.., k, n], inputs that stand at `first` and after it."""

    def rule(operator: Operator, kernel: str) -> Row | None:
        left, right = operator.sizes(first), operator.sizes(first + 1)
        if left is None or right is None or len(left) < 2:
            return None
        k, n = left[-1], right[-1] if len(right) > 1 else 1
        if len(right) <= 2:
            return product(operator, kernel, 1, numel(left[:-1]), n, k, first)
        return product(operator, kernel, numel(left[:-2]), left[-2], n, k, first)

    return rule


def _linear(operator: Operator, kernel: str) -> Row | None:
    """x [.., k], W [n, k]."""
    x, w = operator.sizes(0), operator.sizes(1)
    if x is None or w is None or len(w) != 2:
        return None
    return product(operator, kernel, 1, numel(x[:-1]), w[0], w[1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in re.findall(r"-?\d+", text))


def convolution(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    dtype: str,
    tensor_core: bool = True,
) -> Row | None:
    """Row of a convolution of x [N, C, ...] with w [O, C/groups, ...]: `conv2d` where
    all is square, else the product that it is (one a group)."""
    space = len(w) - 2
    if len(x) != len(w) or space < 1:
        return None
    each = lambda values, usual: (  # noqa: E731
        tuple(values) * space if len(values) == 1 else tuple(values) or (usual,) * space
    )
    stride, padding, dilation = each(stride, 1), each(padding, 0), each(dilation, 1)
    sizes = zip(x[2:], w[2:], stride, padding, dilation, strict=True)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
    if min(out) < 1:
        return None
    common = {"dtype": dtype, "tensor_core": tensor_core}
    same = all(len(set(v)) == 1 for v in (x[2:], w[2:], stride, padding))
    if space == 2 and same and set(dilation) == {1}:
        return {
            "op": "conv2d",
            "images": x[0],
            "in_channels": x[1],
            "out_channels": w[0],
            "input_hw": x[2],
            "kernel_size": w[2],
            "stride": stride[0],
            "padding": padding[0],
            "groups": groups,
            **common,
        }
    return {
        "op": "gemm",
        "batch": groups,
        "m": x[0] * numel(out),
        "n": w[0] // groups,
        "k": numel(w[1:]),
        **common,
    }


def padded_convolution(
    x: tuple[int, ...],
    w: tuple[int, ...],
    out: tuple[int, ...],
    padding: Sequence[tuple[int, int]],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    dtype: str,
) -> Row:
    """Row of a convolution that makes `out` [N, O, ...], padded before and behind each
    axis: uneven padding as the side that gives the output's size, else as a product."""
    for side in (max, min):
        row = convolution(
            x, w, stride=stride, padding=tuple(map(side, padding)), dilation=dilation,
            groups=groups, dtype=dtype, tensor_core=dtype != "fp32",
        )  # fmt: skip
        pixels = out[0] * numel(out[2:])
        if row is not None and pixels == (
            row["m"] if row["op"] == "gemm" else row["images"] * output_hw(row) ** 2
        ):
            return row
    return convolution_product(out, groups, numel(w[1:]), dtype)


def convolution_product(
    out: tuple[int, ...], groups: int, taps: int, dtype: str
) -> Row:
    """A convolution that makes `out` [N, O, ...] as a product, one a group."""
    m, n = max(out[0] * numel(out[2:]), 1), max(out[1] // groups, 1)
    sizes = {"batch": groups, "m": m, "n": n, "k": max(taps, 1)}
    return {"op": "gemm", **sizes, "dtype": dtype}


def output_hw(row: Mapping[str, Any]) -> int:
    """Height and width of the output of a `conv2d` row."""
    padded = row["input_hw"] + 2 * row["padding"] - row["kernel_size"]
    return padded // row["stride"] + 1


class Places(NamedTuple):
    """Numbers of a convolution's arguments: images at `first`, weights behind them."""

    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int | None = None
    first: int = 0


_BOTH: Final = Places(4, 5, 6, 9, 7, 1)
GRADIENTS: Final = {
    f"{library}_convolution_backward_{of}": f"conv2d_{of}_grad"
    for library in ("cudnn", "miopen")
    for of in ("input", "weight")
}
"""Gradients of convolutions in older versions, which state neither the sizes of the
other side nor strides; with `_rows.strides` they have the arguments of both."""
CONVOLUTIONS: Final = {
    "cudnn_convolution": Places(3, 2, 4, 5),
    "miopen_convolution": Places(4, 3, 5, 6),
    "_conv_depthwise2d": Places(4, 5, 6, 7),
    **dict.fromkeys(
        ("convolution", "_convolution", "convolution_overrideable"),
        Places(3, 4, 5, 8, transposed=6),
    ),
    **dict.fromkeys(
        ("cudnn_convolution_relu", "conv1d", "conv2d", "conv3d"), Places(3, 4, 5, 6)
    ),
    **dict.fromkeys(("convolution_backward", *GRADIENTS), _BOTH),
}
"""By the name without its namespace."""


def _convolution(places: Places) -> Rule:
    """No row where the trace does not say the stride."""

    def rule(operator: Operator, kernel: str) -> Row | None:
        first = places.first
        images, weights = operator.sizes(first), operator.sizes(first + 1)
        strides = operator.value(places.stride)
        if images is None or weights is None or not strides:
            return None
        if base_name(operator.name) in GRADIENTS and operator.sizes(0) is None:
            return None
        if places.transposed and operator.value(places.transposed) == "True":
            return None
        dtype, tensor = product_type(operator, kernel, first)
        each = _numbers(operator.value(places.groups)) or (1,)
        return convolution(
            images, weights, stride=_numbers(strides),
            padding=_numbers(operator.value(places.padding)),
            dilation=_numbers(operator.value(places.dilation)),
            groups=each[0], dtype=dtype, tensor_core=tensor,
        )  # fmt: skip

    return rule


def _attention(heads_first: bool, causal: int, backward: bool = False) -> Rule:
    """q, k, v, [B, H, S, D] or [B, S, H, D], behind the gradient in the `backward`
    pass; `causal`: place of the switch. Packed sequences (three axes) do not say their
    lengths."""
    first = int(backward)

    def rule(operator: Operator, kernel: str) -> Row | None:
        q, k, v = (operator.sizes(first + i) for i in range(3))
        if q is None or k is None or v is None or len(q) != 4 or len(k) != 4:
            return None
        row = attention_row(q, k, v, heads_first, backward)
        row["dtype"], _ = product_type(operator, kernel, first)
        if "pytorch_flash" in kernel:
            row["family"] = "fa2"
        if row["op"] == "generation_attention":
            return row
        return row | {"causal": operator.value(causal) in ("True", "1", "2")}

    return rule


def attention_row(
    q: Sequence[int],
    k: Sequence[int],
    v: Sequence[int],
    heads_first: bool,
    backward: bool = False,
) -> Row:
    """Kind and sizes of attention by the shapes of its tensors, [B, H, S, D] with
    `heads_first`, else [B, S, H, D]: one query of several keys is a decoding step."""
    length, heads = (2, 1) if heads_first else (1, 2)
    decoding = q[length] == 1 and k[length] > 1
    forward = "generation_attention" if decoding else "context_attention"
    return {
        "op": "attention_backward" if backward else forward,
        "batch": q[0],
        "q_len": q[length],
        "kv_len": k[length],
        "num_heads": q[heads],
        "num_kv_heads": k[heads],
        "head_dim": q[3],
        "v_head_dim": v[3],
    }


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("mm", "mv", "matmul", "bmm", "_scaled_mm"), _mm()),
    **dict.fromkeys(
        ("addmm", "addmm_", "_addmm_activation", "addmv", "addmv_", "baddbmm",
         "baddbmm_", "cutlass_scaled_mm"), _mm(1)
    ),
    "linear": _linear,
    **{name: _convolution(places) for name, places in CONVOLUTIONS.items()},
    "_flash_attention_forward": _attention(False, 8),
    "_efficient_attention_forward": _attention(False, 9),
    "_scaled_dot_product_flash_attention": _attention(True, 4),
    "_scaled_dot_product_efficient_attention": _attention(True, 6),
    "_scaled_dot_product_cudnn_attention": _attention(True, 6),
    "_cudnn_attention_forward": _attention(True, 9),
    "_flash_attn_forward": _attention(False, 5),
    "_flash_attention_backward": _attention(False, 11, True),
    "_efficient_attention_backward": _attention(False, 13, True),
    "_scaled_dot_product_flash_attention_backward": _attention(True, 11, True),
    "_scaled_dot_product_efficient_attention_backward": _attention(True, 10, True),
}  # fmt: skip
"""By the name without its namespace. Places of arguments are those of PyTorch's
`native_functions.yaml`."""
BACKWARD_PARTS: Final = {
    "convolution_backward": {
        "conv2d_input_grad": r"dgrad|_bwd_",
        "conv2d_weight_grad": r"wgrad|_wrw_",
    },
    **{name: {op: ""} for name, op in GRADIENTS.items()},
}
"""Operators with several matrix kernels: the op of each by its name."""
