"""State mixers: recurrences that keep a state of fixed size instead of all keys."""

import dataclasses
from typing import Final, Literal

from ..._eager_rows import stream
from ..._kernel import Kernel
from .elementwise import Map, Part, Plain
from .linear import Linear
from .memory import Weights, element_bytes
from .operator import Cached, ForwardPass, Norm, Operator
from .passes import rows_of
from .sharding import Columns, ModelSplit, Rows, divide, divide_or_copy

STATES: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Types of a state as configs call them."""
_CONV: Final = 2.0
"""Bytes of an element that a convolution keeps of the last tokens."""


@dataclasses.dataclass(frozen=True)
class Convolution(Operator):
    """Causal convolution of each of `channels` over the last `taps` tokens; `split`:
    how GPUs divide the channels."""

    channels: int
    taps: int
    bias: bool = False
    split: Columns = Columns()

    def shard(self, split: ModelSplit) -> "Convolution":
        channels = self.split.share(self.channels, split.tp)
        return dataclasses.replace(self, channels=channels)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        sizes = {"num_heads": self.channels, "head_dim": self.taps, "v_head_dim": 1}
        return [_scan(run, "short_conv", **sizes, state_dtype=run.values)]

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.channels * (self.taps + self.bias)),)

    def cached(self) -> tuple[Cached, ...]:
        return (Cached(state=self.channels * (self.taps - 1) * _CONV),)


@dataclasses.dataclass(frozen=True)
class Recurrence(Operator):
    """`heads` states of `keys` x `values`, one key a group of heads (`groups`)."""

    kind: Literal["gated_delta", "kda", "mamba2"]
    heads: int
    keys: int
    values: int
    groups: int
    chunk: int = 64
    state: str = "fp32"

    def shard(self, split: ModelSplit) -> "Recurrence":
        heads = divide(self.heads, split.tp, "heads of states")
        groups = divide_or_copy(self.groups, split.tp, "groups of states")
        return dataclasses.replace(self, heads=heads, groups=groups)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return [
            _scan(
                run,
                self.kind,
                num_heads=self.heads,
                head_dim=self.keys,
                v_head_dim=self.values,
                groups=self.groups,
                chunk=self.chunk,
                state_dtype=self.state,
            )
        ]

    def cached(self) -> tuple[Cached, ...]:
        size = element_bytes(self.state)
        return (Cached(state=self.heads * self.keys * self.values * size),)


def _scan(run: ForwardPass, kind: str, **sizes: int | str) -> Kernel:
    row = dict(op="scan", kind=kind, batch=run.sequences, q_len=run.q_len)
    return row | sizes | dict(dtype=run.values, count=1)


@dataclasses.dataclass(frozen=True)
class GatedNorm(Operator):
    """RMSNorm of `heads` rows of `cols` a token, times a gate; `cols` weights.
    GPUs divide the heads, or the columns of one row."""

    heads: int
    cols: int

    def shard(self, split: ModelSplit) -> "GatedNorm":
        name = "cols" if self.heads == 1 else "heads"
        share = divide(getattr(self, name), split.tp, f"{name} of a gated norm")
        return dataclasses.replace(self, **{name: share})

    def forward(self, run: ForwardPass) -> list[Kernel]:
        rows = run.tokens * self.heads
        return [
            rows_of("rmsnorm", rows, self.cols, run.values),
            stream("silu_mul", rows * self.cols, run.values, 1),
        ]

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.cols),)


def gated_delta(
    hidden: int,
    key_heads: int,
    value_heads: int,
    keys: int,
    values: int,
    taps: int,
    state_dtype: str,
) -> Part:
    """A gated delta net (arXiv 2412.06464) of so many heads of `keys` and `values`:
    projections, convolution over `taps`, norms of queries and keys, recurrence with
    states in `state_dtype`, gated norm, output."""
    queries, width = key_heads * keys, value_heads * values
    both, heads = Columns(2 * queries, key_heads), 2 * value_heads
    wide, prefix = 2 * queries + width, "linear_attn"
    return (
        Linear(wide, hidden, module=f"{prefix}.in_proj_qkv", split=both),
        Linear(width, hidden, module=f"{prefix}.in_proj_z", split=Columns()),
        Linear(heads, hidden, module=f"{prefix}.in_proj_b", split=Columns()),
        Convolution(wide, taps, split=both),
        _bare_norm(keys, 2 * key_heads),
        Map("gate", heads, parameters=heads, split=True),
        Recurrence(
            "gated_delta", value_heads, keys, values, key_heads, state=state_dtype
        ),
        GatedNorm(value_heads, values),
        Linear(hidden, width, module=f"{prefix}.out_proj", split=Rows()),
    )


def _bare_norm(width: int, heads: int) -> Norm:
    """Norm of queries and keys by head, without weights."""
    return Norm("rmsnorm", width, heads, residual=False, weighted=False, heads=heads)


def mamba2(
    prefix: str,
    hidden: int,
    heads: int,
    head_dim: int,
    state: int,
    groups: int,
    taps: int,
    chunk: int,
    *,
    bias: bool,
    conv_bias: bool,
    norm: bool = True,
    state_dtype: str = "fp32",
) -> Part:
    """Mamba2 (arXiv 2405.21060): `heads` of `head_dim`, a state of `state` numbers for
    each in `state_dtype`, `groups` of heads that share its inputs; projection,
    convolution, scan, gated norm, output."""
    width, sides = heads * head_dim, 2 * groups * state
    wide, split = 2 * width + sides + heads, Columns(sides, groups)
    multiplied = Map("silu_mul", width, reads=2, split=True)
    return (
        Linear(wide, hidden, bias, module=f"{prefix}.in_proj", split=split),
        Convolution(width + sides, taps, conv_bias, split),
        Recurrence("mamba2", heads, state, head_dim, groups, chunk, state_dtype),
        Plain(3 * heads, split=True),
        GatedNorm(1, width) if norm else multiplied,
        Linear(hidden, width, bias, module=f"{prefix}.out_proj", split=Rows()),
    )


def short_convolution(hidden: int, taps: int, bias: bool) -> Part:
    """A gated convolution over the last few tokens (LFM2)."""
    gate = Map("mul", hidden, reads=2, split=True)
    return (
        Linear(3 * hidden, hidden, bias, module="conv.in_proj", split=Columns()),
        gate,
        Convolution(hidden, taps, bias),
        gate,
        Linear(hidden, hidden, bias, module="conv.out_proj", split=Rows()),
    )


def kimi_delta(hidden: int, heads: int, width: int, taps: int) -> Part:
    """A delta net whose decay differs by channel (KDA, arXiv 2510.26692): queries, keys
    and values each with a convolution, decay and output gate of rank `width`."""
    wide, prefix = heads * width, "self_attn"
    low = Columns(whole=2 * width)
    return (
        Linear(3 * wide, hidden, module=f"{prefix}.q_proj", split=Columns()),
        Linear(2 * width + heads, hidden, module=f"{prefix}.f_a_proj", split=low),
        Linear(wide, width, module=f"{prefix}.f_b_proj", split=Columns()),
        Linear(wide, width, module=f"{prefix}.g_b_proj", split=Columns()),
        Convolution(3 * wide, taps),
        _bare_norm(width, 2 * heads),
        Map("gate", wide, parameters=heads + wide, split=True),
        Recurrence("kda", heads, width, width, heads),
        GatedNorm(heads, width),
        Linear(hidden, wide, module=f"{prefix}.o_proj", split=Rows()),
    )
