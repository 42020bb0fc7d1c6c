"""Routed experts, forward as one fused op, and what they launch backward."""

import dataclasses

from ..._listing import Kernel
from ..._unlisted import stream
from .._shared.base import dense, product, rows_of
from .._shared.memory import element_bytes
from .linear_layer import gated_backward, stored
from .operators import Pass, Stored, Trainable, Weights


@dataclasses.dataclass(frozen=True)
class Experts(Stored, Trainable):
    """`experts` MLP of `inner` features, of which every token takes `chosen`.

    `module`: the name of one of its matrices in a checkpoint. `gated`: gate and up,
    then down; else up and down. `bias`: of the router and of every product. `latent`:
    width on which experts act (0: `hidden`). Backward every product of the forward pass
    has two, batched over the experts, each with its share of the rows (balanced
    routing).
    """

    hidden: int
    inner: int
    experts: int
    chosen: int
    gated: bool = True
    bias: bool = False
    latent: int = 0

    def forward(self, run: Pass) -> list[Kernel]:
        """Router, choice of experts, experts."""
        tokens, p = run.tokens, run.precision
        kept = p.format(self.format)
        experts: Kernel = dict(
            op="moe",
            num_tokens=tokens,
            hidden_size=self._width,
            inter_size=self.inner,
            topk=self.chosen,
            num_experts=self.experts,
            distribution=run.routing,
            dtype=kept.products if kept else p.linear,
            count=1,
            **({} if self.gated else {"gated": False}),
            **(stored(kept) if kept else {}),
        )
        router = [
            dense(p.values, tokens, self.experts, self.hidden),
            rows_of("softmax", tokens, self.experts, "fp32"),
        ]
        return [*router, experts]

    def weights(self) -> tuple[Weights, ...]:
        used = self.chosen / self.experts
        parts = 3 if self.gated else 2
        biases = (parts - 1) * self.inner + self._width if self.bias else 0
        matrices = self.experts * parts * self._width * self.inner
        return (
            Weights(matrices, self.format, True, used),
            Weights(self.experts * biases, used=used),
            Weights(self.experts * (self.hidden + self.bias)),
        )

    def backward(self, run: Pass) -> list[Kernel]:
        """Combination, down, product of gate and up, gate and up, look-up, router."""
        t, h, values = run.tokens, self.hidden, run.values
        rows = t * self.chosen
        spread = {"reads": 1 + 1 / self.chosen, "writes": 1}  # dy and expert outputs
        routing = stream(
            "softmax_backward", t * self.experts, "fp32", 1, reads=2, writes=1
        )
        return [
            stream("combine_backward", rows * h, values, 1, **spread),
            *self._products(run, h, self.inner),
            gated_backward(rows * self.inner, values),
            *self._products(run, 2 * self.inner, h),
            stream("dispatch_backward", t * h, values, 1, reads=self.chosen, writes=1),
            routing,
            dense(values, t, h, self.experts),
            product(values, 1, self.experts, h, t),
        ]

    def kept(self, run: Pass) -> float:
        """The input of router and dispatch; of every choice the dispatched row and its
        result, gate, up and their product."""
        e = element_bytes(run.precision.linear)
        wide = 2 * run.element_bytes * (self.hidden + self.inner)
        return run.tokens * (self.hidden * e + self.chosen * (wide + self.inner * e))

    def _products(self, run: Pass, outputs: int, inputs: int) -> list[Kernel]:
        """Gradients of the input and of the weights of every expert; some have a row
        more where the rows do not divide."""
        rows, dtype = run.tokens * self.chosen, run.precision.linear
        active = min(self.experts, rows)
        share, more = divmod(rows, active)
        shares = ((active - more, share), (more, share + 1))
        return [
            kernel
            for experts, own in shares
            if experts
            for kernel in (
                dense(dtype, own, inputs, outputs, batch=experts),
                product(dtype, experts, outputs, inputs, own),
            )
        ]

    @property
    def _width(self) -> int:
        return self.latent or self.hidden
