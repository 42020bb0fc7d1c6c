"""Gemma 2 to 4: windows and full attention in a pattern, norms before and behind every
part, GELU gates; in Gemma 4 heads of their own in full layers, experts beside a dense
feed-forward layer."""

import dataclasses
from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    FULL,
    SLIDING,
    AttentionShape,
    Layer,
    attention,
    attention_shape,
    feed_forward,
    layer_kinds,
    mixture,
)
from .._operators.elementwise import Map, Part, Plain
from .._operators.operator import Norm
from .._trained import build_model

MODEL_TYPES: Final = ("gemma2", "gemma3_text", "gemma4_text")
_PATTERN: Final = {"gemma2": 2, "gemma3_text": 6, "gemma4_text": 6}
_GEMMA3: Final = {
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096,
}  # fmt: skip
"""What the published files of Gemma 3 leave to `Gemma3TextConfig`."""


def build(config: Config) -> LanguageModel:
    """Gemma of a text config."""
    kind = config.text("model_type")
    if kind == "gemma3_text":
        config = dataclasses.replace(config, values=_GEMMA3 | dict(config.values))
    newest = kind == "gemma4_text"
    if not config.whole("hidden_size_per_layer_input", 0):
        config.ignore("vocab_size_per_layer_input")
    else:
        raise config.error("hidden_size_per_layer_input", "0 (no inputs by layer)")
    norms = "" if kind == "gemma2" else "head"
    shape = attention_shape(config, norms=norms, output_bias=False)
    window = config.size("sliding_window")
    pattern = config.size("sliding_window_pattern", default=_PATTERN[kind])
    full = shape
    if newest:
        full = _full(config, shape)
    sliding = dataclasses.replace(shape, window=window)
    feed = feed_forward(shape.hidden, config.size("intermediate_size"), fn="gelu")
    blocks = []
    for name in layer_kinds(config, FULL, SLIDING, pattern=pattern):
        layer_shape = full if name == FULL else sliding
        each = layer_shape.kv_heads
        values = (
            Norm("rmsnorm", layer_shape.head_dim, each, False, False, heads=each),
        )
        mixer = (*attention(layer_shape), *(values if newest else ()))
        blocks.append(
            Layer((*mixer, *feed, *(_mixture(config) if newest else ())), norms=4)
        )
    return build_model(config, blocks, tied=True)


def _full(config: Config, shape: AttentionShape) -> AttentionShape:
    """Attention of the full layers of Gemma 4, in keys of its own or (files of newer
    transformers) by layer."""
    head_dim = config.size("global_head_dim", default=shape.head_dim)
    kv_heads = config.size("num_global_key_value_heads", default=shape.kv_heads)
    if config.has("per_layer_config"):
        key = "per_layer_config"
        layers = config.part(key)
        parts = [layers.part(name) for name in layers.values]
        number = layer_kinds(config, FULL, SLIDING).count(FULL)
        keys = {"head_dim", "num_key_value_heads"}
        if (
            len(parts) != number
            or any(dict(x.values) != dict(parts[0].values) for x in parts)
            or set(parts[0].values) - keys
        ):
            raise config.error(key, "heads of all full layers alike, and no more")
        head_dim = parts[0].size("head_dim", default=head_dim)
        kv_heads = parts[0].size("num_key_value_heads", default=kv_heads)
    return dataclasses.replace(
        shape,
        head_dim=head_dim,
        kv_heads=kv_heads,
        same_keys=config.flag("attention_k_eq_v", False),
    )


def _mixture(config: Config) -> Part:
    """Experts beside the dense layer, with three norms of their own, and scales of the
    router's input and of its experts."""
    config.ignore("num_experts", "moe_intermediate_size", "top_k_experts")
    if not config.flag("enable_moe_block", False):
        return ()
    hidden, number = config.size("hidden_size"), config.size("num_experts")
    chosen = ("top_k_experts", "num_experts_per_tok")
    routed = mixture(config, "num_experts", *chosen, prefix="")
    norms = 3 * (Norm("rmsnorm", hidden),)
    return (routed, *norms, Plain(hidden + number), Map("add", hidden, reads=2))
