"""GLM-4 (0414): norms before and behind attention and feed-forward layer."""

from typing import Final

from .._layers.layer import Layer
from .._layers.parts import attention, feed_forward
from .._layers.read import attention_shape
from .._shared.config import Config
from .._shared.language_model import LanguageModel
from .._shared.trained import layered

MODEL_TYPES: Final = ("glm4",)


def build(config: Config) -> LanguageModel:
    """GLM-4 of a config."""
    shape = attention_shape(config, output_bias=False)
    inner = config.size("intermediate_size")
    feed = feed_forward(shape.hidden, inner, merged=True)
    layer = Layer((*attention(shape), *feed), norms=4)
    return layered(config, config.size("num_hidden_layers") * [layer])
