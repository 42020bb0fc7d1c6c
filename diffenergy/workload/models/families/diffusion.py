"""Diffusion transformers: an image (or a video) of latent tokens, denoised step by step
beside the tokens of its prompt.

One pass is the transformer alone, with elementwise work fused into norms and products.
Text encoders run once before the first step and the autoencoder once behind the last;
neither is part of it.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final, Literal

from ..._kernel import Kernel
from ..._listing import Listing
from .._checkpoint.config import Config
from .._checkpoint.formats import precision_of
from .._encoder import Encoder
from .._encoding import FullAttention
from .._layer import feed_forward
from .._operators.elementwise import Map, Part, Plain
from .._operators.linear import Linear
from .._operators.memory import Weights, bytes_of, number_of
from .._operators.operator import ForwardPass, Norm
from .._operators.passes import repeat_rows
from .._request import Request

Where = Literal["prompt", "image", "text", "all", "cross"]
"""What operators run over: one row a sequence (time and pooled prompt), the latent
tokens, those of the prompt, both together, or the former attending to the latter."""
Parts = tuple[tuple[Where, Part], ...]
FREQUENCIES: Final = 256
"""Width of the sines and cosines of a step's time."""


@dataclasses.dataclass(frozen=True)
class Block:
    """`parts` in launch order and what each runs over; `times` after each other."""

    parts: Parts
    times: int = 1


@dataclasses.dataclass(frozen=True)
class DiffusionTransformer(Encoder):
    """`blocks`: all of them, first to last, `layers` of which repeat; `latents` and
    `prompt`: tokens of the usual image and of its prompt."""

    hidden: int
    layers: int
    latents: int
    prompt: int
    blocks: tuple[Block, ...]

    def parameters(self) -> int:
        return number_of(self.all_weights())

    def all_weights(self) -> list[tuple[Weights, int]]:
        """Weights of every kind and how often they occur."""
        return [
            (w, block.times)
            for block in self.blocks
            for _, part in block.parts
            for operator in part
            for w in operator.weights()
        ]

    def weight_bytes(self, dtype: str) -> float:
        """Bytes of the weights with the linear layers in `dtype`."""
        return bytes_of(self.all_weights(), precision_of(dtype, "bf16"))

    def defaults(self) -> dict[str, Any]:
        more = {"input_len": self.prompt, "attention": "flash", "stack": "serving"}
        return super().defaults() | more | {"base": False}

    def inputs(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        return {"image_tokens": self.latents, "steps": 1, "guidance": False}

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            f"{self.name} is the transformer alone: text encoders before the steps and "
            "the autoencoder behind them are left out.",
        )

    def module_calls(self, base: bool) -> int:
        """None: there is no eager pass."""
        return 0

    def _check(self, values: dict[str, Any]):
        super()._check({**values, "stack": "eager", "input_len": None})
        if values["stack"] != "serving":
            raise ValueError(
                f"`stack` is {values['stack']!r}, but {self.name} has only serving."
            )

    def listings_of(self, request: Request) -> list[Listing]:
        steps = request.steps or 1
        rows = repeat_rows(self._forward(request), steps)
        return [self.listing(request, rows, request.phase, steps)]

    def _forward(self, request: Request) -> list[Kernel]:
        """Kernels of one step; guidance runs it with and without the prompt, as one
        batch."""
        runs = self._runs(request)
        return [
            row
            for block in self.blocks
            for where, part in block.parts
            for operator in part
            for row in repeat_rows(operator.forward(runs[where]), block.times)
        ]

    def _runs(self, request: Request) -> dict[Where, ForwardPass]:
        image, text = request.image_tokens or 1, request.input_len or 1
        lengths: dict[Where, tuple[int, int]] = {
            "prompt": (1, 1),
            "image": (image, image),
            "text": (text, text),
            "all": (image + text, image + text),
            "cross": (image, text),
        }
        sequences = request.batch * (2 if request.guidance else 1)
        flash = request.attention == "flash"
        p = self.precision(request)
        return {
            where: ForwardPass(sequences, q_len, kv_len, p, True, flash)
            for where, (q_len, kv_len) in lengths.items()
        }


def embedded(width: int, inputs: int) -> Part:
    """Two linear layers around a SiLU, of a step's time or of a pooled prompt."""
    first = Linear(width, inputs, True)
    return (first, Map("silu", width), Linear(width, width, True))


def modulation(width: int, vectors: int) -> Part:
    """Shifts, scales and gates of a block's norms, from time and prompt."""
    return (Map("silu", width), Linear(vectors * width, width, True))


def plain_norm(width: int) -> Norm:
    """LayerNorm without weights, whose kernel also adds the gated part before, scales
    and shifts."""
    return Norm("layernorm", width, weighted=False)


@dataclasses.dataclass(frozen=True)
class Heads:
    """Attention heads; `norms`: RMSNorms of queries and keys."""

    number: int
    width: int
    norms: bool = True

    @property
    def hidden(self) -> int:
        """Width of all of them."""
        return self.number * self.width

    def projected(self, more: int = 0) -> Part:
        """Queries, keys and values as one product (with `more` features beside them),
        and the norms of queries and keys."""
        norm = Norm("rmsnorm", self.width, self.number, residual=False)
        h = self.hidden
        both = (norm, norm) if self.norms else ()
        return (Linear(3 * h + more, h, True), *both)

    @property
    def attention(self) -> FullAttention:
        """Attention of all heads."""
        return FullAttention(self.number, self.width)


def joint(heads: Heads, times: int, both: bool = True, turned: Part = ()) -> Block:
    """Image and prompt with weights of their own that attend together, their queries
    and keys `turned`; `both`: the prompt's tokens go on, too."""
    d = heads.hidden
    before = (plain_norm(d), *heads.projected())
    feed = feed_forward(d, 4 * d, fn="gelu", gated=False, bias=True)
    behind: Part = (Linear(d, d, True), plain_norm(d), *feed)
    parts: Parts = (
        ("prompt", (*modulation(d, 6), *modulation(d, 6 if both else 2))),
        ("image", before),
        ("text", before),
        ("all", (*turned, heads.attention)),
        ("image", behind),
        ("text", behind if both else ()),
    )
    return Block(parts, times)


def first_block(config: Config, width: int, image: Part, times: int = 1) -> Block:
    """Embeddings of `times` numbers (a step's time) and of the pooled prompt, of the
    `image` and of the prompt's tokens."""
    pooled = embedded(width, config.size("pooled_projection_dim"))
    text = Linear(width, config.size("joint_attention_dim"), True)
    numbers = times * embedded(width, FREQUENCIES)
    return Block((("prompt", (*numbers, *pooled)), ("image", image), ("text", (text,))))


def last_block(width: int, outputs: int) -> Block:
    """Modulated norm and product of the image."""
    image = (plain_norm(width), Linear(outputs, width, True))
    return Block((("prompt", modulation(width, 2)), ("image", image)))


def heads_of(config: Config, norms: bool = True) -> Heads:
    """Heads of a config."""
    number = config.size("num_attention_heads")
    return Heads(number, config.size("attention_head_dim"), norms)


def refuse(config: Config, key: str, why: str):
    """Raises `ValueError` for a key that is set and not built."""
    if config.values.get(key):
        raise ValueError(
            f"{config.where}: `{key}` is set, and {why} not built; give a kernel "
            "listing (`.jsonl`)."
        )


# --- FLUX.1: blocks in which image and prompt have weights of their own and attend
# together, then blocks of both as one sequence, attention beside feed forward.
#
# Every block takes 24 D^2 FLOP a token and 4 D T^2 for T tokens in all.

_FLUX_LATENTS, _FLUX_PROMPT = 4096, 512
"""Tokens of 1024 x 1024 pixels (8 x 8 of them a latent, 2 x 2 latents a token), and of
a prompt."""


def flux(config: Config) -> DiffusionTransformer:
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
    return DiffusionTransformer(config, d, layers, _FLUX_LATENTS, _FLUX_PROMPT, blocks)


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


# --- Stable Diffusion 3 and 3.5: blocks in which image and prompt have weights of
# their own and attend together; the last one has no use for the prompt's tokens
# behind it.

_SD3_LATENTS, _SD3_PROMPT = 4096, 333
"""Tokens of 1024 x 1024 pixels, and of a prompt: 77 of CLIP, 256 of T5."""


def sd3(config: Config) -> DiffusionTransformer:
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
    return DiffusionTransformer(config, d, layers, _SD3_LATENTS, _SD3_PROMPT, blocks)


# --- Wan 2.1 (text to video): attention of all tokens of the video, then to those of
# the prompt, then feed forward; one modulation of all blocks, offset in each.

_WAN_LATENTS, _WAN_PROMPT = 32760, 512
"""Tokens of 81 frames of 832 x 480 pixels (21 x 30 x 52), and of a prompt."""


def wan(config: Config) -> DiffusionTransformer:
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
    self_part = (
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
            ("image", (*self_part, crossed, Linear(d, d, True), norm)),
            ("text", (Linear(2 * d, d, True), norm)),
            ("cross", (heads.attention,)),
            ("image", (Linear(d, d, True), plain_norm(d), *feed, Plain(6 * d))),
        ),
        layers,
    )
    end = (plain_norm(d), Linear(patch * out, d, True), Plain(2 * d))
    blocks = (first, block, Block((("image", end),)))
    return DiffusionTransformer(config, d, layers, _WAN_LATENTS, _WAN_PROMPT, blocks)


_KINDS: Final = {
    "FluxTransformer2DModel": flux,
    "SD3Transformer2DModel": sd3,
    "WanTransformer3DModel": wan,
}
MODEL_TYPES: Final = tuple(_KINDS)


def build(config: Config) -> DiffusionTransformer:
    """The transformer of a diffusion model, of its `config.json`."""
    return _KINDS[config.text("model_type")](config)
