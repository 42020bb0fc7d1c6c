"""OLMo 2 and 3 and EXAONE 4: norms behind attention and feed-forward layer, and of
queries and keys (over all heads, or by head); windows in a pattern."""

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
from .._trained import build_model

MODEL_TYPES: Final = ("olmo2", "olmo3", "exaone4")


def build(config: Config) -> LanguageModel:
    """OLMo or EXAONE of a config."""
    by_head = config.text("model_type") == "exaone4"
    shape = attention_shape(config, norms="head" if by_head else "all")
    config.ignore("sliding_window_pattern")
    window = config.size("sliding_window", default=0)
    feed = feed_forward(shape.hidden, config.size("intermediate_size"))
    blocks = []
    for kind in layer_kinds(config, FULL, SLIDING, pattern=4 if window else 0):
        layer_shape = dataclasses.replace(
            shape, window=window if kind == SLIDING else 0
        )
        blocks.append(Layer((*attention(layer_shape), *feed)))
    return build_model(config, blocks)
