"""Mixture of experts: router and gated experts, forward and backward."""

import dataclasses

from ..._listing import Kernel
from ..._unlisted import stream
from .._shared.base import dense, product, rows_of
from .activations import gated_backward
from .operators import Operator, Pass


@dataclasses.dataclass(frozen=True)
class Experts(Operator):
    """`experts` gated MLP of `inner` features, of which every token takes `chosen`.

    Forward the fused op. Backward every product of the forward pass has two, batched
    over the experts, each with its share of the rows (balanced routing).
    """

    hidden: int
    inner: int
    experts: int
    chosen: int

    def forward(self, run: Pass) -> list[Kernel]:
        """Router, choice of experts, experts."""
        tokens, p = run.tokens, run.precision
        experts: Kernel = dict(
            op="moe",
            num_tokens=tokens,
            hidden_size=self.hidden,
            inter_size=self.inner,
            topk=self.chosen,
            num_experts=self.experts,
            dtype=p.linear,
            count=1,
        )
        return [
            dense(p.values, tokens, self.experts, self.hidden),
            rows_of("softmax", tokens, self.experts, "fp32"),
            experts,
        ]

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

    def _products(self, run: Pass, outputs: int, inputs: int) -> list[Kernel]:
        """Gradients of the input and of the weights of every expert."""
        rows = run.tokens * self.chosen
        active = min(self.experts, rows)
        share, dtype = rows / active, run.precision.linear
        return [
            dense(dtype, share, inputs, outputs, batch=active),
            product(dtype, active, outputs, inputs, share),
        ]
