"""Qwen1.5 and Qwen2 with experts: grouped-query attention with biases, routed experts
beside a gated shared one."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    FULL,
    Layer,
    attention,
    attention_shape,
    feed_forward,
    layer_kinds,
    mixture,
    shared_expert,
)
from .._operators.elementwise import Part
from .._trained import build_model

MODEL_TYPES: Final = ("qwen2_moe",)


def build(config: Config) -> LanguageModel:
    """Qwen2-MoE of a config; windows, which no published one has, are refused."""
    if config.flag("use_sliding_window", False):
        raise config.error("use_sliding_window", "false")
    config.ignore("sliding_window")
    shape = attention_shape(
        config, bias=config.flag("qkv_bias", True), output_bias=False
    )
    layers = len(layer_kinds(config, FULL))
    blocks = [Layer((*attention(shape), *x)) for x in feed_forwards(config, layers)]
    return build_model(config, blocks)


def feed_forwards(config: Config, layers: int) -> list[Part]:
    """Feed-forward layers: routed with a gated shared expert, or dense."""
    hidden = config.size("hidden_size")
    if not config.has("num_experts"):
        return layers * [feed_forward(hidden, config.size("intermediate_size"))]
    routed = mixture(config, "num_experts")
    width = config.size("shared_expert_intermediate_size")
    sparse = (routed, *shared_expert(hidden, width, "mlp.shared_expert", gate=True))
    every = config.size("decoder_sparse_step", default=1)
    dense = config.numbers("mlp_only_layers")
    config.ignore("intermediate_size")  # stated without a dense layer, too
    return [
        sparse
        if not (i + 1) % every and i not in dense
        else feed_forward(hidden, config.size("intermediate_size"))
        for i in range(layers)
    ]
