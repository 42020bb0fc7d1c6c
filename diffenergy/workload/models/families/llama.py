"""Llama and its relatives: RMSNorm, rotary positions, gated MLP, grouped queries; in
Mixtral and Qwen3-MoE every MLP a mixture of experts."""

import dataclasses
from typing import Final

from .._checkpoint.config import Config, positions
from .._language_model import LanguageModel
from .._layer import AttentionShape, Layer, attention, experts, feed_forward, head_sizes
from .._trained import build_model


@dataclasses.dataclass(frozen=True)
class Variant:
    """What a relative does differently."""

    qkv_bias: bool = False
    qk_norm: bool = False
    window_flag: bool = False
    """Whether `use_sliding_window` must be set for the window to apply."""
    same: tuple[str, ...] = ()
    """Keys that say what it has anyway."""
    mixture: bool = False
    """Whether every MLP is a mixture of experts."""


_VARIANTS: Final = {
    "llama": Variant(),
    "mistral": Variant(),
    "qwen2": Variant(qkv_bias=True, window_flag=True),
    "qwen3": Variant(qk_norm=True, window_flag=True),
    "qwen3_vl_text": Variant(qk_norm=True, window_flag=True),
    "mimo": Variant(qkv_bias=True, window_flag=True),
    "ministral3": Variant(),
    "phi3": Variant(same=("full_attn_mod", "interpolate_factor")),
    "smollm3": Variant(),
    "granite": Variant(),
    "seed_oss": Variant(qkv_bias=True),
    "qwen2_5_vl_text": Variant(qkv_bias=True, window_flag=True),
    "ernie4_5": Variant(),
    "internlm3": Variant(),
    "hunyuan_v1_dense": Variant(
        qk_norm=True,
        same=("cla_share_factor", "norm_type", "use_qk_norm", "use_rotary_pos_emb"),
    ),
    "mixtral": Variant(mixture=True),
    "qwen3_moe": Variant(qk_norm=True, window_flag=True, mixture=True),
    "qwen3_vl_moe_text": Variant(qk_norm=True, window_flag=True, mixture=True),
}
MODEL_TYPES: Final = tuple(_VARIANTS)


def build(config: Config) -> LanguageModel:
    """Llama, Mistral, Qwen2, Qwen3 or a mixture of a config."""
    variant = _VARIANTS[config.text("model_type")]
    routed = _experts(config) if variant.mixture else {}
    keys = ("moe_intermediate_size",) if variant.mixture else ()
    inner = config.size(*keys, "intermediate_size")
    sizes, layers = head_sizes(config, "head_dim"), config.size("num_hidden_layers")
    hidden = sizes["hidden"]
    qkv_bias = config.flag("qkv_bias", variant.qkv_bias)
    attention_bias = config.flag("attention_bias", False)
    mlp_bias = config.flag("mlp_bias", False)
    shape = AttentionShape(
        **sizes,
        bias=qkv_bias or attention_bias,
        output_bias=attention_bias and not qkv_bias,
        norms="head" if variant.qk_norm else "",
        window=_window(config, variant),
    )
    mlp = feed_forward(hidden, inner, bias=mlp_bias)
    if routed:
        mlp = (experts(hidden, inner, routed["experts"], routed["chosen"]),)
        config.ignore("intermediate_size", "mlp_only_layers", "use_qk_norm")
    else:
        config.ignore("attention_out_bias", "no_rope_layers", *variant.same)
        if config.size("num_experts", default=1) != 1:
            raise config.error("num_experts", "1 (no experts)")
    summary = {**sizes, "inner": inner, "window": shape.window, "tied": config.tied()}
    summary |= {"attention_bias": attention_bias, "mlp_bias": mlp_bias, **routed}
    layer = Layer((*attention(shape), *mlp))
    return build_model(config, layers * [layer], sizes={"layers": layers, **summary})


def _experts(config: Config) -> dict[str, int]:
    """Number of experts, and those of a token; every layer must be a mixture."""
    if config.values.get("mlp_only_layers"):
        raise config.error("mlp_only_layers", "an empty list")
    if config.size("decoder_sparse_step", default=1) != 1:
        raise config.error("decoder_sparse_step", "1")
    number = config.size("num_local_experts", "num_experts")
    chosen = config.size("num_experts_per_tok")
    if chosen > number:
        raise config.error("num_experts_per_tok", f"at most {number} experts")
    return {"experts": number, "chosen": chosen}


def _window(config: Config, variant: Variant) -> int:
    """Tokens that a query sees in every layer (0: all, also where the window holds all
    positions); raises `ValueError` if layers differ."""
    layers = config.size("num_hidden_layers")
    window = config.size("sliding_window", default=0)
    unused = variant.window_flag and not config.flag("use_sliding_window", False)
    if unused or window >= positions(config):
        window = 0
    key, slides = "max_window_layers", layers * [True]
    if config.has("layer_types"):
        key = "layer_types"
        kinds = config.words(key, ("full_attention", "sliding_attention"), layers)
        slides = [kind == "sliding_attention" for kind in kinds]
    elif variant.window_flag:  # layers before it see everything
        first = config.whole(key, 0)
        slides = [i >= first for i in range(layers)]
    if window and len(set(slides)) > 1:
        raise config.error(key, "the same attention in all layers of this model")
    return window if slides[0] else 0
