"""Nemotron-H and 3: one part a layer (Mamba2, attention, feed-forward or experts), in
the order of a pattern; feed-forward layers square a ReLU."""

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
    mixture,
    shared_expert,
    state_dtype,
)
from .._operators.elementwise import Part
from .._operators.linear import Linear
from .._operators.mixers import mamba2
from .._trained import build_model

MODEL_TYPES: Final = ("nemotron_h",)
_KINDS: Final = "M*-E"
_LETTERS: Final = {
    "mamba": "M", LINEAR: "M", "attention": "*", FULL: "*", "mlp": "-", "moe": "E",
}  # fmt: skip
"""Kinds of parts in the list of newer files."""


def build(config: Config) -> LanguageModel:
    """Nemotron-H of a config."""
    if config.has("layers_block_type"):
        number = len(config.values["layers_block_type"])
        layers = config.size("num_hidden_layers", default=number)
        words = config.words("layers_block_type", _LETTERS, layers)
        pattern = "".join(_LETTERS[word] for word in words)
        config.ignore("hybrid_override_pattern")
    else:
        pattern = config.text("hybrid_override_pattern")
        layers = config.size("num_hidden_layers")
    if len(pattern) != layers or set(pattern) - set(_KINDS):
        raise config.error(
            "hybrid_override_pattern", f"{layers} letters of {', '.join(_KINDS)}"
        )
    parts = {kind: _part(config, kind) for kind in dict.fromkeys(pattern)}
    if "E" not in pattern:  # sizes of experts that newer files state anyway
        config.ignore("n_routed_experts", "n_shared_experts", "num_experts_per_tok")
        config.ignore("moe_intermediate_size", "moe_shared_expert_intermediate_size")
    config.ignore("num_query_groups")  # the number of key and value heads
    config.ignore("intermediate_size")  # stated without such a layer, too
    return build_model(config, [Layer(parts[kind], norms=1) for kind in pattern])


def _part(config: Config, kind: str) -> Part:
    hidden = config.size("hidden_size")
    if kind == "*":
        return attention(attention_shape(config, rotary=False), "mixer")
    if kind == "M":
        return _mamba(config)
    bias = config.flag("mlp_bias", False)
    if kind == "-":
        inner = config.size("intermediate_size")
        return feed_forward(hidden, inner, "mixer", fn="relu2", gated=False, bias=bias)
    return _mixture(config)


def _mamba(config: Config) -> Part:
    config.ignore("expand")
    return mamba2(
        "mixer",
        config.size("hidden_size"),
        config.size("mamba_num_heads"),
        config.size("mamba_head_dim"),
        config.size("ssm_state_size"),
        config.size("n_groups"),
        config.size("conv_kernel"),
        config.size("chunk_size"),
        bias=config.flag("mamba_proj_bias", False) or config.flag("use_bias", False),
        conv_bias=config.flag("use_conv_bias", True),
        state_dtype=state_dtype(config, "mamba_ssm_cache_dtype"),
    )


def _mixture(config: Config) -> Part:
    """Experts without gates, on a narrower width where there is a latent one, beside a
    shared expert on the whole width."""
    hidden, latent = config.size("hidden_size"), config.whole("moe_latent_size", 0)
    shared = config.whole("n_shared_experts", 0)
    width = shared * config.size("moe_shared_expert_intermediate_size", default=1)
    more = {"prefix": "mixer", "gated": False, "latent": latent}
    routed = mixture(config, "n_routed_experts", **more)
    down = Linear(latent, hidden, module="mixer.fc1_latent_proj")
    up = Linear(hidden, latent, module="mixer.fc2_latent_proj")
    around = (down, routed, up) if latent else (routed,)
    return (*around, *shared_expert(hidden, width, "mixer.shared_experts", gated=False))
