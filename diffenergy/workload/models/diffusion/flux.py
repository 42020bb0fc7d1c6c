"""FLUX.1: blocks in which image and prompt have weights of their own and attend
together, then blocks of both as one sequence, attention beside feed forward.

Every block takes 24 D^2 FLOP a token and 4 D T^2 for T tokens in all.
"""

from typing import Final

from .._layers.parts import Map
from .._network.linear_layer import Linear
from .._shared.config import Config
from .transformer import (
    Block,
    DiffusionTransformer,
    Heads,
    first_block,
    heads_of,
    joint,
    last_block,
    modulation,
    plain_norm,
)

MODEL_TYPES: Final = ("FluxTransformer2DModel",)
_LATENTS, _PROMPT = 4096, 512
"""Tokens of 1024 x 1024 pixels (8 x 8 of them a latent, 2 x 2 latents a token), and of
a prompt."""


def build(config: Config) -> DiffusionTransformer:
    """FLUX.1 of the `config.json` of its transformer."""
    heads = heads_of(config)
    d, times = heads.hidden, 2 if config.flag("guidance_embeds", False) else 1
    channels = config.size("in_channels")
    out = config.size("out_channels", default=channels)
    double, single = config.size("num_layers"), config.size("num_single_layers")
    blocks = (
        first_block(config, d, (Linear(d, channels, True),), times),
        joint(heads, double, turned=(Map("rope", 2 * d),)),
        _single(heads, single),
        last_block(d, out),
    )
    layers = double + single
    return DiffusionTransformer(config, d, layers, _LATENTS, _PROMPT, blocks)


def _single(heads: Heads, times: int) -> Block:
    d = heads.hidden
    both = (
        plain_norm(d),
        *heads.projected(4 * d),
        Map("rope", 2 * d),
        heads.attention,
        Map("gelu", 4 * d),
        Linear(d, 5 * d, True),
    )
    return Block((("prompt", modulation(d, 3)), ("all", both)), times)
