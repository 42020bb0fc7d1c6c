"""Kernels that a module launches but a trace of its operators does not name.

    python calibration/listings.py DATA/energaizer --out completed.jsonl

writes EnergAIzer's listings with them, for `diffenergy evaluate --workloads`.

Traces of Hugging Face and torchvision modules list matrix products, softmax, norms and
arithmetic; copies, casts, layout conversions, BatchNorm and pooling run beside them,
and `complete_listing` adds them. Found on EnergAIzer's listings (arXiv 2604.20105):
with them the launch counts and times of whole passes agree with the measurements."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from diffenergy.files import write_text_atomic
from diffenergy.workload import Kernel, Listing, Number, listing_lines, read_listings
from diffenergy.workload._eager_rows import (
    HALF,
    Attention,
    attention_copies,
    convolution_rest,
    masked_select,
    repeated_keys,
    rms_norm_rest,
    rotary_copies,
    unlisted,
)
from diffenergy.workload._kernel import normalise_rows

_FILES: Final = ("workloads.jsonl", "workloads_derived.jsonl")


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
"""Channels, height and number of the blocks of every stage, whose sums are added."""
_MOBILEVIT_S: Final = ((144, 96, 32), (192, 128, 16), (240, 160, 8))
"""Width of the transformers, channels and height of the blocks, whose patches are
permuted and whose result is concatenated."""


def complete_listing(listing: Listing) -> Listing:
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
    relu = {x["elements"] for x in listing.kernels if x.get("fn") == "relu"}
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
    if listing.model == "resnet101":  # a maximum over a quarter-size input (stride 2)
        rows.append(unlisted("max_pool", batch * 64 * 56**2, precision, 1, reads=4))
        behind_relu = {"reads": 2, "zero_share": HALF}
        for channels, hw, n in _RESNET101:
            values = batch * channels * hw**2
            rows.append(unlisted("pointwise_add", values, precision, n, **behind_relu))
    if listing.model == "mobilevitmodel":
        for width, channels, hw in _MOBILEVIT_S:
            pixels = batch * hw**2
            rows.append(unlisted("permute", pixels * width, precision, 4))
            rows.append(unlisted("concat", pixels * 2 * channels, precision, 1))
    return dataclasses.replace(
        listing,
        kernels=normalise_rows(rows, listing.name),
        module_calls=family.module_calls,
    )


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
    if (
        model == "mobilevitmodel"
        and kernel["kernel_size"] == 3
        and kernel["in_channels"] == kernel["out_channels"]
        and (kernel["in_channels"], kernel["input_hw"]) in depthwise
    ):
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


def completed_listings(folder: Path) -> list[Listing]:
    """All listings of EnergAIzer in a folder, completed."""
    return [complete_listing(x) for f in _FILES for x in read_listings(folder / f)]


def main(
    folder: Annotated[Path, typer.Argument(help="folder of EnergAIzer's listings")],
    out: Annotated[Path, typer.Option(help="listings to write (.jsonl)")],
):
    """Write all listings with what runs beside the listed kernels."""
    listings = completed_listings(folder)
    write_text_atomic(out, listing_lines(listings))
    print(f"{out}: {len(listings)} listings")


if __name__ == "__main__":
    typer.run(main)
