"""Stable Diffusion 3 and 3.5: blocks in which image and prompt have weights of their
own and attend together; the last one has no use for the prompt's tokens behind it."""

from typing import Final

from .._layers.parts import Map, Part, feed_forward
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
    pooled = config.size("pooled_projection_dim")
    image = (Linear(d, patch * channels, True), Map("positions", d, reads=2))
    first = Block(
        (
            ("prompt", (*embedded(d, FREQUENCIES), *embedded(d, pooled))),
            ("image", image),
            ("text", (Linear(d, config.size("joint_attention_dim"), True),)),
        )
    )
    last = Block(
        (
            ("prompt", modulation(d, 2)),
            ("image", (plain_norm(d), Linear(patch * out, d, True))),
        )
    )
    blocks = (first, _joint(heads, layers - 1), _joint(heads, 1, False), last)
    return DiffusionTransformer(config, d, layers, _LATENTS, _PROMPT, blocks)


def _joint(heads: Heads, times: int, both: bool = True) -> Block:
    """`both`: the prompt's tokens go on, too."""
    d = heads.hidden
    before = (plain_norm(d), *heads.projected())
    feed = feed_forward(d, 4 * d, fn="gelu", gated=False, bias=True)
    behind: Part = (Linear(d, d, True), plain_norm(d), *feed)
    vectors = (*modulation(d, 6), *modulation(d, 6 if both else 2))
    parts: Parts = (
        ("prompt", vectors),
        ("image", before),
        ("text", before),
        ("all", (heads.attention,)),
        ("image", behind),
        ("text", behind if both else ()),
    )
    return Block(parts, times)
