"""MiniMax M2 and M3: grouped-query attention with norms of queries and keys, routed
experts in every layer; M3 reads the best blocks of keys in most layers."""

import dataclasses
from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    AttentionShape,
    Layer,
    attention,
    attention_shape,
    experts,
    feed_forward,
    shared_expert,
)
from .._operators.latent import Indexer
from .._operators.linear import Linear
from .._operators.operator import Norm
from .._trained import build_model

MODEL_TYPES: Final = ("minimax_m2", "minimax_m3")


def build(config: Config) -> LanguageModel:
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
    mixers, picking = [attention(shape)], _picking(config, layers)
    if any(picking):
        indexed = _block_sparse(shape, config.part("sparse_attention_config"))
        mixers.append(attention(indexed))
    blocks = [
        Layer((*mixers[picks], *(sparse if is_routed else dense)))
        for picks, is_routed in zip(picking, routed, strict=True)
    ]
    return build_model(config, blocks)


def _block_sparse(shape: AttentionShape, config: Config) -> AttentionShape:
    """Attention over the best blocks of keys, which a few small heads choose."""
    heads = config.size("sparse_num_index_heads")
    width = config.size("sparse_index_dim")
    chosen = config.size("sparse_topk_blocks") * config.size("sparse_block_size")
    index = (
        Linear(heads * width, shape.hidden, module="self_attn.index_q_proj"),
        Linear(width, shape.hidden, module="self_attn.index_k_proj"),
        Norm("rmsnorm", width, heads, residual=False),
        Norm("rmsnorm", width, residual=False),
        Indexer(shape.hidden, 0, heads, width, chosen),
    )
    return dataclasses.replace(shape, chosen=chosen, index=index)


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
