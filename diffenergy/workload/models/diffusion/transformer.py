"""Diffusion transformers: an image (or a video) of latent tokens, denoised step by step
beside the tokens of its prompt.

One pass is the transformer alone, with elementwise work fused into norms and products.
Text encoders run once before the first step and the autoencoder once behind the last;
neither is part of it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from ..._kernel import Kernel
from ..._listing import Listing
from .._layers.encoding import FullAttention
from .._layers.parts import Map, Part, feed_forward
from .._network.linear_layer import Linear
from .._network.operators import Norm, Pass
from .._network.rows import repeated
from .._request import Request
from .._shared.config import Config
from .._shared.encoder import Encoder
from .._shared.formats import precision_of
from .._shared.memory import Weights, bytes_of, number_of

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

    def inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
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
        rows = repeated(self._forward(request), steps)
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
            for row in repeated(operator.forward(runs[where]), block.times)
        ]

    def _runs(self, request: Request) -> dict[Where, Pass]:
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
            where: Pass(sequences, q_len, kv_len, p, True, flash)
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
