"""Qwen3-Next, 3.5 and 3.6: gated delta nets, every fourth layer gated attention; dense
or routed feed-forward layers."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    FULL,
    LINEAR,
    Layer,
    attention,
    attention_shape,
    layer_kinds,
    state_dtype,
)
from .._operators.mixers import gated_delta
from .._trained import build_model
from .qwen2_moe import feed_forwards

MODEL_TYPES: Final = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")


def build(config: Config) -> LanguageModel:
    """Qwen3-Next or later of a (text) config."""
    gate = config.flag("attn_output_gate", True)
    shape = attention_shape(config, norms="head", gate=gate)
    config.text("output_gate_type", "")
    delta = gated_delta(
        shape.hidden,
        config.size("linear_num_key_heads"),
        config.size("linear_num_value_heads"),
        config.size("linear_key_head_dim"),
        config.size("linear_value_head_dim"),
        config.size("linear_conv_kernel_dim"),
        state_dtype(config, "mamba_ssm_dtype"),
    )
    full = attention(shape)
    every = config.size("full_attention_interval", default=4)
    kinds = layer_kinds(config, FULL, LINEAR, pattern=every)
    blocks = [
        Layer((*(full if kind == FULL else delta), *feed))
        for kind, feed in zip(kinds, feed_forwards(config, len(kinds)), strict=True)
    ]
    return build_model(config, blocks)
