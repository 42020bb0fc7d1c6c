"""FLUX.1: blocks in which image and prompt have weights of their own and attend
together, then blocks of both as one sequence, attention beside feed forward.

Every block takes 24 D^2 FLOP a token and 4 D T^2 for T tokens in all.
"""

from typing import Final

from .._layers.parts import Map, feed_forward
from .._network.linear_layer import Linear
from .._shared.config import Config
from .transformer import (
    FREQUENCIES,
    Block,
    DiffusionTransformer,
    Heads,
    Parts,
    embedded,
    heads_of,
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
    pooled = config.size("pooled_projection_dim")
    first = Block(
        (
            ("prompt", (*times * embedded(d, FREQUENCIES), *embedded(d, pooled))),
            ("image", (Linear(d, channels, True),)),
            ("text", (Linear(d, config.size("joint_attention_dim"), True),)),
        )
    )
    last = Block(
        (
            ("prompt", modulation(d, 2)),
            ("image", (plain_norm(d), Linear(out, d, True))),
        )
    )
    blocks = (first, _double(heads, double), _single(heads, single), last)
    layers = double + single
    return DiffusionTransformer(config, d, layers, _LATENTS, _PROMPT, blocks)


def _double(heads: Heads, times: int) -> Block:
    d = heads.hidden
    before = (plain_norm(d), *heads.projected())
    feed = feed_forward(d, 4 * d, fn="gelu", gated=False, bias=True)
    behind = (Linear(d, d, True), plain_norm(d), *feed)
    parts: Parts = (
        ("prompt", 2 * modulation(d, 6)),
        ("image", before),
        ("text", before),
        ("all", (Map("rope", 2 * d), heads.attention)),
        ("image", behind),
        ("text", behind),
    )
    return Block(parts, times)


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
