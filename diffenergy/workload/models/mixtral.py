"""Mixtral and Qwen3-MoE: Llama-like layers with routed experts."""

import dataclasses
from typing import Any, Final

from ._network.experts import Experts
from ._network.operators import Operator
from ._shared.config import Config
from .llama import Llama, llama_fields

MODEL_TYPES: Final = ("mixtral", "qwen3_moe")


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
        **llama_fields(config),
        inner=config.size("moe_intermediate_size", "intermediate_size"),
        experts=experts,
        chosen=chosen,
    )
