"""gpt-oss: attention over windows and over everything in turns, with sinks; every
feed-forward layer routed."""

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
    layer_kinds,
    mixture,
)
from .._trained import build_model

MODEL_TYPES: Final = ("gpt_oss",)


def build(config: Config) -> LanguageModel:
    """gpt-oss of a config; all products have biases."""
    shape = attention_shape(config, sinks=True)
    window = config.size("sliding_window")
    chosen = ("num_experts_per_tok", "experts_per_token")
    routed = mixture(
        config, "num_local_experts", *chosen, inner="intermediate_size", bias=True
    )
    config.has("experts_per_token")
    blocks = []
    for kind in layer_kinds(config, FULL, SLIDING, pattern=2):
        visible = window if kind == SLIDING else 0
        mixer = attention(dataclasses.replace(shape, window=visible))
        blocks.append(Layer((*mixer, routed)))
    return build_model(config, blocks)
