"""Pixtral, the tower of Mistral Small 3 and Devstral: images of any size, RMSNorm,
gated feed-forward layers, rotary positions; m x m patches merged to a token."""

import math
from typing import Final

from .._layers.encoding import Stage, encoder_layer, encoder_shape
from .._layers.parts import Map
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .tower import Tower

_SIDE: Final = 1024
"""Pixels of the usual image's side."""


def build(vision: Config, text: Config, note: str) -> Tower:
    """The tower; the merge is a product over the patches of a token side by side."""
    whole = text.outer or text
    p, m = vision.size("patch_size"), whole.size("spatial_merge_size", default=2)
    shape = encoder_shape(
        vision, norm="rmsnorm", fn="silu", gated=True, bias=False, rotary=True
    )
    h = shape.hidden
    pixels = vision.size("num_channels", default=3) * p * p
    before = Norm("rmsnorm", h, residual=False)
    wide = text.size("hidden_size")
    bias = whole.flag("multimodal_projector_bias", False)
    projector = (
        Linear(h, m * m * h),
        Linear(wide, h, bias),
        Map("gelu", wide),
        Linear(wide, wide, bias),
    )
    stages = (
        Stage((Linear(h, pixels), before), per=m * m),
        Stage(encoder_layer(shape), vision.size("num_hidden_layers"), per=m * m),
        Stage((Norm("rmsnorm", h),), per=m * m),
        Stage(projector),
    )
    usual = math.ceil(_SIDE / (p * m)) ** 2
    return Tower(text.name, stages, usual=usual, note=note)
