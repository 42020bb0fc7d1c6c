"""Low-rank adapters (LoRA, arXiv 2106.09685): of a linear layer whose weights are
frozen, y = W x + B (A x) with A of rank x inputs and B of outputs x rank."""

import dataclasses

from ..._eager_rows import stream
from ..._kernel import Kernel
from .._network.rows import dense, linear, product
from .passes import Pass


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Adapters of layers with these `outputs` and the same input, which one product
    may make together: each has an A and a B of its own. Fused stacks multiply by all A
    at once; both add the result with a kernel."""

    rank: int
    outputs: tuple[int, ...]

    def parameters(self, inputs: int) -> int:
        """Elements of every A and B.

        >>> Adapters(16, (4096, 1024, 1024)).parameters(4096)
        294912
        """
        return sum(self.rank * (inputs + outputs) for outputs in self.outputs)

    def forward(self, run: Pass, inputs: int) -> list[Kernel]:
        """A x, then B of it, scaled and added."""
        t, rank, dtype = run.tokens, self.rank, run.values
        if run.fused:
            return [
                dense(dtype, t, self._joined, inputs),
                *(dense(dtype, t, outputs, rank) for outputs in self.outputs),
                stream("pointwise_add", t * sum(self.outputs), dtype, 1),
            ]
        p = dataclasses.replace(run.precision, linear=run.precision.products)
        return [
            row
            for outputs in self.outputs
            for row in (
                linear(p, rank, t, inputs),
                linear(p, outputs, t, rank),
                stream("scalar_mul", t * outputs, dtype, 1),
                stream("pointwise_add", t * outputs, dtype, 1),
            )
        ]

    def backward(self, run: Pass, inputs: int) -> list[Kernel]:
        """Gradients of A x, of B and of A, and what they add to that of the input."""
        t, rank, dtype = run.tokens, self.rank, run.values
        added = stream("pointwise_add", t * inputs, dtype, 1)
        ups = [
            row
            for outputs in self.outputs
            for row in (
                *([] if run.fused else [stream("scalar_mul", t * outputs, dtype, 1)]),
                dense(dtype, t, rank, outputs),
                product(dtype, 1, outputs, rank, t),
            )
        ]
        widths = (self._joined,) if run.fused else len(self.outputs) * (rank,)
        downs = [
            row
            for width in widths
            for row in (
                product(dtype, 1, width, inputs, t),
                dense(dtype, t, inputs, width),
                added,
            )
        ]
        return [*ups, *downs]

    def kept(self, run: Pass) -> float:
        """Bytes of A x."""
        return run.tokens * self._joined * run.element_bytes

    @property
    def _joined(self) -> int:
        return self.rank * len(self.outputs)
