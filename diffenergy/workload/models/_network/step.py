"""One optimizer step of a decoder: forward, backward and optimizer listings.

A micro-batch of `batch` sequences runs forward (with the loss of every token) and
backward, `accumulation` times; the optimizer then runs once. Kernels are in launch
order, those of a layer together, each with the layers as its count. With several
micro-batches counts cover all of them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .... import dtypes
from ..._eager_rows import stream
from ..._kernel import Kernel, Number
from ..._listing import Listing
from .._request import Request
from .._shared.base import Model
from .._shared.memory import logit_bytes
from .operators import Norm, Residual, Trainable
from .passes import ForwardPass, repeat_rows, rows_of
from .sharding import collective

_SUMS: Final = ("reduce_scatter", "all_reduce")
"""Exchanges whose results torchtitan's policy keeps."""
_WIDE: Final = 4.0
"""Bytes of a master weight and of each of AdamW's two moments (fp32)."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """Layers that are alike: their operators behind the first norm, and their `places`
    in the model."""

    body: tuple[Trainable, ...]
    places: tuple[int, ...]

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.places)

    def trained(self, frozen: int) -> int:
        """Those behind the first `frozen` layers of the model."""
        return sum(place >= frozen for place in self.places)


@dataclasses.dataclass(frozen=True)
class Network:
    """Operators of a language model, or of those of its layers that a GPU has: layers
    (of `number`) by kind, each of which begins with `norm` and ends with `skip`; the
    first GPU has `inputs`, the last has `ends`: the final norm, the head and the loss.
    The model's first `frozen` layers have no gradients. `further` predict tokens beyond
    the next from what the layers make."""

    inputs: tuple[Trainable, ...]
    norm: Norm
    kinds: tuple[Kind, ...]
    skip: Residual
    number: int
    ends: tuple[Trainable, ...]
    frozen: int = 0
    further: tuple["Network", ...] = ()

    @property
    def layers(self) -> int:
        """Layers of all kinds."""
        return sum(kind.layers for kind in self.kinds)

    @property
    def each(self) -> tuple["Network", ...]:
        """Itself and those behind it."""
        return (self, *(y for x in self.further for y in x.each))


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
        return [*self._own(run), *shared]

    def _own(self, run: ForwardPass) -> list[Kernel]:
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

    def kept(self, run: ForwardPass) -> float:
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
    own: float = 1.0,
) -> list[Listing]:
    """The three listings of an optimizer step whose micro-batches are each a `run`:
    `passes`, forward and backward, of a GPU that has the gradients of `trained`
    parameters, the state of `optimized` ones [all] and `own` of the layers."""
    times, (there, back) = request.accumulation or 1, passes
    gradients = repeat_rows(back, times) + accumulated(trained, run, times - 1)
    optimized = trained if optimized is None else optimized
    again = run.recompute == "full"  # modules call operators forward alone
    listings = []
    for mode, rows, number, called in (
        ("forward", repeat_rows(there, times), times, True),
        ("backward", gradients, times, again),
        ("optimizer", optimizer(optimized, run.values, run.fused), 1, False),
    ):
        made = model.listing(request, rows, mode, number, f"/{mode}", merged=False)
        calls = made.module_calls * called
        calls = calls * own if own < 1 else calls
        listings.append(dataclasses.replace(made, module_calls=calls, training=True))
    return listings


def check_frozen(values: Mapping[str, Any], name: str, layers: int):
    """Raises `ValueError` if there are not so many layers to freeze, or adapters, which
    freeze all, beside them."""
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


def forward(network: Network, run: ForwardPass) -> list[Kernel]:
    """Kernels of the forward pass and of the loss.

    Fused norms add the skip connection of the layer before: the first has none, then
    each layer ends with the norm of the next, the last with the final one, or with the
    sum that goes to the next GPU.
    """
    return [row for x in network.each for row in _forward(x, run)]


def _forward(network: Network, run: ForwardPass) -> list[Kernel]:
    norm, layers, ends = network.norm, network.layers, network.ends
    inputs = launched(network.inputs, run)
    if not run.fused:
        last = launched(ends, run)
        return [*inputs, *_layers(network, run, before=(norm,)), *last]
    joined = launched((norm,), run)
    if layers or ends:
        inputs += launched((_first(norm),), run)
    if ends:
        last = launched(ends[1:], run)
        return [*inputs, *_layers(network, run, behind=(norm,)), *last]
    between = [*_each(joined, layers - 1), *network.skip.alone(run)] if layers else []
    return [*inputs, *_layers(network, run), *between]


def _layers(
    network: Network,
    run: ForwardPass,
    before: tuple[Trainable, ...] = (),
    behind: tuple[Trainable, ...] = (),
) -> list[Kernel]:
    """Forward kernels of all layers, each with operators around its body."""
    return [
        row
        for kind in network.kinds
        for row in _each(launched((*before, *kind.body, *behind), run), kind.layers)
    ]


def backward(network: Network, run: ForwardPass) -> list[Kernel]:
    """Kernels of the backward pass; a layer's forward ones first if its activations
    were not kept."""
    return [row for x in reversed(network.each) for row in _backward(x, run)]


def _backward(network: Network, run: ForwardPass) -> list[Kernel]:
    back: list[Kernel] = []
    for kind in reversed(network.kinds):
        layer = (network.norm, *kind.body)
        rows = returned(layer, run)
        again = _again(layer, run)
        back += _each(again + rows, kind.trained(network.frozen))
    return [
        *returned(network.ends, run),
        *back,
        *returned(network.inputs, run),
    ]


def _each(rows: list[Kernel], layers: int) -> list[Kernel]:
    """Rows of as many layers."""
    return repeat_rows(rows, layers) if layers else []


def _again(
    layer: tuple[Norm, *tuple[Trainable, ...]], run: ForwardPass
) -> list[Kernel]:
    """Forward kernels of a layer that run once more before its gradients."""
    if run.recompute not in ("selective-op", "full"):
        return []
    norm, *body = layer
    rows = launched((_first(norm), *body), run)
    if run.recompute == "full":
        return rows
    halves = {name: 0.5 for name in ("gemm", "moe")}
    return [
        row | {"count": halves.get(row["op"], 1)}
        for row in rows
        if row["op"] != "context_attention" and row.get("collective") not in _SUMS
    ]


def _first(norm: Norm) -> Norm:
    """The norm in front of which nothing is added."""
    return dataclasses.replace(norm, residual=False)


def kept(network: Network, run: ForwardPass) -> tuple[float, float]:
    """Bytes of activations, without the logits, that a micro-batch leaves between its
    forward and its backward pass, and those that are there once beside: of the layer
    that runs again (arXiv 2205.05198, full recomputation)."""
    parts = [_kept(x, run) for x in network.each]
    return sum(left for left, _ in parts), max(again for _, again in parts)


def _kept(network: Network, run: ForwardPass) -> tuple[float, float]:
    skip, every, most = network.skip, 0.0, 0.0
    for kind in network.kinds:
        left = layer = sum(op.kept(run) for op in (network.norm, *kind.body))
        if run.recompute in ("selective-op", "full"):
            left = run.tokens // skip.parts * skip.width * run.element_bytes
        if run.recompute == "selective-op":
            left += sum(op.saved(run) for op in kind.body)
        trained = kind.trained(network.frozen)
        every += trained * left
        most = max(most, layer if left < layer and trained else 0.0)
    outside = sum(op.kept(run) for op in (*network.inputs, *network.ends[:-1]))
    return every + outside, most


def logits(network: Network, run: ForwardPass) -> float:
    """Bytes of the logits of a micro-batch, of all tokens that are predicted."""
    return sum((x.ends[-1].kept(run) for x in network.each if x.ends), 0.0)


def accumulated(parameters: Number, run: ForwardPass, times: int) -> list[Kernel]:
    """Gradients of later micro-batches added to those of the first.

    Fused products add in place and read the old sum, which stands here as a kernel of
    its own; torch adds with a kernel.
    """
    if not (times and parameters):
        return []
    traffic = {"reads": 1, "writes": 0} if run.fused else {"reads": 2, "writes": 1}
    return [stream("accumulate", parameters, run.values, times, **traffic)]


def optimizer(parameters: Number, dtype: str, fused: bool) -> list[Kernel]:
    """Norm of all gradients and AdamW.

    AdamW reads gradient, master weight and two moments, and writes the latter three
    and the weight: 14 + 14 bytes a parameter in 16 bit. In fp32 the weight is its own
    master: 16 + 12 bytes. Fused stacks scale the clipped gradients within it, torch
    before it.
    """
    if not parameters:
        return []
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


def launched(operators: Iterable[Trainable], run: ForwardPass) -> list[Kernel]:
    """Forward rows of operators, one a launch: all of a layer have one count."""
    return [row for x in operators for row in _apart(x.forward(run))]


def returned(operators: Sequence[Trainable], run: ForwardPass) -> list[Kernel]:
    """The same of their gradients, last operator first."""
    return [row for x in reversed(operators) for row in _apart(x.backward(run))]


def _apart(rows: Sequence[Kernel]) -> list[Kernel]:
    return [{**row, "count": 1} for row in rows for _ in range(row["count"])]
