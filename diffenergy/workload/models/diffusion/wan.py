"""Wan 2.1 (text to video): attention of all tokens of the video, then to those of the
prompt, then feed forward; one modulation of all blocks, offset in each."""

import math
from typing import Final

from .._layers.parts import Map, Plain, feed_forward
from .._network.linear_layer import Linear
from .._network.operators import Norm
from .._shared.config import Config
from .transformer import (
    Block,
    DiffusionTransformer,
    embedded,
    heads_of,
    modulation,
    plain_norm,
    refuse,
)

MODEL_TYPES: Final = ("WanTransformer3DModel",)
_LATENTS, _PROMPT = 32760, 512
"""Tokens of 81 frames of 832 x 480 pixels (21 x 30 x 52), and of a prompt."""


def build(config: Config) -> DiffusionTransformer:
    """Wan of the `config.json` of its transformer."""
    for key in ("image_dim", "added_kv_proj_dim"):
        refuse(config, key, "attention to an image is")
    heads = heads_of(config)
    d, layers = heads.hidden, config.size("num_layers")
    patch = math.prod(config.sizes("patch_size", 3))
    channels = config.size("in_channels")
    out = config.size("out_channels", default=channels)
    text = config.size("text_dim")
    times = embedded(d, config.size("freq_dim", default=256))
    first = Block(
        (
            ("image", (Linear(d, patch * channels, True),)),
            ("prompt", (*times, *modulation(d, 6))),
            ("text", (Linear(d, text, True), Map("gelu", d), Linear(d, d, True))),
        )
    )
    norm = Norm("rmsnorm", d, residual=False)  # over all heads
    crossed = Norm("layernorm", d, weighted=config.flag("cross_attn_norm", True))
    inner = config.size("ffn_dim")
    feed = feed_forward(d, inner, fn="gelu", gated=False, bias=True)
    own = (
        plain_norm(d),
        Linear(3 * d, d, True),
        norm,
        norm,
        Map("rope", 2 * d),
        heads.attention,
        Linear(d, d, True),
    )
    block = Block(
        (
            ("image", (*own, crossed, Linear(d, d, True), norm)),
            ("text", (Linear(2 * d, d, True), norm)),
            ("cross", (heads.attention,)),
            ("image", (Linear(d, d, True), plain_norm(d), *feed, Plain(6 * d))),
        ),
        layers,
    )
    end = (plain_norm(d), Linear(patch * out, d, True), Plain(2 * d))
    blocks = (first, block, Block((("image", end),)))
    return DiffusionTransformer(config, d, layers, _LATENTS, _PROMPT, blocks)
