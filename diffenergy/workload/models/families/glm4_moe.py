"""GLM-4.5: grouped-query attention with biases, the first feed-forward layers dense,
the rest routed beside a shared expert."""

from typing import Final

from .._checkpoint.config import Config
from .._language_model import LanguageModel
from .._layer import Layer, attention, attention_shape
from .._trained import build_model
from .deepseek import feed_forwards

MODEL_TYPES: Final = ("glm4_moe",)


def build(config: Config) -> LanguageModel:
    """GLM-4.5 and 4.6 of a config."""
    norms = "head" if config.flag("use_qk_norm", False) else ""
    mixer = attention(attention_shape(config, norms=norms, output_bias=False))
    blocks = [Layer((*mixer, *feed)) for feed in feed_forwards(config)]
    return build_model(config, blocks)
