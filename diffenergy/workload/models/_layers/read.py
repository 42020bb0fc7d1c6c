"""Reading of what many configs say in the same words."""

from typing import Any

from .._network.experts import Experts
from .._shared.config import Config
from .mixers import STATES
from .parts import AttentionShape, experts

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR = "linear_attention"


def head_sizes(config: Config, *widths: str) -> dict[str, Any]:
    """Width of a model, numbers and width of its attention heads; `widths`: keys that
    state the latter."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        config.divides("num_key_value_heads", "num_attention_heads")
    if not any([config.has(key) for key in widths]):
        config.divides("num_attention_heads", "hidden_size")
    head_dim = config.size(*widths, default=hidden // heads)
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    return {**sizes, "head_dim": head_dim}


def attention_shape(config: Config, **more: Any) -> AttentionShape:
    """Heads, their width and biases."""
    bias = config.flag("attention_bias", False)
    given = {"bias": bias, "output_bias": bias, **more}
    sizes = head_sizes(config, "head_dim", "attention_head_dim")
    return AttentionShape(**sizes, **given)


def mixture(
    config: Config,
    number: str,
    *chosen: str,
    inner: str = "moe_intermediate_size",
    prefix: str = "mlp",
    **more: Any,
) -> Experts:
    """Routed experts by the keys of their width, their `number` and how many are
    `chosen` (`num_experts_per_tok`)."""
    return experts(
        config.size("hidden_size"),
        config.size(inner),
        config.size(number),
        config.size(*(chosen or ("num_experts_per_tok",))),
        prefix,
        **more,
    )


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
