"""Rows of the kernels that eager PyTorch launches and traces do not name.

Copies that make operands contiguous, casts, layout conversions, BatchNorm: for traces
(`calibration/listings.py`) and for the model families (`models/`).
"""

import dataclasses
from typing import Any, Final

from ._kernel import Kernel, Number

HALF: Final = 0.5
"""Share of zeros behind a ReLU and in causally masked scores."""


def stream(
    fn: str, elements: Number, dtype: str, count: Number, **extra: Any
) -> Kernel:
    """Elementwise row as written in a listing."""
    return dict(
        op="elementwise", fn=fn, elements=elements, dtype=dtype, count=count, **extra
    )


def unlisted(
    fn: str, elements: Number, dtype: str, count: Number, **extra: Any
) -> Kernel:
    """Elementwise row that a trace does not name: one read, one write by default."""
    extra = {"reads": 1, "writes": 1, **extra}
    return stream(fn, elements, dtype, count, listed=False, **extra)


@dataclasses.dataclass(frozen=True)
class Attention:
    """Shape of one eager attention call and how often it is made.

    `sequences` x `heads` score matrices of `q_len` x `kv_len`; `kv_heads` below
    `heads` means grouped queries.
    """

    sequences: Number
    heads: Number
    kv_heads: Number
    q_len: Number
    kv_len: Number
    head_dim: Number
    count: Number

    @property
    def queries(self) -> Number:
        """Elements of the query (and of the output) tensor."""
        return self.sequences * self.heads * self.q_len * self.head_dim

    @property
    def keys(self) -> Number:
        """Elements of the key tensor once repeated to all heads."""
        return self.sequences * self.heads * self.kv_len * self.head_dim

    @property
    def new_keys(self) -> Number:
        """Key elements of the tokens of this call, before they are repeated."""
        return self.sequences * self.kv_heads * self.q_len * self.head_dim

    @property
    def scores(self) -> Number:
        """Elements of the score matrices."""
        return self.sequences * self.heads * self.q_len * self.kv_len


def attention_copies(site: Attention, dtype: str) -> list[Kernel]:
    """Operands made contiguous for the batched product, and the heads merged.

    Several sequences: q, k^T and v (grouped queries: q alone, since the repeated keys
    are contiguous); one sequence is contiguous already.
    """
    rows = []
    if site.sequences > 1:
        rows.append(unlisted("copy", site.queries, dtype, site.count))
        if site.kv_heads == site.heads:
            rows.append(unlisted("copy", site.keys, dtype, 2 * site.count))
    rows.append(unlisted("copy", site.queries, dtype, site.count))
    return rows


def repeated_keys(site: Attention, dtype: str) -> list[Kernel]:
    """`repeat_kv` of keys and values; a no-op that launches nothing without groups."""
    if site.kv_heads == site.heads:
        return []
    share = site.kv_heads / site.heads
    return [unlisted("repeat_kv", site.keys, dtype, 2 * site.count, reads=share)]


def rotary_copies(site: Attention, dtype: str) -> list[Kernel]:
    """`rotate_half` of q and k: half is negated, then both halves concatenated."""
    return [
        row
        for elements in (site.queries, site.new_keys)
        for row in (
            unlisted("negate", elements / 2, dtype, site.count),
            unlisted("concat", elements, dtype, site.count),
        )
    ]


def masked_select(site: Attention, dtype: str, **zeros: float) -> list[Kernel]:
    """GPT-2's causal `where` over the scores."""
    return [unlisted("where", site.scores, dtype, site.count, **zeros)]


def rms_norm_rest(
    rows: Number, cols: Number, dtype: str, count: Number
) -> list[Kernel]:
    """Casts and mean of an RMSNorm made of operators (its arithmetic is listed)."""
    elements = rows * cols
    mean = unlisted("mean", elements, "fp32", count, writes=1 / cols)
    if dtype == "fp32":
        return [mean]
    return [
        unlisted("typecast_to_fp32", elements, dtype, count, out_dtype="fp32"),
        mean,
        unlisted(f"typecast_to_{dtype}", elements, "fp32", count, out_dtype=dtype),
    ]


def convolution_rest(conv: Kernel, batch_norm: bool, zero_share: float) -> list[Kernel]:
    """BatchNorm and, in 16 bit, NCHW <-> NHWC conversions around one `conv2d` row.

    The conversions are launched inside the convolution's call (`conv_layout`).
    `zero_share` is that of the converted tensors.
    """
    padded = conv["input_hw"] + 2 * conv.get("padding", 0)
    output_hw = (padded - conv["kernel_size"]) // conv["stride"] + 1
    inputs = conv["images"] * conv["in_channels"] * conv["input_hw"] ** 2
    outputs = conv["images"] * conv["out_channels"] * output_hw**2
    dtype, count = conv["dtype"], conv["count"]
    layout = {"framework": "conv_layout", "zero_share": zero_share}
    rows = []
    if dtype in ("bf16", "fp16"):
        rows += [
            unlisted("nchw_to_nhwc", inputs, dtype, count, **layout),
            unlisted("nhwc_to_nchw", outputs, dtype, count, **layout),
        ]
    if batch_norm:
        rows.append(unlisted("batch_norm", outputs, dtype, count))
    return rows
