"""Networks that are a chain of blocks, such as encoders and vision models, and their
training: forward, backward, what is kept, and which blocks are trained at all."""

import dataclasses
from collections.abc import Mapping

from ..._eager_rows import HALF, stream
from ..._kernel import Kernel, Number
from .._shared.memory import Weights
from .operators import Trainable
from .parts import adapted, frozen_weights, parameters, trained_parameters
from .passes import ForwardPass, repeat_rows
from .step import launched, returned


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

    def kept(self, run: ForwardPass) -> float:
        return run.tokens * self.keeps * run.element_bytes


def pointwise(fn: str, width: int) -> Elementwise:
    """An activation, a kernel of its own. The gradients of ReLU and tanh follow from
    their output, which the next operator keeps; others keep their input."""
    zeros = {"zero_share": HALF} if fn == "relu" else {}
    back = {"reads": 2, "writes": 1, **zeros}
    keeps = 0 if fn in ("relu", "tanh") else width
    return Elementwise(width, ((fn, zeros),), ((f"{fn}_backward", back),), keeps)


def alone(fn: str, width: int, zeros: float = 0.0) -> Elementwise:
    """A kernel that has none backward: a sum, whose gradient is that of its operands,
    or a mask. `zeros`: their share."""
    return Elementwise(width, ((fn, {"zero_share": zeros}),))


def fork(width: int) -> Elementwise:
    """Values that two layers read, whose gradients are added."""
    return Elementwise(width, back=(("pointwise_add", {}),))


def copied(fn: str, width: int, times: int = 1) -> Elementwise:
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


@dataclasses.dataclass(frozen=True)
class Block:
    """Operators that run `count` times one after the other; of layers `inputs`: values
    a token (of vision models an image) that one reads, 0 where it is none. `frozen`:
    they run forward alone."""

    operators: tuple[Trainable, ...]
    count: int = 1
    inputs: int = 0
    frozen: bool = False

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of all, those of a layer together."""
        return repeat_rows(launched(self.operators, run), self.count)

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the gradients; those of the forward pass before, where a layer's
        activations were not kept."""
        again = self.operators if run.recompute == "full" and self.inputs else ()
        rows = [*launched(again, run), *returned(self.operators, run)]
        return repeat_rows(rows, self.count)

    def kept(self, run: ForwardPass) -> float:
        """Bytes of one of them."""
        return sum(x.kept(run) for x in self.operators)

    @property
    def parameters(self) -> int:
        """Weights of all, those of adapters among them."""
        return self.count * parameters(self.operators)

    @property
    def trained(self) -> int:
        """Those that have a gradient."""
        return self.count * trained_parameters(self.operators)

    @property
    def frozen_weights(self) -> list[tuple[Weights, int]]:
        """Those that have none, and how often they occur."""
        own = frozen_weights(self.operators, self.frozen)
        return [(w, self.count) for w in own]


@dataclasses.dataclass(frozen=True)
class Chain:
    """Blocks of a network and its loss."""

    blocks: tuple[Block, ...]
    loss: Trainable

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the forward pass and of the loss."""
        rows = [row for block in self.blocks for row in block.forward(run)]
        return [*rows, *self.loss.forward(run)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of all gradients."""
        rows = [row for x in reversed(self._moving) for row in x.backward(run)]
        return [*self.loss.backward(run), *rows]

    def kept(self, run: ForwardPass) -> float:
        """Bytes of activations at the end of the forward pass, without the logits. With
        checkpointing layers keep their inputs, and the largest has all of its own."""
        if run.recompute != "full":
            return sum(x.count * x.kept(run) for x in self._moving)
        layers = [x for x in self._moving if x.inputs]
        outside = sum(x.count * x.kept(run) for x in self._moving if not x.inputs)
        inputs = sum(x.count * x.inputs for x in layers)
        skips = run.tokens * inputs * run.element_bytes
        return outside + skips + max((x.kept(run) for x in layers), default=0.0)

    @property
    def parameters(self) -> int:
        """All weights, those of adapters among them."""
        return sum(x.parameters for x in self.blocks)

    @property
    def trained(self) -> int:
        """Those that have a gradient."""
        return sum(x.trained for x in self._moving)

    @property
    def frozen_weights(self) -> list[tuple[Weights, int]]:
        """Those that have none, and how often they occur."""
        return [w for x in self.blocks for w in x.frozen_weights]

    @property
    def layers(self) -> int:
        """Number of its layers."""
        return sum(x.count for x in self.blocks if x.inputs)

    @property
    def _moving(self) -> list[Block]:
        return [x for x in self.blocks if not x.frozen]

    def without(self, layers: int) -> "Chain":
        """With its first `layers` frozen, and all that runs before them."""
        blocks: list[Block] = []
        for block in self.blocks:
            most = layers if block.inputs or not layers else block.count
            taken = min(most, block.count)
            layers -= taken if block.inputs else 0
            still = dataclasses.replace(block, count=taken, frozen=True)
            rest = dataclasses.replace(block, count=block.count - taken)
            blocks += [x for x in (still, rest) if x.count]
        return dataclasses.replace(self, blocks=tuple(blocks))

    def adapted(self, rank: int, layers: str | None = "all") -> "Chain":
        """With adapters of `rank` on linear layers of its layers (`adapted`); what
        follows them (a head) is trained, all else frozen."""
        blocks, inside = [], False
        for x in self.blocks:
            inside = inside or x.inputs > 0
            own = x.operators
            own = adapted(own, rank, layers=layers) if x.inputs else own
            blocks.append(dataclasses.replace(x, operators=own, frozen=not inside))
        return dataclasses.replace(self, blocks=tuple(blocks))
