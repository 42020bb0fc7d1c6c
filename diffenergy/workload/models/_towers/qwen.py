"""Towers of Qwen3-VL and Qwen3.5: rotary positions beside interpolated learned ones,
m x m patches merged to a token; in Qwen3-VL mergers of earlier layers too (DeepStack).
That of Qwen2.5-VL: rotary positions alone, gated layers, windows in most of them.
"""

import dataclasses
import math
from typing import Final

from .._layers.encoding import EncoderShape, Stage, encoder_layer
from .._layers.parts import Map, Part
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .tower import Tower

_SIDE: Final = 1024
"""Pixels of the usual image's side."""


def build(vision: Config, text: Config, note: str) -> Tower:
    """The tower; a patch is p x p pixels of `temporal_patch_size` frames (an image is
    that many equal ones)."""
    h, heads = vision.size("hidden_size"), vision.size("num_heads")
    p, m = vision.size("patch_size"), vision.size("spatial_merge_size")
    out, square = vision.size("out_hidden_size"), m * m
    pixels = vision.size("in_channels", default=3) * p * p
    pixels *= vision.size("temporal_patch_size")
    table = vision.size("num_position_embeddings") * h
    # four neighbours in the table, weighted, and the patch itself
    patches = (Linear(h, pixels, True), Map("positions", h, reads=5, parameters=table))
    inner = vision.size("intermediate_size")
    shape = EncoderShape(h, heads, h // heads, inner, rotary=True)
    earlier = vision.values.get("deepstack_visual_indexes") or ()
    deep = (
        *_merger(square * h, out, Norm("layernorm", square * h, residual=False)),
        Map("add", out, reads=2),
    )
    stages = (
        Stage(patches, per=square),
        Stage(encoder_layer(shape), vision.size("depth"), per=square),
        Stage(_merger(square * h, out, Norm("layernorm", h, square))),
        *((Stage(deep, len(earlier)),) if earlier else ()),
    )
    return Tower(text.name, stages, usual=(_SIDE // (p * m)) ** 2, note=note)


def windowed(vision: Config, text: Config, note: str) -> Tower:
    """The tower of Qwen2.5-VL (arXiv 2502.13923): in all layers but a few patches see
    those of their window of `window_size` pixels alone."""
    h, heads = vision.size("hidden_size"), vision.size("num_heads")
    p, m = vision.size("patch_size"), vision.size("spatial_merge_size")
    pixels = vision.size("in_channels", "in_chans", default=3) * p * p
    pixels *= vision.size("temporal_patch_size")
    inner = vision.size("intermediate_size")
    full = EncoderShape(
        h, heads, h // heads, inner, "rmsnorm", "silu", gated=True, rotary=True
    )
    side = vision.size("window_size") // p
    windowed = dataclasses.replace(full, window=side * side)
    whole = len(vision.numbers("fullatt_block_indexes"))
    out, square = vision.size("out_hidden_size"), m * m
    stages = (
        Stage((Linear(h, pixels),), per=square),
        Stage(encoder_layer(full), whole, per=square),
        Stage(encoder_layer(windowed), vision.size("depth") - whole, per=square),
        Stage(_merger(square * h, out, Norm("rmsnorm", h, square))),
    )
    usual = math.ceil(_SIDE / (p * m)) ** 2
    return Tower(text.name, stages, usual=usual, note=note)


def _merger(width: int, out: int, norm: Norm) -> Part:
    """Norm and a feed-forward layer over the patches of a token side by side."""
    return (
        norm,
        Linear(width, width, True),
        Map("gelu", width),
        Linear(out, width, True),
    )
