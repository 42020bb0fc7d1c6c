"""MiMo-V2: attention over windows and over everything in a pattern, each with heads of
its own and values narrower than keys; routed experts."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import FULL, SLIDING, AttentionShape, Layer, attention
from .._trained import build_model
from .deepseek import feed_forwards

MODEL_TYPES: Final = ("mimo_v2_flash",)


def build(config: Config) -> LanguageModel:
    """MiMo-V2-Flash of a config."""
    window = config.size("sliding_window", "sliding_window_size")
    config.ignore("sliding_window_size", "attention_chunk_size")
    full = attention(_shape(config, "", 0))
    sliding = attention(_shape(config, "swa_", window))
    layers = config.size("num_hidden_layers")
    if config.has("hybrid_layer_pattern"):
        slides = config.every("hybrid_layer_pattern", layers)
        config.ignore("layer_types")  # which say the same
    else:
        kinds = config.words("layer_types", (FULL, SLIDING), layers)
        slides = [kind == SLIDING for kind in kinds]
    blocks = [
        Layer((*(sliding if slide else full), *feed))
        for slide, feed in zip(slides, feed_forwards(config), strict=True)
    ]
    return build_model(config, blocks)


def _shape(config: Config, prefix: str, window: int) -> AttentionShape:
    kind = "swa" if window else "full"
    return AttentionShape(
        config.size("hidden_size"),
        config.size(f"{prefix}num_attention_heads"),
        config.size(f"{prefix}num_key_value_heads"),
        config.size(f"{prefix}head_dim"),
        config.size(f"{prefix}v_head_dim"),
        bias=config.flag("attention_bias", False),
        window=window,
        sinks=config.flag(f"add_{kind}_attention_sink_bias", False),
    )
