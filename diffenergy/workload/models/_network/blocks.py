"""Networks that are a chain of blocks, such as encoders and vision models, and their
training: forward, backward, what is kept, and which blocks are trained at all."""

import dataclasses

from ..._eager_rows import HALF, stream
from ..._kernel import Kernel
from .._network.rows import repeated
from .operators import Trainable
from .parts import adapted, parameters, trained_parameters
from .passes import Pass
from .step import one_a_launch


@dataclasses.dataclass(frozen=True)
class Pointwise(Trainable):
    """An activation `fn` of `width` values a token, a kernel of its own. The gradients
    of ReLU and tanh follow from their output, which the next operator keeps."""

    fn: str
    width: int

    @property
    def zeros(self) -> dict[str, float]:
        """Share of zeros in its output and in its gradient."""
        return {"zero_share": HALF} if self.fn == "relu" else {}

    def forward(self, run: Pass) -> list[Kernel]:
        return [stream(self.fn, run.tokens * self.width, run.values, 1, **self.zeros)]

    def backward(self, run: Pass) -> list[Kernel]:
        both = {"reads": 2, "writes": 1, **self.zeros}
        elements = run.tokens * self.width
        return [stream(f"{self.fn}_backward", elements, run.values, 1, **both)]

    def kept(self, run: Pass) -> float:
        """Its input, but of those of which the output tells the gradient."""
        values = 0 if self.fn in ("relu", "tanh") else self.width
        return run.tokens * values * run.element_bytes


@dataclasses.dataclass(frozen=True)
class Alone(Trainable):
    """A kernel `fn` over `width` values a token that has none backward: a sum, whose
    gradient is that of its operands, or a mask. `zeros`: their share."""

    fn: str
    width: int
    zeros: float = 0.0

    def forward(self, run: Pass) -> list[Kernel]:
        elements, zeros = run.tokens * self.width, {"zero_share": self.zeros}
        return [stream(self.fn, elements, run.values, 1, **zeros)]

    def backward(self, run: Pass) -> list[Kernel]:
        return []


@dataclasses.dataclass(frozen=True)
class Fork(Trainable):
    """`width` values a token that two layers read, whose gradients are added."""

    width: int

    def forward(self, run: Pass) -> list[Kernel]:
        return []

    def backward(self, run: Pass) -> list[Kernel]:
        return [stream("pointwise_add", run.tokens * self.width, run.values, 1)]


@dataclasses.dataclass(frozen=True)
class Copied(Trainable):
    """`times` copies of `width` values a token into another order, and back."""

    fn: str
    width: int
    times: int = 1

    def forward(self, run: Pass) -> list[Kernel]:
        one = {"reads": 1, "writes": 1}
        elements = run.tokens * self.width
        return [stream(self.fn, elements, run.values, self.times, **one)]

    def backward(self, run: Pass) -> list[Kernel]:
        return self.forward(run)


@dataclasses.dataclass(frozen=True)
class Block:
    """Operators that run `count` times one after the other; of layers `inputs`: values
    a token (of vision models an image) that one reads, 0 where it is none."""

    operators: tuple[Trainable, ...]
    count: int = 1
    inputs: int = 0

    def forward(self, run: Pass) -> list[Kernel]:
        """Kernels of all, those of a layer together."""
        return repeated(
            one_a_launch(x.forward(run) for x in self.operators), self.count
        )

    def backward(self, run: Pass) -> list[Kernel]:
        """Kernels of the gradients; those of the forward pass before, where a layer's
        activations were not kept."""
        again = self.operators if run.recompute == "full" and self.inputs else ()
        rows = [
            *one_a_launch(x.forward(run) for x in again),
            *one_a_launch(x.backward(run) for x in reversed(self.operators)),
        ]
        return repeated(rows, self.count)

    def kept(self, run: Pass) -> float:
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


@dataclasses.dataclass(frozen=True)
class Chain:
    """Blocks of a network and its loss; those `before` run forward alone."""

    blocks: tuple[Block, ...]
    loss: Trainable
    before: tuple[Block, ...] = ()

    def forward(self, run: Pass) -> list[Kernel]:
        """Kernels of the forward pass and of the loss."""
        every = (*self.before, *self.blocks)
        rows = [row for block in every for row in block.forward(run)]
        return [*rows, *self.loss.forward(run)]

    def backward(self, run: Pass) -> list[Kernel]:
        """Kernels of all gradients."""
        rows = [row for x in reversed(self.blocks) for row in x.backward(run)]
        return [*self.loss.backward(run), *rows]

    def kept(self, run: Pass) -> float:
        """Bytes of activations at the end of the forward pass, without the logits. With
        checkpointing layers keep their inputs, and the largest has all of its own."""
        if run.recompute != "full":
            return sum(x.count * x.kept(run) for x in self.blocks)
        layers = [x for x in self.blocks if x.inputs]
        outside = sum(x.count * x.kept(run) for x in self.blocks if not x.inputs)
        inputs = sum(x.count * x.inputs for x in layers)
        skips = run.tokens * inputs * run.element_bytes
        return outside + skips + max((x.kept(run) for x in layers), default=0.0)

    @property
    def parameters(self) -> int:
        """All weights, those of adapters among them."""
        return sum(x.parameters for x in (*self.before, *self.blocks))

    @property
    def trained(self) -> int:
        """Those that have a gradient."""
        return sum(x.trained for x in self.blocks)

    @property
    def layers(self) -> int:
        """Number of its layers."""
        return sum(x.count for x in (*self.before, *self.blocks) if x.inputs)

    def without(self, layers: int) -> "Chain":
        """With its first `layers` frozen, and all that runs before them."""
        before: list[Block] = []
        after: list[Block] = []
        for block in self.blocks:
            most = layers if block.inputs or not layers else block.count
            taken = min(most, block.count)
            layers -= taken if block.inputs else 0
            before += [dataclasses.replace(block, count=taken)] if taken else []
            left = block.count - taken
            after += [dataclasses.replace(block, count=left)] if left else []
        return dataclasses.replace(self, before=tuple(before), blocks=tuple(after))

    def adapted(self, rank: int) -> "Chain":
        """With adapters of `rank` on the linear layers of its layers; what follows them
        (a head) is trained, all else frozen."""
        first = next(i for i, x in enumerate(self.blocks) if x.inputs)
        blocks = tuple(
            dataclasses.replace(x, operators=adapted(x.operators, rank))
            if x.inputs
            else x
            for x in self.blocks[first:]
        )
        return dataclasses.replace(self, before=self.blocks[:first], blocks=blocks)
