"""LFM2: gated short convolutions, attention in some layers; dense or routed
feed-forward layers."""

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
)
from .._operators.mixers import short_convolution
from .._trained import build_model

MODEL_TYPES: Final = ("lfm2", "lfm2_moe")


def build(config: Config) -> LanguageModel:
    """LFM2 of a config."""
    shape = attention_shape(config, norms="head")
    config.ignore("theta")  # of the rotation
    config.ignore("num_heads", "block_dim", "conv_dim", "conv_dim_out")
    taps, bias = config.size("conv_L_cache"), config.flag("conv_bias", False)
    convolution = short_convolution(shape.hidden, taps, bias)
    feed = dense = feed_forward(shape.hidden, _inner(config), "feed_forward")
    first = config.whole("num_dense_layers", 0)
    if config.text("model_type") == "lfm2_moe":
        config.flag("use_expert_bias", True)  # of the choice alone
        feed = (mixture(config, "num_experts", prefix="feed_forward"),)
        dense = feed_forward(
            shape.hidden, config.size("intermediate_size"), "feed_forward"
        )
    blocks = []
    for i, kind in enumerate(_kinds(config)):
        mixer = attention(shape) if kind == FULL else convolution
        blocks.append(Layer((*mixer, *(dense if i < first else feed))))
    return build_model(config, blocks, tied=True)


def _kinds(config: Config) -> tuple[str, ...]:
    """Kind of every layer: `layer_types`, or (first files) the numbers of those with
    attention."""
    full = config.numbers("full_attn_idxs")
    if config.has("layer_types") or not full:
        return layer_kinds(config, FULL, "conv")
    layers = range(config.size("num_hidden_layers"))
    return tuple(FULL if i in full else "conv" for i in layers)


def _inner(config: Config) -> int:
    """Width of the feed-forward layers: two thirds of what is stated, times a factor,
    rounded up (as `Lfm2MLP` does)."""
    stated = config.size("block_ff_dim", "intermediate_size")
    config.ignore("intermediate_size", "block_ff_dim", "block_use_swiglu")
    adjust = config.flag("block_auto_adjust_ff_dim", True)
    factor = config.number("block_ffn_dim_multiplier", 1.0)
    multiple = config.size("block_multiple_of", default=256)
    if not adjust:
        return stated
    inner = int(factor * int(2 * stated / 3))
    return -(-inner // multiple) * multiple
