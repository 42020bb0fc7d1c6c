"""Mixtral and Qwen3-MoE: Llama-like layers with routed experts (one fused op), and what
these launch backward."""

import dataclasses
from typing import Any, Final

from .._listing import Kernel
from .._unlisted import stream
from ._network.linear_layer import gated_backward
from ._network.operators import Operator, Pass
from ._shared.base import dense, product, rows_of
from ._shared.config import Config
from ._shared.memory import element_bytes
from .llama import Llama, Variant, llama_fields

_VARIANTS: Final = {
    "mixtral": Variant(),
    "qwen3_moe": Variant(qk_norm=True, window_flag=True),
}
MODEL_TYPES: Final = tuple(_VARIANTS)


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


@dataclasses.dataclass(frozen=True)
class Mixtral(Llama):
    """Decoder whose every MLP is a mixture of gated experts (`inner` wide each)."""

    experts: int
    chosen: int

    def _mlp_parameters(self) -> int:
        return self.experts * (3 * self.hidden * self.inner + self.hidden)

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        if values["stack"] != "serving":
            raise ValueError(
                f"`stack` is {values['stack']!r}, but {self.name} has only serving "
                "(fused experts); a kernel listing can say otherwise."
            )

    def mlp(self, fused: bool) -> tuple[Operator, ...]:
        return (Experts(self.hidden, self.inner, self.experts, self.chosen),)


def build(config: Config) -> Mixtral:
    """Mixtral or Qwen3-MoE of a config; every layer must be a mixture."""
    if config.values.get("mlp_only_layers"):
        raise config.error("mlp_only_layers", "an empty list")
    if config.size("decoder_sparse_step", default=1) != 1:
        raise config.error("decoder_sparse_step", "1")
    experts = config.size("num_local_experts", "num_experts")
    chosen = config.size("num_experts_per_tok")
    if chosen > experts:
        raise config.error("num_experts_per_tok", f"at most {experts} experts")
    return Mixtral(
        **llama_fields(config, _VARIANTS[config.text("model_type")]),
        inner=config.size("moe_intermediate_size", "intermediate_size"),
        experts=experts,
        chosen=chosen,
    )
