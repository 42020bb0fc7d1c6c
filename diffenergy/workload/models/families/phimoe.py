"""Phi-3.5-MoE: grouped-query attention with biases, LayerNorms, routed experts in every
layer."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import Layer, attention, attention_shape, mixture
from .._operators.elementwise import Plain
from .._trained import build_model

MODEL_TYPES: Final = ("phimoe",)


def build(config: Config) -> LanguageModel:
    """Phi-3.5-MoE of a config; its norms run as RMSNorms, with their biases beside."""
    shape = attention_shape(config)
    number, prefix = "num_local_experts", "block_sparse_moe"
    routed = mixture(config, number, inner="intermediate_size", prefix=prefix)
    window = config.size("sliding_window", default=0)
    if window and window < config.size("max_position_embeddings"):
        raise config.error("sliding_window", "null, or all positions")
    layer = Layer((*attention(shape), routed, Plain(2 * shape.hidden)))
    blocks = config.size("num_hidden_layers") * [layer]
    last = shape.hidden
    if config.flag("lm_head_bias", False):
        last += config.size("vocab_size")
    blocks[-1] = Layer((*layer.operators, Plain(last)))
    return build_model(config, blocks)
