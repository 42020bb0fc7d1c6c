"""Stable Diffusion 3 and 3.5: blocks in which image and prompt have weights of their
own and attend together; the last one has no use for the prompt's tokens behind it."""

from typing import Final

from .._layers.parts import Map
from .._network.linear_layer import Linear
from .._shared.config import Config
from .transformer import (
    DiffusionTransformer,
    first_block,
    heads_of,
    joint,
    last_block,
    refuse,
)

MODEL_TYPES: Final = ("SD3Transformer2DModel",)
_LATENTS, _PROMPT = 4096, 333
"""Tokens of 1024 x 1024 pixels, and of a prompt: 77 of CLIP, 256 of T5."""


def build(config: Config) -> DiffusionTransformer:
    """Stable Diffusion 3 of the `config.json` of its transformer; positions are a
    table of fixed values, not parameters."""
    refuse(config, "dual_attention_layers", "a second attention of the image is")
    heads = heads_of(config, norms=bool(config.values.get("qk_norm")))
    d, layers = heads.hidden, config.size("num_layers")
    channels, patch = config.size("in_channels"), config.size("patch_size") ** 2
    out = config.size("out_channels", default=channels)
    image = (Linear(d, patch * channels, True), Map("positions", d, reads=2))
    blocks = (
        first_block(config, d, image),
        joint(heads, layers - 1),
        joint(heads, 1, both=False),
        last_block(d, patch * out),
    )
    return DiffusionTransformer(config, d, layers, _LATENTS, _PROMPT, blocks)
