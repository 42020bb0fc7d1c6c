"""Qwen3-Next, 3.5 and 3.6: gated delta nets, every fourth layer gated attention; dense
or routed feed-forward layers."""

from typing import Final

from .._layers.layer import Layer
from .._layers.mixers import DeltaShape, gated_delta
from .._layers.model import Layered, layered
from .._layers.parts import Part, attention, experts, feed_forward, shared_expert
from .._layers.read import FULL, attention_shape, layer_kinds, state_dtype
from .._shared.config import Config

MODEL_TYPES: Final = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
_LINEAR: Final = "linear_attention"


def build(config: Config) -> Layered:
    """Qwen3-Next or later of a (text) config."""
    gate = config.flag("attn_output_gate", True)
    shape = attention_shape(config, norms="head", gate=gate)
    config.text("output_gate_type", "")
    full, delta = attention(shape), gated_delta(_delta(config))
    every = config.size("full_attention_interval", default=4)
    kinds = layer_kinds(config, FULL, _LINEAR, pattern=every)
    blocks = [
        Layer((*(full if kind == FULL else delta), *feed))
        for kind, feed in zip(kinds, _feeds(config, len(kinds)), strict=True)
    ]
    return layered(config, blocks)


def _delta(config: Config) -> DeltaShape:
    return DeltaShape(
        config.size("hidden_size"),
        config.size("linear_num_key_heads"),
        config.size("linear_num_value_heads"),
        config.size("linear_key_head_dim"),
        config.size("linear_value_head_dim"),
        config.size("linear_conv_kernel_dim"),
        state_dtype(config, "mamba_ssm_dtype"),
    )


def _feeds(config: Config, layers: int) -> list[Part]:
    """Feed-forward layers: routed with a gated shared expert, or dense."""
    hidden = config.size("hidden_size")
    if not config.has("num_experts"):
        return layers * [feed_forward(hidden, config.size("intermediate_size"))]
    mixture = experts(
        hidden,
        config.size("moe_intermediate_size"),
        config.size("num_experts"),
        config.size("num_experts_per_tok"),
    )
    width = config.size("shared_expert_intermediate_size")
    sparse = (mixture, *shared_expert(hidden, width, "mlp.shared_expert", gate=True))
    routed = config.every("decoder_sparse_step", layers)
    dense = config.numbers("mlp_only_layers")
    config.ignore("intermediate_size")  # stated without a dense layer, too
    return [
        sparse
        if is_routed and i not in dense
        else feed_forward(hidden, config.size("intermediate_size"))
        for i, is_routed in enumerate(routed)
    ]
