"""MiniMax M2 and M3: grouped-query attention with norms of queries and keys, routed
experts in every layer; M3 reads the best blocks of keys in most layers."""

from typing import Final

from .._layers.block_sparse import block_sparse
from .._layers.layer import Layer
from .._layers.model import Layered, layered
from .._layers.parts import attention, experts, feed_forward, shared_expert
from .._layers.read import attention_shape
from .._shared.config import Config

MODEL_TYPES: Final = ("minimax_m2", "minimax_m3")


def build(config: Config) -> Layered:
    """MiniMax M2 or M3 of a config."""
    norms = ""
    if config.flag("use_qk_norm", False):
        norms = (
            "all" if config.text("qk_norm_type", "per_layer") == "per_layer" else "head"
        )
    gate = config.flag("attention_output_gate", False)
    shape = attention_shape(config, norms=norms, gate=gate)
    layers, inner = config.size("num_hidden_layers"), config.size("intermediate_size")
    routed = config.every(
        "moe_layer_freq", layers, config.whole("first_k_dense_replace", 0)
    )
    mixture = experts(
        shape.hidden,
        config.size("moe_intermediate_size", default=inner),
        config.size("num_local_experts"),
        config.size("num_experts_per_tok"),
        "block_sparse_moe",
    )
    shared = config.whole("n_shared_experts", 0)
    width = shared * config.whole("shared_intermediate_size", 0)
    sparse = (
        mixture,
        *shared_expert(shape.hidden, width, "block_sparse_moe.shared_experts"),
    )
    dense = feed_forward(
        shape.hidden, config.size("dense_intermediate_size", default=inner)
    )
    config.ignore("mlp_intermediate_size", "shared_moe_mode")  # of no layer of M2
    plain = attention(shape)
    blocks = []
    for picks, is_routed in zip(_picking(config, layers), routed, strict=True):
        picked = (
            block_sparse(shape, config.part("sparse_attention_config"))
            if picks
            else plain
        )
        blocks.append(Layer((*picked, *(sparse if is_routed else dense))))
    return layered(config, blocks)


def _picking(config: Config, layers: int) -> tuple[bool, ...]:
    """Which layers read the best blocks of keys alone."""
    if config.has("attn_type_list") and set(
        config.sizes("attn_type_list", least=0)
    ) != {1}:
        raise config.error("attn_type_list", "a list of 1 (softmax attention)")
    if not config.has("sparse_attention_config"):
        return layers * (False,)
    sparse = config.part("sparse_attention_config")
    if not sparse.flag("use_sparse_attention", True):
        return layers * (False,)
    return sparse.every("sparse_attention_freq", layers)
