"""One optimizer step of a decoder: forward, backward and optimizer listings.

A micro-batch of `batch` sequences runs forward (with the loss of every token) and
backward, `accumulation` times; the optimizer then runs once. Kernels are in launch
order, those of a layer together, each with the layers as its count. With several
micro-batches counts cover all of them.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from .... import dtypes
from ..._listing import Kernel, Listing
from ..._unlisted import stream
from .._shared.base import Model, Request, repeated, rows_of
from .._shared.memory import logit_bytes
from .linear_layer import Linear
from .operators import Norm, Pass, Trainable

_WIDE: Final = 4.0
"""Bytes of a master weight and of each of AdamW's two moments (fp32)."""


@dataclasses.dataclass(frozen=True)
class Network:
    """Operators of a language model: equal layers that begin with `norm`, then the
    final norm, the head and the loss."""

    inputs: tuple[Trainable, ...]
    norm: Norm
    body: tuple[Trainable, ...]
    layers: int
    final: Norm
    head: Linear


@dataclasses.dataclass(frozen=True)
class Loss(Trainable):
    """Cross-entropy of every token over the vocabulary.

    Fused: one kernel reads logits and writes their gradients in their place, forward.
    Else torch's: logits in fp32, log-softmax, the loss of the targets.
    """

    vocab: int

    def forward(self, run: Pass) -> list[Kernel]:
        t, dtype = run.tokens, run.values
        if run.fused:
            return [rows_of("softmax", t, self.vocab, dtype)]
        return [
            *_cast(t * self.vocab, dtype, "fp32"),
            rows_of("softmax", t, self.vocab, "fp32"),
            stream("nll_loss", t, "fp32", 1),
        ]

    def backward(self, run: Pass) -> list[Kernel]:
        if run.fused:
            return []
        logits, both = run.tokens * self.vocab, {"reads": 2, "writes": 1}
        return [
            stream("nll_loss_backward", logits, "fp32", 1, reads=0, writes=1),
            stream("log_softmax_backward", logits, "fp32", 1, **both),
            *_cast(logits, "fp32", run.values),
        ]

    def kept(self, run: Pass) -> float:
        """Logits, their fp32 copies and gradients."""
        return run.tokens * self.vocab * logit_bytes(run.values, run.fused)


def training_listings(
    model: Model, network: Network, request: Request, run: Pass
) -> list[Listing]:
    """The three listings of an optimizer step whose micro-batches are each a `run`."""
    times, parameters = request.accumulation or 1, model.parameters()
    gradients = repeated(backward(network, run), times)
    gradients += accumulated(parameters, run, times - 1)
    parts = (
        ("forward", repeated(forward(network, run), times), times),
        ("backward", gradients, times),
        ("optimizer", optimizer(parameters, run.values, run.fused), 1),
    )
    listings = [
        model.listing(request, rows, mode, passes, suffix=f"/{mode}", merged=False)
        for mode, rows, passes in parts
    ]
    again = 1 if run.checkpointing else 0  # modules call operators forward alone
    calls = [x.module_calls * y for x, y in zip(listings, (1, again, 0), strict=True)]
    return [
        dataclasses.replace(listing, module_calls=count)
        for listing, count in zip(listings, calls, strict=True)
    ]


def forward(network: Network, run: Pass) -> list[Kernel]:
    """Kernels of the forward pass and of the loss.

    Fused norms add the skip connection of the layer before: the first has none, then
    each layer ends with the norm of the next, the last with the final one.
    """
    loss = Loss(network.head.outputs)
    layer, ends = (network.norm, *network.body), (network.final, network.head, loss)
    inputs = network.inputs
    if run.fused:
        first = dataclasses.replace(network.norm, residual=False)
        inputs, layer, ends = (*inputs, first), (*layer[1:], layer[0]), ends[1:]
    return [
        *_rows(op.forward(run) for op in inputs),
        *repeated(_rows(op.forward(run) for op in layer), network.layers),
        *_rows(op.forward(run) for op in ends),
    ]


def backward(network: Network, run: Pass) -> list[Kernel]:
    """Kernels of the backward pass; a layer's forward ones first if its activations
    were not kept."""
    layer = (network.norm, *network.body)
    ends = (Loss(network.head.outputs), network.head, network.final)
    again = []
    if run.checkpointing:
        first = dataclasses.replace(network.norm, residual=False)
        again = _rows(op.forward(run) for op in (first, *network.body))
    back = _rows(op.backward(run) for op in reversed(layer))
    return [
        *_rows(op.backward(run) for op in ends),
        *repeated(again + back, network.layers),
        *_rows(op.backward(run) for op in reversed(network.inputs)),
    ]


def kept(network: Network, run: Pass) -> float:
    """Bytes of activations at the end of a forward pass, without the logits.

    With checkpointing every layer keeps its input, and the layer whose gradients are
    made has all of its own again (arXiv 2205.05198, full recomputation).
    """
    layer = sum(op.kept(run) for op in (network.norm, *network.body))
    ends = (*network.inputs, network.final, network.head)
    outside = sum(op.kept(run) for op in ends)
    if run.checkpointing:
        skip = run.tokens * network.head.inputs * run.element_bytes
        return network.layers * skip + layer + outside
    return network.layers * layer + outside


def accumulated(parameters: int, run: Pass, times: int) -> list[Kernel]:
    """Gradients of later micro-batches added to those of the first.

    Fused products add in place and read the old sum, which stands here as a kernel of
    its own; torch adds with a kernel.
    """
    if not times:
        return []
    traffic = {"reads": 1, "writes": 0} if run.fused else {"reads": 2, "writes": 1}
    return [stream("accumulate", parameters, run.values, times, **traffic)]


def optimizer(parameters: int, dtype: str, fused: bool) -> list[Kernel]:
    """Norm of all gradients and AdamW.

    AdamW reads gradient, master weight and two moments, and writes the latter three
    and the weight: 14 + 14 bytes a parameter in 16 bit. In fp32 the weight is its own
    master: 16 + 12 bytes. Fused stacks scale the clipped gradients within it, torch
    before it.
    """
    e = dtypes.BYTES[dtypes.code(dtype)]
    copy = e if e < _WIDE else 0.0
    read, written = e + 3 * _WIDE, 3 * _WIDE + copy
    per_element = {"reads": read / _WIDE, "writes": written / _WIDE}
    norm = stream("gradient_norm", parameters, dtype, 1, reads=1, writes=0)
    scale = stream("scalar_mul", parameters, dtype, 1)
    step = stream("adamw", parameters, "fp32", 1, **per_element)
    return [norm, *([] if fused else [scale]), step]


def _cast(elements: int, dtype: str, to: str) -> list[Kernel]:
    if dtype == to:
        return []
    return [stream(f"typecast_to_{to}", elements, dtype, 1, out_dtype=to)]


def _rows(parts: Iterable[Sequence[Kernel]]) -> list[Kernel]:
    """Rows of operators, one a launch, so that all of a layer have one count."""
    return [
        {**row, "count": 1}
        for rows in parts
        for row in rows
        for _ in range(row["count"])
    ]
