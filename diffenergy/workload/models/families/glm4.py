"""GLM-4 (0414): norms before and behind attention and feed-forward layer."""

from typing import Final

from .._layers.layer import Layer
from .._layers.model import Layered, layered
from .._layers.parts import attention, feed_forward
from .._layers.read import attention_shape
from .._shared.config import Config

MODEL_TYPES: Final = ("glm4",)


def build(config: Config) -> Layered:
    """GLM-4 of a config."""
    shape = attention_shape(config, output_bias=False)
    feed = feed_forward(shape.hidden, config.size("intermediate_size"))
    layer = Layer((*attention(shape), *feed), norms=4)
    return layered(config, config.size("num_hidden_layers") * [layer])
