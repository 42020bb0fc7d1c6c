"""Reading of what many configs say in the same words."""

from typing import Any

from .._shared.config import Config
from .mixers import STATES
from .parts import AttentionShape

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR = "linear_attention"


def attention_shape(config: Config, **more: Any) -> AttentionShape:
    """Heads, their width and biases."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        config.divides("num_key_value_heads", "num_attention_heads")
    if not config.has("head_dim") and not config.has("attention_head_dim"):
        config.divides("num_attention_heads", "hidden_size")
    head_dim = config.size("head_dim", "attention_head_dim", default=hidden // heads)
    bias = config.flag("attention_bias", False)
    given = {"bias": bias, "output_bias": bias, **more}
    return AttentionShape(hidden, heads, kv_heads, head_dim, **given)


def layer_kinds(config: Config, *kinds: str, pattern: int = 0) -> tuple[str, ...]:
    """Kind of every layer: `layer_types`, or (`pattern`) every so many layers the first
    of `kinds` and the second between; without a pattern the first everywhere."""
    layers = config.size("num_hidden_layers")
    if config.has("layer_types"):
        return config.words("layer_types", kinds, layers)
    if not pattern:
        return layers * (kinds[0],)
    return tuple(kinds[bool((i + 1) % pattern)] for i in range(layers))


def state_dtype(config: Config, key: str) -> str:
    """Type of the states that a recurrence keeps."""
    name = config.text(key, "float32")
    if name not in STATES:
        raise config.error(key, ", ".join(STATES))
    return STATES[name]
