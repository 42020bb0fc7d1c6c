"""GLM-4 (0414): norms before and behind attention and feed-forward layer."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import Layer, attention, attention_shape, feed_forward
from .._trained import build_model

MODEL_TYPES: Final = ("glm4",)


def build(config: Config) -> LanguageModel:
    """GLM-4 of a config."""
    shape = attention_shape(config, output_bias=False)
    inner = config.size("intermediate_size")
    feed = feed_forward(shape.hidden, inner, merged=True)
    layer = Layer((*attention(shape), *feed), norms=4)
    return build_model(config, config.size("num_hidden_layers") * [layer])
