"""Granite 4 and Falcon-H1: Mamba2 and attention, layer by layer (Granite) or side by
side in each (Falcon); dense feed-forward layers, in Granite beside routed experts."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    FULL,
    LINEAR,
    Layer,
    attention,
    attention_shape,
    feed_forward,
    layer_kinds,
    mixture,
)
from .._operators.elementwise import Map, Part
from .._operators.mixers import mamba2
from .._trained import build_model

MODEL_TYPES: Final = ("granitemoehybrid", "falcon_h1")


def build(config: Config) -> LanguageModel:
    """Granite 4 or Falcon-H1 of a config."""
    falcon = config.text("model_type") == "falcon_h1"
    return _falcon(config) if falcon else _granite(config)


def _granite(config: Config) -> LanguageModel:
    rotary = config.text("position_embedding_type", "nope") == "rope"
    full = attention(attention_shape(config, rotary=rotary))
    scan = _mamba(config, norm=True)
    hidden, number = config.size("hidden_size"), config.whole("num_local_experts", 0)
    shared = feed_forward(hidden, config.size("shared_intermediate_size"), "shared_mlp")
    feed: Part = shared
    config.ignore("intermediate_size", "num_experts_per_tok")
    if number:
        key, prefix = "num_local_experts", "block_sparse_moe"
        routed = mixture(config, key, inner="intermediate_size", prefix=prefix)
        feed = (routed, *shared, Map("add", hidden, reads=2))
    # newer files have the names that all hybrids share
    kinds = layer_kinds(config, "attention", "mamba", FULL, LINEAR)
    blocks = [
        Layer((*(full if kind in ("attention", FULL) else scan), *feed))
        for kind in kinds
    ]
    return build_model(config, blocks, tied=True)


def _falcon(config: Config) -> LanguageModel:
    shape = attention_shape(config)
    norm = config.flag("mamba_rms_norm", False)
    scan = _mamba(config, norm)
    bias = config.flag("mlp_bias", False)
    feed = feed_forward(
        shape.hidden, config.size("intermediate_size"), "feed_forward", bias=bias
    )
    config.ignore("projectors_bias", "mamba_use_mlp", "attn_layer_indices")
    config.ignore("mamba_d_ssm", "mamba_norm_before_gate", "mlp_expansion_factor")
    side_by_side = Map("add", shape.hidden, reads=2)
    layer = Layer((*scan, *attention(shape), side_by_side, *feed))
    return build_model(config, config.size("num_hidden_layers") * [layer])


def _mamba(config: Config, norm: bool) -> Part:
    config.ignore("mamba_expand")
    return mamba2(
        "mamba",
        config.size("hidden_size"),
        config.size("mamba_n_heads"),
        config.size("mamba_d_head"),
        config.size("mamba_d_state"),
        config.size("mamba_n_groups"),
        config.size("mamba_d_conv"),
        config.size("mamba_chunk_size"),
        bias=config.flag("mamba_proj_bias", False),
        conv_bias=config.flag("mamba_conv_bias", True),
        norm=norm,
    )
