"""Kimi Linear: delta nets with a decay for each channel (KDA), latent attention without
rotation in some layers; routed experts beside a shared one."""

from typing import Final

from .._layers.latent import LatentShape, latent_attention
from .._layers.layer import Layer
from .._layers.mixers import kimi_delta
from .._layers.model import Layered, layered
from .._layers.parts import Part, experts, feed_forward, shared_expert
from .._shared.config import Config

MODEL_TYPES: Final = ("kimi_linear",)


def build(config: Config) -> Layered:
    """Kimi Linear of a config."""
    hidden, layers = config.size("hidden_size"), config.size("num_hidden_layers")
    linear = config.part("linear_attn_config")
    full = set(linear.sizes("full_attn_layers"))  # counted from 1
    delta = kimi_delta(
        hidden,
        linear.size("num_heads"),
        linear.size("head_dim"),
        linear.size("short_conv_kernel_size"),
    )
    attention = latent_attention(_latent(config))
    blocks = [
        Layer((*(attention if i + 1 in full else delta), *feed))
        for i, feed in enumerate(_feeds(config, layers))
    ]
    return layered(config, blocks)


def _latent(config: Config) -> LatentShape:
    config.ignore("num_key_value_heads", "head_dim", "mla_use_nope")
    return LatentShape(
        config.size("hidden_size"),
        config.size("num_attention_heads"),
        config.size("qk_nope_head_dim"),
        config.size("qk_rope_head_dim"),
        config.size("v_head_dim"),
        config.size("q_lora_rank", default=0),
        config.size("kv_lora_rank"),
    )


def _feeds(config: Config, layers: int) -> list[Part]:
    hidden, inner = config.size("hidden_size"), config.size("moe_intermediate_size")
    first = config.whole("first_k_dense_replace", 0)
    mixture = experts(
        hidden,
        inner,
        config.size("num_experts"),
        config.size("num_experts_per_token"),
        "block_sparse_moe",
    )
    width = config.whole("num_shared_experts", 0) * inner
    shared = shared_expert(hidden, width, "block_sparse_moe.shared_experts")
    dense = feed_forward(hidden, config.size("intermediate_size"))
    routed = config.every("moe_layer_freq", layers, first)
    if config.has("mlp_layer_types"):
        kinds = config.words("mlp_layer_types", ("dense", "sparse"), layers)
        routed = tuple(kind == "sparse" for kind in kinds)
    config.ignore("layer_types")  # as `full_attn_layers` say
    return [(mixture, *shared) if is_routed else dense for is_routed in routed]
