"""ERNIE 4.5 with experts: grouped-query attention, dense layers at the ends, the rest
routed beside a shared expert."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    Layer,
    attention,
    attention_shape,
    feed_forward,
    mixture,
    shared_expert,
)
from .._trained import build_model

MODEL_TYPES: Final = ("ernie4_5_moe",)


def build(config: Config) -> LanguageModel:
    """ERNIE 4.5 of a config; a shared expert is as wide as so many routed ones."""
    mixer, hidden = attention(attention_shape(config)), config.size("hidden_size")
    layers = config.size("num_hidden_layers")
    inner = config.size("moe_intermediate_size")
    routed_ones = mixture(config, "moe_num_experts", "moe_k")
    shared = config.whole("moe_num_shared_experts", 0)
    sparse = (routed_ones, *shared_expert(hidden, shared * inner, "mlp.shared_experts"))
    dense = feed_forward(hidden, config.size("intermediate_size"))
    first = config.whole("moe_layer_start_index", 1)
    last = layers - 1
    if config.values.get("moe_layer_end_index") != -1:
        last = config.whole("moe_layer_end_index", last)
    every = config.size("moe_layer_interval", default=1)
    routed = [first <= i <= last and not (i + 1) % every for i in range(layers)]
    config.ignore("moe_layer_end_index", "moe_gate", "use_rmsnorm")
    blocks = [
        Layer((*mixer, *(sparse if is_routed else dense))) for is_routed in routed
    ]
    return build_model(config, blocks, tied=True)
