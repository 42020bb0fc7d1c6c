"""Command R, R7B and A: attention and feed-forward layer side by side behind one norm;
the newer ones with windows, and without rotation in the layers that see everything."""

import dataclasses
from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import (
    FULL,
    SLIDING,
    Layer,
    attention,
    attention_shape,
    feed_forward,
    layer_kinds,
)
from .._operators.elementwise import Map
from .._operators.operator import Norm
from .._trained import build_model

MODEL_TYPES: Final = ("cohere", "cohere2")
_PATTERN: Final = 4


def build(config: Config) -> LanguageModel:
    """Command R of a config; its norms, without biases, run as RMSNorms."""
    shape = attention_shape(config)
    config.ignore(
        "layer_switch", "order_of_interleaved_layers", "use_embedding_sharing"
    )
    config.ignore("use_gated_activation", "use_parallel_block")
    norms = ()
    if config.flag("use_qk_norm", False):  # a weight for every head
        numbers = (shape.heads, shape.kv_heads)
        norms = tuple(
            Norm("rmsnorm", n * shape.head_dim, residual=False) for n in numbers
        )
    feed = feed_forward(shape.hidden, config.size("intermediate_size"), joins=True)
    both, pattern, window = Map("add", shape.hidden, reads=2, joins=True), 0, 0
    if config.text("model_type") == "cohere2":
        pattern = config.size("sliding_window_pattern", default=_PATTERN)
        window = config.size("sliding_window")
    blocks = []
    for kind in layer_kinds(config, FULL, SLIDING, pattern=pattern):
        slides = kind == SLIDING
        layer_shape = dataclasses.replace(
            shape, window=window if slides else 0, rotary=slides or not window
        )
        blocks.append(Layer((*norms, *attention(layer_shape), *feed, both), norms=1))
    return build_model(config, blocks, tied=True)
