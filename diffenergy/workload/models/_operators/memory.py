"""Bytes of a GPU's memory while a request runs, by part.

A training step needs weights, gradients, AdamW's state and the tensors that the forward
pass saves for the backward one (`saved_bytes` of every operator). Inference needs
weights, the KV cache and the operands of the largest kernel. A part that a phase does
not have is 0.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Final

from .... import dtypes
from ..._kernel import Kernel, Number
from .._checkpoint.formats import Format, Precision

MEMORY_PARTS: Final = (
    "weights", "kv_cache", "state", "activations", "logits", "gradients", "optimizer",
    "gathered", "workspace",
)  # fmt: skip
"""`state`: of recurrent mixers; `gathered`: weights of other GPUs; `workspace`: what
neither weights nor results are."""
CONTEXT: Final = 1e9
"""Bytes of a CUDA context and its libraries ("about 1 GB" beside the tensors of the
measured peaks of Megatron-LM and TorchTitan; a caching allocator reserves more)."""
_WIDE: Final = 4.0
"""Bytes of an fp32 value: a master weight, each of AdamW's two moments, a logit."""


def memory_by_part(**parts: float) -> dict[str, float]:
    """Bytes of all `MEMORY_PARTS`: of `parts`, of the context, and 0 of the others."""
    return dict.fromkeys(MEMORY_PARTS, 0.0) | {"workspace": CONTEXT} | parts


@dataclasses.dataclass(frozen=True)
class Weights:
    """`number` weights of one kind.

    `format`: how the checkpoint stores them, None as it keeps everything else;
    `layer`: those of a linear layer that a request's `dtype` converts. `used`: share of
    them that one token needs.
    """

    number: int
    format: Format | None = None
    layer: bool = False
    used: Number = 1


def element_bytes(dtype: str) -> float:
    """Bytes of a value of type `dtype`."""
    return dtypes.stored_bytes(dtype)


def number_of(weights: Iterable[tuple[Weights, int]]) -> int:
    """Number of weights of every kind, each so many times."""
    return sum(w.number * n for w, n in weights)


def bytes_of(weights: Iterable[tuple[Weights, int]], p: Precision) -> float:
    """Bytes of weights of every kind, each so many times, in the types of `p`."""
    other, total = element_bytes(p.values), 0.0
    for w, n in weights:
        form = p.format(w.format, w.layer)
        total += w.number * n * (form.weight_bytes if form else other)
    return total


def training_state(
    parameters: Number, dtype: str, frozen: float = 0.0
) -> dict[str, float]:
    """Bytes of weights, gradients and AdamW's state (fp32 master of 16-bit weights, two
    moments): 16 a trained parameter; weights in `dtype`. `frozen`: bytes of weights
    without a gradient."""
    e = element_bytes(dtype)
    master = _WIDE if e < _WIDE else 0.0
    return {
        "weights": parameters * e + frozen,
        "gradients": parameters * e,
        "optimizer": parameters * (master + 2 * _WIDE),
    }


def logit_bytes(dtype: str, fused_loss: bool = True) -> float:
    """Bytes of one logit: its value and an fp32 copy (sampling, a fused loss); of the
    loss in operators fp32 logits, log-softmax and gradient."""
    return element_bytes(dtype) + _WIDE if fused_loss else 3 * _WIDE


def working_bytes(rows: Iterable[Kernel]) -> float:
    """Most bytes of activations that are alive at once in a pass that keeps none: the
    operands of its largest kernel, and the skip connection (as wide as a norm's rows)
    that waits meanwhile. `rows`: as `Listing.kernels` has them."""
    from ....kernels import ops  # the kernel classes load JAX

    live, skip = 0.0, 0.0
    for row in rows:
        live = max(live, ops()[row["op"]][0].activation_bytes(row))
        if row["op"] in ("layernorm", "rmsnorm"):
            width = row["rows"] * row["cols"]
            skip = max(skip, width * element_bytes(row["dtype"]))
    return live + skip


def largest_whole(fits: Callable[[int], bool], most: int) -> int | None:
    """Largest whole number from 1 to `most` that `fits`; None if 1 does not. `fits` is
    true up to some number and false beyond it."""
    low, high = 0, most
    while low < high:
        middle = math.ceil((low + high) / 2)
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low or None
