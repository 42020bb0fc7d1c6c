"""Kernels that a module launches but a trace of its operators does not name.

Traces of Hugging Face and torchvision modules list matrix products, softmax, norms
and arithmetic; copies, casts, layout conversions, BatchNorm and pooling run beside
them. The row builders here state them once, for traces (`complete`) and for the
model families (`models/`). Found on EnergAIzer's listings (arXiv 2604.20105): with
them the launch counts and times of whole passes agree with the measurements.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ._listing import Kernel, Listing, Number, merge, normalise_kernel

HALF: Final = 0.5
"""Share of zeros behind a ReLU and in causally masked scores."""


# Row builders -------------------------------------------------------------------


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


def resnet_rest(
    batch: Number,
    stages: Sequence[tuple[Number, Number, Number]],
    stem: Number,
    dtype: str,
) -> list[Kernel]:
    """Residual adds (`stages`: channels, height = width, blocks) and the max-pool.

    `stem`: output elements of the pool, each a maximum over a quarter-size input
    (stride 2), so four elements are read per element.
    """
    adds = [
        unlisted("pointwise_add", batch * c * hw**2, dtype, n, reads=2, zero_share=HALF)
        for c, hw, n in stages
    ]
    return [unlisted("max_pool", stem, dtype, 1, reads=4), *adds]


def mobilevit_rest(
    batch: Number, stages: Sequence[tuple[Number, Number, Number]], dtype: str
) -> list[Kernel]:
    """Permutes of the patches and the concatenation of each block.

    `stages`: transformer width, channels, height = width.
    """
    return [
        row
        for width, channels, hw in stages
        for row in (
            unlisted("permute", batch * width * hw**2, dtype, 4),
            unlisted("concat", batch * 2 * channels * hw**2, dtype, 1),
        )
    ]


# Completing traces ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Family:
    """What is known of a traced module beyond its listing."""

    module_calls: Number
    linear: str = "tn"
    group: int = 1
    rotary: bool = False
    causal: bool = False
    scores: tuple[str, ...] = ()
    mask: str = ""
    patches: int = 1


_FAMILIES: Final = {
    "bertmodel": _Family(440, mask="pointwise_add"),
    "gpt2model": _Family(161, linear="nn", causal=True, scores=("unspecified_tensor",)),
    "optmodel": _Family(
        269,
        causal=True,
        scores=("pointwise_add", "typecast_to_fp32", "typecast_to_bf16"),
        mask="pointwise_add",
    ),
    "qwen2model": _Family(
        368,
        group=6,
        rotary=True,
        causal=True,
        scores=("scalar_mul", "pointwise_add", "typecast_to_fp32", "typecast_to_bf16"),
        mask="pointwise_add",
    ),
    "vitmodel": _Family(416),
    "mobilevitmodel": _Family(330, patches=4),
    "resnet101": _Family(353),
}
_RESNET101: Final = ((256, 56, 3), (512, 28, 4), (1024, 14, 23), (2048, 7, 3))
_MOBILEVIT_S: Final = ((144, 96, 32), (192, 128, 16), (240, 160, 8))


def complete(listing: Listing) -> Listing:
    """`listing` with the kernels that run but are not listed.

    Knows the traced modules BertModel, GPT2Model, OPTModel, Qwen2Model, ViTModel,
    MobileViTModel and ResNet-101; any other listing, and one that says itself what is
    listed (`listed` on a kernel, `module_calls`), is returned unchanged. Also sets
    what a trace cannot write: operand layout, which operand is a weight, the share of
    zeros, broadcast operands, depthwise groups and the `nn.Module` calls.
    """
    family = _FAMILIES.get(listing.model or "")
    stated = any("listed" in kernel for kernel in listing.kernels)
    if family is None or stated or listing.module_calls:
        return listing
    precision, batch = listing.precision or "bf16", listing.batch or 1
    sites = list(_sites(listing.kernels, family, batch))
    relu = {
        x["elements"] for x in listing.kernels if x.get("fn") == "relu"
    }  # sizes of ReLU outputs
    depthwise = _depthwise_widths(listing.kernels)
    rows: list[Kernel] = []
    for kernel in listing.kernels:
        match kernel["op"]:
            case "gemm":
                rows += _matrix_rows(kernel, family, sites, relu)
            case "conv2d":
                rows += _convolution_rows(kernel, listing.model or "", depthwise)
            case "elementwise":
                rows += _stream_rows(kernel, family, listing.model or "", sites)
            case "softmax" if family.causal:
                rows.append({**kernel, "zero_share": HALF})
            case _:
                rows.append(kernel)
    for site in sites:
        rows += attention_copies(site, precision) + repeated_keys(site, precision)
        if family.rotary:
            rows += rotary_copies(site, precision)
        if listing.model == "gpt2model":
            rows += masked_select(site, precision, zero_share=HALF)
    if listing.model == "qwen2model":
        rows += _rms_norms(listing.kernels, precision)
    if listing.model == "resnet101":
        rows += resnet_rest(batch, _RESNET101, batch * 64 * 56**2, precision)
    if listing.model == "mobilevitmodel":
        rows += mobilevit_rest(batch, _MOBILEVIT_S, precision)
    return dataclasses.replace(
        listing,
        kernels=finished(rows, listing.name),
        module_calls=family.module_calls,
    )


def finished(
    rows: Sequence[Kernel], where: str, merged: bool = True
) -> tuple[Kernel, ...]:
    """Normalised rows, each saying whether a trace lists it; equal ones merged unless
    their order matters."""
    if not merged:
        return tuple(_finished(row, where) for row in rows)
    return merge([_finished(row, where) for row in merge(rows)])  # fewer rows to check


def _finished(row: Kernel, where: str) -> Kernel:
    try:
        return {**_known(tuple(row.items()))}
    except ValueError:  # again, to say where
        return normalise_kernel(row, where)


@functools.lru_cache(maxsize=1 << 15)
def _known(row: tuple[tuple[str, Any], ...]) -> Kernel:
    """A row normalised, which models and plans that are alike have again and again."""
    return normalise_kernel({"listed": True, **dict(row)}, "a kernel")


def _sites(
    kernels: Sequence[Kernel], family: _Family, batch: Number
) -> Iterator[Attention]:
    """Attention calls, from the softmax rows and their q k^T products."""
    for softmax in kernels:
        if softmax["op"] != "softmax":
            continue
        length = softmax["cols"]
        matrices = softmax["rows"] // length
        depth = next(
            (
                x["k"]
                for x in kernels
                if x["op"] == "gemm"
                and (x["batch"], x["m"], x["n"]) == (matrices, length, length)
            ),
            None,
        )
        if depth is None:
            continue  # not an attention softmax
        sequences = batch * family.patches
        heads = matrices / sequences
        yield Attention(
            sequences,
            heads,
            heads / family.group,
            length,
            length,
            depth,
            softmax["count"],
        )


def _matrix_rows(
    kernel: Kernel, family: _Family, sites: Sequence[Attention], relu: set[Number]
) -> list[Kernel]:
    if kernel["batch"] == 1 and kernel["k"] > 1:
        weights = "a" if family.linear == "tn" else "b"
        row = {**kernel, "layout": family.linear, "weights": weights}
        behind_relu = kernel["n"] * kernel["k"] in relu
        return [{**row, "zero_share": HALF} if behind_relu else row]
    row = {**kernel, "weights": "none"}
    if not family.causal:
        return [row]
    products = sum(  # probabilities times values
        site.count
        for site in sites
        if (kernel["m"], kernel["k"]) == (site.q_len, site.kv_len)
        and kernel["n"] == site.head_dim
    )
    return _split(row, products, zero_share=HALF)


def _convolution_rows(
    kernel: Kernel, model: str, depthwise: set[tuple[Number, Number]]
) -> list[Kernel]:
    row = dict(kernel)
    if model == "mobilevitmodel" and _is_depthwise(kernel, depthwise):
        row["groups"] = kernel["in_channels"]
    resnet = model == "resnet101"
    if resnet and kernel["in_channels"] != 3:
        row["zero_share"] = HALF
    batch_norm = model in ("resnet101", "mobilevitmodel")
    return [row, *convolution_rest(kernel, batch_norm, HALF if resnet else 0.0)]


def _stream_rows(
    kernel: Kernel, family: _Family, model: str, sites: Sequence[Attention]
) -> list[Kernel]:
    if model == "resnet101" and kernel["fn"] == "relu":
        return [{**kernel, "zero_share": HALF}]
    if model == "qwen2model" and _is_broadcast_product(kernel, sites):
        kernel = {**kernel, "reads": 1}
    scores = sum(s.count for s in sites if s.scores == kernel["elements"])
    change: Kernel = {}
    if kernel["fn"] in family.scores:
        change["zero_share"] = HALF
    if kernel["fn"] == family.mask:
        change["reads"] = 1
    return _split(kernel, scores if change else 0, **change)


def _is_broadcast_product(kernel: Kernel, sites: Sequence[Attention]) -> bool:
    """Norm (x times 1/rms) and rotary (q, k times cos, sin) products of Qwen2."""
    sizes = {s.queries for s in sites} | {s.new_keys for s in sites}
    return kernel["fn"] == "pointwise_mul" and kernel["elements"] in sizes


def _depthwise_widths(kernels: Sequence[Kernel]) -> set[tuple[Number, Number]]:
    """(channels, height) behind 1x1 convolutions that widen four times."""
    return {
        (x["out_channels"], x["input_hw"])
        for x in kernels
        if x["op"] == "conv2d"
        and x["kernel_size"] == 1
        and x["out_channels"] == 4 * x["in_channels"]
    }


def _is_depthwise(kernel: Kernel, widths: set[tuple[Number, Number]]) -> bool:
    return (
        kernel["kernel_size"] == 3
        and kernel["in_channels"] == kernel["out_channels"]
        and (kernel["in_channels"], kernel["input_hw"]) in widths
    )


def _rms_norms(kernels: Sequence[Kernel], dtype: str) -> list[Kernel]:
    """Rest of each RMSNorm; its `+ eps` is the one listed `scalar_add`, a row each."""
    rows = []
    for norm in (x for x in kernels if x.get("fn") == "scalar_add"):
        square = max(
            x["elements"] for x in kernels if x.get("fn") == "unspecified_scalar"
        )
        tokens = norm["elements"]
        rows += rms_norm_rest(tokens, square / tokens, dtype, norm["count"])
    return rows


def _split(kernel: Kernel, part: Number, **change: Any) -> list[Kernel]:
    """`kernel` with `part` of its count changed (equal shapes share a listed row)."""
    part = min(part, kernel["count"])
    rest = kernel["count"] - part
    changed = [{**kernel, **change, "count": part}] if part else []
    return changed + ([{**kernel, "count": rest}] if rest else [])
