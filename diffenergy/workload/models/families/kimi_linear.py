"""Kimi Linear: delta nets with a decay for each channel (KDA), latent attention without
rotation in some layers; routed experts beside a shared one."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import Layer, mixture, shared_expert
from .._operators.elementwise import Part
from .._operators.latent import latent_attention
from .._operators.mixers import kimi_delta
from .._trained import build_model
from .deepseek import feed_forwards, latent_shape

MODEL_TYPES: Final = ("kimi_linear",)


def build(config: Config) -> LanguageModel:
    """Kimi Linear of a config."""
    hidden = config.size("hidden_size")
    linear = config.part("linear_attn_config")
    full = set(linear.sizes("full_attn_layers"))  # counted from 1
    delta = kimi_delta(
        hidden,
        linear.size("num_heads"),
        linear.size("head_dim"),
        linear.size("short_conv_kernel_size"),
    )
    config.ignore("mla_use_nope")
    attention = latent_attention(latent_shape(config))
    config.ignore("layer_types")  # as `full_attn_layers` say
    feeds = feed_forwards(config, _mixture(config))
    blocks = [
        Layer((*(attention if i + 1 in full else delta), *feed))
        for i, feed in enumerate(feeds)
    ]
    return build_model(config, blocks)


def _mixture(config: Config) -> Part:
    inner, prefix = config.size("moe_intermediate_size"), "block_sparse_moe"
    routed = mixture(config, "num_experts", "num_experts_per_token", prefix=prefix)
    width = config.whole("num_shared_experts", 0) * inner
    hidden = config.size("hidden_size")
    return (routed, *shared_expert(hidden, width, f"{prefix}.shared_experts"))
