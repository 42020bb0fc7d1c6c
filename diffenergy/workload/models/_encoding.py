"""Layers with attention to all tokens (vision towers, speech encoders, diffusion
transformers), and the stages of such networks."""

import dataclasses
import math
from typing import Any

from .._eager_rows import Attention
from .._kernel import Kernel
from ._checkpoint.config import Config
from ._layer import feed_forward
from ._operators.elementwise import Map, Part, Plain
from ._operators.linear import Linear
from ._operators.memory import Weights
from ._operators.operator import ForwardPass, Norm, Operator
from ._operators.passes import repeat_rows
from ._operators.scores import around_softmax, fused_attention


@dataclasses.dataclass(frozen=True)
class FullAttention(Operator):
    """Attention of the `q_len` tokens of a pass to `kv_len` ones, their own or others',
    without a mask or a cache: 4 q_len kv_len `heads` `head_dim` FLOP a sequence; or of
    `window` ones side by side to each other."""

    heads: int
    head_dim: int
    window: int = 0

    def forward(self, run: ForwardPass) -> list[Kernel]:
        heads = (self.heads, self.heads)
        sequences, q_len, kv_len = run.sequences, run.q_len, run.kv_len
        if self.window and q_len > self.window:
            sequences *= math.ceil(q_len / self.window)
            q_len = kv_len = self.window
        site = Attention(sequences, *heads, q_len, kv_len, self.head_dim, 1)
        p = dataclasses.replace(run.precision, cache=run.values)
        if run.flash:
            return [fused_attention(site, p, causal=False)]
        return around_softmax(site, p, "scale")


@dataclasses.dataclass(frozen=True)
class EncoderShape:
    """A layer of attention and feed-forward, `hidden` wide.

    `gated`: a third matrix gates the feed-forward layer. `key_bias`: whether keys have
    a bias where the other projections have one. `head_norms`: RMSNorms of queries and
    keys ("head"), and of values without weights ("all"). `behind`: norms behind both
    parts beside those before. `window`: tokens that see each other (0: all).
    """

    hidden: int
    heads: int
    head_dim: int
    inner: int
    norm: str = "layernorm"
    fn: str = "gelu"
    gated: bool = False
    bias: bool = True
    key_bias: bool = True
    rotary: bool = False
    head_norms: str = ""
    behind: bool = False
    window: int = 0


def encoder_shape(config: Config, **more: Any) -> EncoderShape:
    """Widths and heads of a tower by the usual keys of configs."""
    h, heads = config.size("hidden_size"), config.size("num_attention_heads")
    width = config.size("head_dim", default=h // heads)
    return EncoderShape(h, heads, width, config.size("intermediate_size"), **more)


def encoder_layer(shape: EncoderShape) -> Part:
    """Norm, queries, keys and values as one product, attention, output; norm, feed
    forward."""
    s, width = shape, shape.heads * shape.head_dim
    norm = Norm(s.norm, s.hidden)
    behind = (norm,) if s.behind else ()
    feed = feed_forward(s.hidden, s.inner, fn=s.fn, gated=s.gated, bias=s.bias)
    return (
        norm,
        *self_attention(s),
        Linear(s.hidden, width, s.bias, module="self_attn.o_proj"),
        *behind,
        norm,
        *feed,
        *behind,
    )  # fmt: skip


def self_attention(shape: EncoderShape) -> Part:
    """Queries, keys and values as one product, their norms and rotation, attention."""
    s, width = shape, shape.heads * shape.head_dim
    whole = s.bias and s.key_bias
    biases = (Plain(2 * width),) if s.bias and not s.key_bias else ()
    norm = Norm("rmsnorm", s.head_dim, s.heads, residual=False)
    bare = dataclasses.replace(norm, weighted=False)
    norms = {"": (), "head": (norm, norm), "all": (norm, norm, bare)}[s.head_norms]
    return (
        Linear(3 * width, s.hidden, whole, module="self_attn.q_proj"),
        *biases,
        *norms,
        *((Map("rope", 2 * width),) if s.rotary else ()),
        FullAttention(s.heads, s.head_dim, s.window),
    )


@dataclasses.dataclass(frozen=True)
class Stage:
    """`operators` that run `times` after each other over `per` rows for each of the
    positions that a network gives out, and `extra` ones a sequence (class tokens)."""

    operators: Part
    times: int = 1
    per: int = 1
    extra: int = 0

    def rows(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the stage; `run` is a pass over the output positions."""
        length = run.q_len * self.per + self.extra
        inside = dataclasses.replace(run, q_len=length, kv_len=length)
        rows = [row for x in self.operators for row in x.forward(inside)]
        return repeat_rows(rows, self.times)

    def weights(self) -> list[tuple[Weights, int]]:
        """Weights of the stage, and how often each occurs."""
        return [(w, self.times) for x in self.operators for w in x.weights()]


def in_16_bit(part: Part) -> Part:
    """The part with its linear layers in 16 bit."""
    return tuple(
        dataclasses.replace(x, wide=True) if isinstance(x, Linear) else x for x in part
    )
