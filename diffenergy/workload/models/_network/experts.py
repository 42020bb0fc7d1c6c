"""Routed experts, forward as one fused op, and what they launch backward."""

import dataclasses

from ..._listing import Kernel
from ..._unlisted import stream
from .._shared.base import dense, product, rows_of
from .._shared.memory import element_bytes
from .linear_layer import gated_backward, stored
from .operators import Pass, Stored, Trainable, Weights
from .sharding import Split, all_reduce, collective, divided


@dataclasses.dataclass(frozen=True)
class Experts(Stored, Trainable):
    """`experts` MLP of `inner` features, of which every token takes `chosen`.

    `module`: the name of one of its matrices in a checkpoint. `gated`: gate and up,
    then down; else up and down. `bias`: of the router and of every product. `latent`:
    width on which experts act (0: `hidden`). `split`: how GPUs divide them. Backward
    every product of the forward pass has two, batched over the experts, each with its
    share of the rows (balanced routing).
    """

    hidden: int
    inner: int
    experts: int
    chosen: int
    gated: bool = True
    bias: bool = False
    latent: int = 0
    split: Split = Split()

    def shard(self, split: Split) -> "Experts":
        """With `ep` GPUs each has some of the experts; `tp`/`ep` of them share each.

        GPUs that see the same tokens add up what their experts made (vLLM, SGLang and
        TensorRT-LLM without attention data parallelism). Replicas with tokens of their
        own send each to its experts and get the results back: two all-to-all of T h
        values for every choice, then an all-gather within a replica.
        """
        if self.experts % split.ep:
            raise ValueError(
                f"`ep` is {split.ep}, which does not divide the {self.experts} experts "
                "of a layer."
            )
        divided(self.inner, split.inner, "features of an expert")
        return dataclasses.replace(self, split=split)

    def forward(self, run: Pass) -> list[Kernel]:
        """Router, choice of experts, experts, and what joins them."""
        split, t = self.split, run.tokens
        if split.replicas == 1:
            joined = all_reduce(t, self._width, split.tp, run.values)
            return [*self._chosen(run), *joined]
        moved = self._width * self.chosen / split.tp
        sent = collective("all_to_all", t, moved, split.ep, run.values)
        back = collective("all_gather", t, self._width, split.tp, run.values)
        *router, experts = self._chosen(run)
        return [*router, *sent, experts, *sent, *back]

    def _chosen(self, run: Pass) -> list[Kernel]:
        tokens, p = run.tokens, run.precision
        parts = {"moe_ep_size": self.split.ep, "moe_tp_size": self.split.inner}
        kept = p.format(self.format)
        experts: Kernel = dict(
            op="moe",
            num_tokens=tokens * self.split.replicas,
            hidden_size=self._width,
            inter_size=self.inner,
            topk=self.chosen,
            num_experts=self.experts,
            distribution=run.routing,
            dtype=kept.products if kept else p.linear,
            count=1,
            **({} if self.gated else {"gated": False}),
            **{name: ranks for name, ranks in parts.items() if ranks > 1},
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
        own, inner = self.experts // self.split.ep, self.inner // self.split.inner
        biases = (parts - 1) * inner + self._width if self.bias else 0
        matrices = own * parts * self._width * inner
        return (
            Weights(matrices, self.format, True, used),
            Weights(own * biases, used=used),
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
