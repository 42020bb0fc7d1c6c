"""DeepSeek V4: compressed attention whose kind differs by layer, hyper-connections,
routed experts beside a shared one."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import Layer
from .._operators.compressed import (
    CompressedShape,
    compressed_attention,
    hyper_connection,
)
from .._operators.elementwise import Plain
from .._trained import build_model
from .deepseek import indexer, shared_mixture

MODEL_TYPES: Final = ("deepseek_v4",)
_INDEXED: Final = 4
"""Tokens of an entry in the layers that have an indexer."""


def build(config: Config) -> LanguageModel:
    """DeepSeek V4 of a config."""
    hidden, layers = config.size("hidden_size"), config.size("num_hidden_layers")
    config.ignore("num_key_value_heads", "qk_rope_head_dim", "expert_dtype")
    config.flag("attention_bias", False)
    ratios = config.sizes("compress_ratios", least=0)
    if len(ratios) < layers:
        raise config.error("compress_ratios", f"a list of at least {layers} numbers")
    shape = CompressedShape(
        hidden,
        config.size("num_attention_heads"),
        config.size("head_dim"),
        config.size("q_lora_rank"),
        config.size("o_groups"),
        config.size("o_lora_rank"),
        config.size("sliding_window"),
    )
    around = hyper_connection(hidden, config.size("hc_mult"))
    config.ignore("num_hash_layers")  # the router's weights stay beside the table
    feed = shared_mixture(config)
    blocks = []
    for ratio in ratios[:layers]:
        indexed = ratio == _INDEXED
        index = indexer(config, shape.queries, ratio) if indexed else None
        mixer = compressed_attention(shape, ratio, index)
        blocks.append(Layer((*around, *mixer, *around, *feed)))
    streams = config.size("hc_mult")
    last = Plain(streams**2 * hidden + streams + 1)  # the streams before the head
    end = Layer((*blocks[-1].operators, last))
    return build_model(config, [*blocks[:-1], end])
