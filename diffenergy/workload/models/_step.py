"""One optimizer step: forward, backward and optimizer listings.

A micro-batch of `batch` sequences runs forward (with the loss of every token) and
backward, `accumulation` times; the optimizer then runs once. Kernels are in launch
order, those of a layer together, each with the layers as its count. With several
micro-batches counts cover all of them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ... import dtypes
from .._eager_rows import stream
from .._kernel import Kernel, Number
from .._listing import Listing
from ._model import Model
from ._operators.memory import logit_bytes
from ._operators.operator import Trainable
from ._operators.passes import ForwardPass, repeat_rows, rows_of
from ._operators.sharding import collective
from ._request import Request

_WIDE: Final = 4.0
"""Bytes of a master weight and of each of AdamW's two moments (fp32)."""


@dataclasses.dataclass(frozen=True)
class Loss(Trainable):
    """Cross-entropy of every token over the vocabulary, of which `ranks` GPUs have
    `vocab` words each and share greatest logit, sum and the target's logit.

    Fused: one kernel reads logits and writes their gradients in their place, forward.
    Else torch's: logits in fp32, log-softmax, the loss of the targets.
    """

    vocab: int
    ranks: int = 1

    def forward(self, run: ForwardPass) -> list[Kernel]:
        shared = collective("all_reduce", run.tokens, 3, self.ranks, "fp32", "tp")
        return [*self._rows(run), *shared]

    def _rows(self, run: ForwardPass) -> list[Kernel]:
        t, dtype = run.tokens, run.values
        if run.fused:
            return [rows_of("softmax", t, self.vocab, dtype)]
        return [
            *_cast(t * self.vocab, dtype, "fp32"),
            rows_of("softmax", t, self.vocab, "fp32"),
            stream("nll_loss", t, "fp32", 1),
        ]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        if run.fused:
            return []
        logits, both = run.tokens * self.vocab, {"reads": 2, "writes": 1}
        return [
            stream("nll_loss_backward", logits, "fp32", 1, reads=0, writes=1),
            stream("log_softmax_backward", logits, "fp32", 1, **both),
            *_cast(logits, "fp32", run.values),
        ]

    def saved_bytes(self, run: ForwardPass) -> float:
        """Logits, their fp32 copies and gradients; where GPUs share the words, torch's
        operators also exponentials and one more sum (`torch.distributed.tensor.parallel
        .loss`: (g + exp(x)) dy, of which x, g, exp(x) and the sum are there at once).
        """
        bytes_of = logit_bytes(run.values, run.fused)
        more = _WIDE if self.ranks > 1 and not run.fused else 0.0
        return run.tokens * self.vocab * (bytes_of + more)


def training_listings(
    model: Model,
    passes: tuple[Sequence[Kernel], Sequence[Kernel]],
    request: Request,
    run: ForwardPass,
    trained: Number,
    optimized: Number | None = None,
    layer_share: float = 1.0,
) -> list[Listing]:
    """Listings of an optimizer step (forward, backward, optimizer) on one GPU.

    `passes`: forward and backward rows of a micro-batch `run`; `trained`: parameters
    with a gradient, `optimized`: those whose optimizer state the GPU has [all];
    `layer_share`: its share of the layers."""
    times, (there, back) = request.accumulation or 1, passes
    gradients = repeat_rows(back, times) + accumulation_rows(trained, run, times - 1)
    optimized = trained if optimized is None else optimized
    moments = run.storage.moments
    updates = optimizer_rows(optimized, run.values, run.fused, moments)
    again = run.recompute == "full"  # modules call operators forward alone
    listings = []
    for mode, rows, number, called in (
        ("forward", repeat_rows(there, times), times, True),
        ("backward", gradients, times, again),
        ("optimizer", updates, 1, False),
    ):
        listing = model.listing(request, rows, mode, number, f"/{mode}", merged=False)
        calls = listing.module_calls * called
        calls = calls * layer_share if layer_share < 1 else calls
        listings.append(dataclasses.replace(listing, module_calls=calls, training=True))
    return listings


def check_frozen(values: Mapping[str, Any], name: str, layers: int):
    """Raises `ValueError` for more frozen layers than there are, or beside adapters,
    which freeze all layers."""
    number = values.get("frozen_layers")
    if number and number > layers:
        raise ValueError(
            f"`frozen_layers` is {number}, but {name} has {layers} layers; give at "
            "most these."
        )
    if number and values.get("lora"):
        raise ValueError(
            f"`frozen_layers` is {number} beside `lora`, which freezes all layers; "
            "leave one out."
        )


def accumulation_rows(parameters: Number, run: ForwardPass, times: int) -> list[Kernel]:
    """Rows that add the gradients of later micro-batches to those of the first.

    Fused products add in place and read the old sum, which stands here as a kernel of
    its own; torch adds with a kernel.
    """
    if not (times and parameters):
        return []
    traffic = {"reads": 1, "writes": 0} if run.fused else {"reads": 2, "writes": 1}
    return [stream("accumulate", parameters, run.values, times, **traffic)]


def optimizer_rows(
    parameters: Number, dtype: str, fused: bool, moments: str = "fp32"
) -> list[Kernel]:
    """Rows of the norm of all gradients and of AdamW.

    AdamW reads gradient, master weight and two moments, and writes the latter three
    and the weight: 14 + 14 bytes a parameter in 16 bit. In fp32 the weight is its own
    master: 16 + 12 bytes. `moments` in 16 bit: 10 + 10. Fused stacks scale the clipped
    gradients within it, torch before it.
    """
    if not parameters:
        return []
    e = dtypes.BYTES[dtypes.code(dtype)]
    copy = e if e < _WIDE else 0.0
    state = _WIDE + 2 * dtypes.stored_bytes(moments)
    read, written = e + state, state + copy
    per_element = {"reads": read / _WIDE, "writes": written / _WIDE}
    norm = stream("gradient_norm", parameters, dtype, 1, reads=1, writes=0)
    scale = stream("scalar_mul", parameters, dtype, 1)
    step = stream("adamw", parameters, "fp32", 1, **per_element)
    return [norm, *([] if fused else [scale]), step]


def _cast(elements: int, dtype: str, to: str) -> list[Kernel]:
    if dtype == to:
        return []
    return [stream(f"typecast_to_{to}", elements, dtype, 1, out_dtype=to)]
