"""Elementwise kernels: of serving engines, and forward and backward of encoders and
vision models."""

import dataclasses
from collections.abc import Mapping

from ..._eager_rows import HALF, stream
from ..._kernel import Kernel, Number
from .memory import Weights
from .operator import Operator, Sum, Trainable
from .passes import ForwardPass
from .sharding import ModelSplit, divide

Part = tuple[Operator, ...]
"""Operators in launch order that layers are put together from."""


@dataclasses.dataclass(frozen=True)
class Map(Operator):
    """Elementwise kernel over `width` values a token, with `parameters` of its own;
    `split`: GPUs divide both. `joins`: of a sum, see `Sum`."""

    fn: str
    width: int
    reads: Number = 1
    writes: Number = 1
    parameters: int = 0
    split: bool = False
    joins: bool = False

    def in_training(self) -> tuple[Trainable, ...] | None:
        return (Sum(self.width, joins=self.joins),) if self.fn == "add" else None

    def shard(self, split: ModelSplit) -> "Map":
        if not self.split:
            return self
        width = divide(self.width, split.tp, "features")
        parameters = divide(self.parameters, split.tp, "parameters")
        return dataclasses.replace(self, width=width, parameters=parameters)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        traffic = {"reads": self.reads, "writes": self.writes}
        return [stream(self.fn, run.tokens * self.width, run.values, 1, **traffic)]

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.parameters),) if self.parameters else ()


@dataclasses.dataclass(frozen=True)
class Plain(Operator):
    """`parameters` that no kernel of their own reads (scales, offsets); `split`: GPUs
    divide them."""

    parameters: int
    split: bool = False

    def shard(self, split: ModelSplit) -> "Plain":
        if not self.split:
            return self
        parameters = divide(self.parameters, split.tp, "parameters")
        return dataclasses.replace(self, parameters=parameters)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return []

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.parameters),)


@dataclasses.dataclass(frozen=True)
class Elementwise(Trainable):
    """Kernels over `width` values a token: those `there` forward and `back` backward,
    each as its name and how it differs from `stream`'s usual one. `keeps`: values a
    token that are left for the backward pass; `parameters`: its weights."""

    width: int
    there: tuple[tuple[str, Mapping[str, Number]], ...] = ()
    back: tuple[tuple[str, Mapping[str, Number]], ...] = ()
    keeps: int = 0
    parameters: int = 0

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.parameters),) if self.parameters else ()

    def forward(self, run: ForwardPass) -> list[Kernel]:
        elements = run.tokens * self.width
        return [stream(fn, elements, run.values, 1, **x) for fn, x in self.there]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        elements = run.tokens * self.width
        return [stream(fn, elements, run.values, 1, **x) for fn, x in self.back]

    def saved_bytes(self, run: ForwardPass) -> float:
        return run.tokens * self.keeps * run.element_bytes


def pointwise(fn: str, width: int) -> Elementwise:
    """An activation, a kernel of its own. The gradients of ReLU and tanh follow from
    their output, which the next operator keeps; others keep their input."""
    zeros = {"zero_share": HALF} if fn == "relu" else {}
    back = {"reads": 2, "writes": 1, **zeros}
    keeps = 0 if fn in ("relu", "tanh") else width
    return Elementwise(width, ((fn, zeros),), ((f"{fn}_backward", back),), keeps)


def forward_only(fn: str, width: int, zeros: float = 0.0) -> Elementwise:
    """A kernel that has none backward: a sum, whose gradient is that of its operands,
    or a mask. `zeros`: their share."""
    return Elementwise(width, ((fn, {"zero_share": zeros}),))


def fork(width: int) -> Elementwise:
    """Values that two layers read, whose gradients are added."""
    return Elementwise(width, back=(("pointwise_add", {}),))


def copies(fn: str, width: int, times: int = 1) -> Elementwise:
    """`times` copies into another order, and back."""
    rows = times * ((fn, {"reads": 1, "writes": 1}),)
    return Elementwise(width, rows, rows)


def batch_norm(channels: int, hw: int) -> Elementwise:
    """BatchNorm with the statistics of the batch: its input is read for the means and
    variances of the channels, then for the result; so it is, with the output's
    gradient, for the sums of the backward pass (arXiv 1502.03167, section 3)."""
    there = (
        ("batch_norm_statistics", {"reads": 1, "writes": 0}),
        ("batch_norm", {"reads": 1, "writes": 1}),
    )
    back = (
        ("batch_norm_sums", {"reads": 2, "writes": 0}),
        ("batch_norm_backward", {"reads": 2, "writes": 1}),
    )
    width = channels * hw**2
    return Elementwise(width, there, back, width, parameters=2 * channels)


def mean_pool(channels: int, hw: int) -> Elementwise:
    """Mean over the pixels of every map."""
    width, one = channels * hw**2, 1 / hw**2
    there = (("mean", {"reads": 1, "writes": one}),)
    back = (("mean_backward", {"reads": one, "writes": 1}),)
    return Elementwise(width, there, back, width)
