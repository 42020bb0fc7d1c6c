"""The tower of Gemma 4: RMSNorms before and behind every part, gated feed-forward
layers, rotary positions beside learned ones by row and column; means over k x k patches
are the tokens."""

from typing import Final

from .._layers.encoding import Stage, encoder_layer, encoder_shape
from .._layers.parts import Map
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .tower import Tower

_TOKENS: Final = 280
"""Tokens of an image that a config does not say."""


def build(vision: Config, text: Config, note: str) -> Tower:
    """The tower; offset and scale of `standardize` are buffers, not parameters."""
    p, k = vision.size("patch_size"), vision.size("pooling_kernel_size", default=3)
    shape = encoder_shape(
        vision, norm="rmsnorm", gated=True, bias=False, rotary=True, head_norms="all",
        behind=True,
    )  # fmt: skip
    h = shape.hidden
    tables = 2 * vision.size("position_embedding_size") * h
    pixels = vision.size("num_channels", default=3) * p * p
    patches = (Linear(h, pixels), Map("positions", h, reads=3, parameters=tables))
    tokens = (
        Map("mean", h, reads=k * k),
        Norm("rmsnorm", h, residual=False, weighted=False),
        Linear(text.size("hidden_size"), h),
    )
    stages = (
        Stage(patches, per=k * k),
        Stage(encoder_layer(shape), vision.size("num_hidden_layers"), per=k * k),
        Stage(tokens),
    )
    usual = vision.size("default_output_length", default=_TOKENS)
    return Tower(text.name, stages, usual=usual, note=note)
