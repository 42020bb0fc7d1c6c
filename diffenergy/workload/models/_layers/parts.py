"""Parts that layers are put together from: projections around attention, feed-forward
layers, experts. A part is a tuple of operators in launch order."""

import dataclasses
from dataclasses import replace
from typing import Any, Literal

from ..._eager_rows import stream
from ..._kernel import Kernel, Number
from .._network.experts import Experts
from .._network.linear_layer import Activation, Gated, Linear
from .._network.operators import ForwardPass, Norm, Operator, Sum, Trainable
from .._network.sharding import Columns, ModelSplit, Rows, divided
from .._shared.memory import Weights
from .attention import CachedAttention

Part = tuple[Operator, ...]


@dataclasses.dataclass(frozen=True)
class Map(Operator):
    """Elementwise kernel over `width` values a token, with `parameters` of its own;
    `split`: GPUs divide both. `joins`: of a sum, see `Sum`."""

    fn: str
    width: int
    reads: Number = 1
    writes: Number = 1
    parameters: int = 0
    split: bool = False
    joins: bool = False

    def in_training(self) -> tuple[Trainable, ...] | None:
        return (Sum(self.width, joins=self.joins),) if self.fn == "add" else None

    def shard(self, split: ModelSplit) -> "Map":
        if not self.split:
            return self
        width = divided(self.width, split.tp, "features")
        own = divided(self.parameters, split.tp, "parameters")
        return dataclasses.replace(self, width=width, parameters=own)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        traffic = {"reads": self.reads, "writes": self.writes}
        return [stream(self.fn, run.tokens * self.width, run.values, 1, **traffic)]

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.parameters),) if self.parameters else ()


@dataclasses.dataclass(frozen=True)
class Plain(Operator):
    """`parameters` that no kernel of their own reads (scales, offsets); `split`: GPUs
    divide them."""

    parameters: int
    split: bool = False

    def shard(self, split: ModelSplit) -> "Plain":
        if not self.split:
            return self
        own = divided(self.parameters, split.tp, "parameters")
        return dataclasses.replace(self, parameters=own)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return []

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.parameters),)


@dataclasses.dataclass(frozen=True)
class AttentionShape:
    """What configs say of grouped-query attention.

    `bias`: of queries, keys and values; `output_bias`: of the projection behind.
    `norms`: of queries and keys by head ("head"), over all heads ("all"), by head
    without weights ("bare") or none. `gate`: a gate as wide as the queries multiplies
    the output. `same_keys`: values are the projected keys.
    `chosen`: keys that a query reads at most (0: all), which `index` picks.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int = 0
    bias: bool = False
    output_bias: bool = False
    norms: Literal["", "head", "all", "bare"] = ""
    gate: bool = False
    same_keys: bool = False
    window: int = 0
    chunk: int = 0
    rotary: bool = True
    sinks: bool = False
    chosen: int = 0
    index: tuple[Operator, ...] = ()


def attention(shape: AttentionShape, prefix: str = "self_attn") -> Part:
    """Queries, keys and values as one product, the attention, the output."""
    s, values = shape, shape.v_head_dim or shape.head_dim
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    inward = keys + (0 if s.same_keys else s.kv_heads * values)
    width, out = queries * (2 if s.gate else 1) + inward, s.heads * values
    split = Columns(inward, s.kv_heads)
    parts = (queries * (2 if s.gate else 1), keys)
    parts = parts if s.same_keys else (*parts, s.kv_heads * values)
    return (
        Linear(
            width, s.hidden, s.bias, parts=parts, module=f"{prefix}.q_proj", split=split
        ),
        *_head_norms(s),
        *s.index,
        CachedAttention(
            s.heads, s.kv_heads, s.head_dim, s.v_head_dim, s.window, s.chunk, s.rotary,
            s.sinks, s.chosen,
        ),
        *((Map("gate_mul", out, reads=2, split=True),) if s.gate else ()),
        Linear(s.hidden, out, s.output_bias, module=f"{prefix}.o_proj", split=Rows()),
    )  # fmt: skip


def _head_norms(s: AttentionShape) -> Part:
    if not s.norms:
        return ()
    norm, both = Norm("rmsnorm", s.head_dim, residual=False), (s.heads, s.kv_heads)
    if s.norms == "all":
        return tuple(replace(norm, cols=n * s.head_dim, heads=n) for n in both)
    weighted = s.norms == "head"
    return tuple(replace(norm, per_token=n, heads=n, weighted=weighted) for n in both)


def feed_forward(
    hidden: int,
    inner: int,
    prefix: str = "mlp",
    *,
    fn: str = "silu",
    gated: bool = True,
    bias: bool = False,
    joined: bool = False,
    joins: bool = False,
    merged: bool = False,
) -> Part:
    """Gate and up as one product, their product, down; without a gate up, the
    activation and down. `joined`: added to what routed experts make. `joins`: its input
    is that of the attention beside it. `merged`: modules have gate and up as one layer,
    too."""
    out = Linear(hidden, inner, bias, module=f"{prefix}.down_proj", split=Rows(joined))
    if not gated:
        up = Linear(inner, hidden, bias, module=f"{prefix}.up_proj", split=Columns())
        return (up, dataclasses.replace(out, activation=Activation(fn, inner)))
    both = Linear(
        2 * inner,
        hidden,
        bias,
        joins=joins,
        parts=() if merged else (inner, inner),
        module=f"{prefix}.gate_proj",
        split=Columns(),
    )
    return (both, Gated(inner, fn), out)


def shared_expert(
    hidden: int, inner: int, prefix: str, gate: bool = False, gated: bool = True
) -> Part:
    """A feed-forward layer of all tokens, added to what the routed experts make, if
    need be times a sigmoid of one number a token (`gate`)."""
    if not inner:
        return ()
    fn = "silu" if gated else "relu2"
    return (
        *feed_forward(hidden, inner, prefix, fn=fn, gated=gated, joined=True),
        *((Linear(1, hidden, wide=True),) if gate else ()),
        Map("add", hidden, reads=2),
    )


def experts(
    hidden: int, inner: int, number: int, chosen: int, prefix: str = "mlp", **more: Any
) -> Experts:
    """Routed experts whose matrices checkpoints name after `prefix`."""
    matrix = "gate_proj" if more.get("gated", True) else "up_proj"
    module = f"{prefix}.experts.0.{matrix}".lstrip(".")
    return Experts(hidden, inner, number, chosen, module=module, **more)
