"""Mixtral and Qwen3-MoE: Llama-like layers with routed experts (one fused op), and what
these launch backward."""

import dataclasses
from typing import Any, Final

from .._network.experts import Experts
from .._network.operators import Trainable
from .._shared.config import Config
from .llama import Llama, Variant, llama_fields

_VARIANTS: Final = {
    "mixtral": Variant(),
    "qwen3_moe": Variant(qk_norm=True, window_flag=True),
    "qwen3_vl_moe_text": Variant(qk_norm=True, window_flag=True),
}
MODEL_TYPES: Final = tuple(_VARIANTS)
_EXPERT: Final = "mlp.experts.0.gate_proj"


@dataclasses.dataclass(frozen=True)
class Mixtral(Llama):
    """Decoder whose every MLP is a mixture of gated experts (`inner` wide each)."""

    experts: int
    chosen: int

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        if values["stack"] != "serving":
            raise ValueError(
                f"`stack` is {values['stack']!r}, but {self.name} has only serving "
                "(fused experts); a kernel listing can say otherwise."
            )

    def mlp(self, fused: bool) -> tuple[Trainable, ...]:
        experts = Experts(
            self.hidden, self.inner, self.experts, self.chosen, module=_EXPERT
        )
        return (experts,)


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
    model = Mixtral(
        **llama_fields(config, _VARIANTS[config.text("model_type")]),
        inner=config.size("moe_intermediate_size", "intermediate_size"),
        experts=experts,
        chosen=chosen,
    )
    config.ignore("intermediate_size", "mlp_only_layers")
    config.ignore("use_qk_norm")
    config.check_read()
    return model
