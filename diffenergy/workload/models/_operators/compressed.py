"""Compressed attention of DeepSeek V4: one head that is key and value, a window of raw
entries, and entries of several tokens each, all of them or those that an indexer picks;
and the wider residual stream around it."""

import dataclasses

from ..._kernel import Kernel, Number
from .attention import cache_write
from .elementwise import Map, Part, Plain
from .latent import Indexer, cached_attention
from .linear import Linear
from .memory import Weights
from .operator import Cached, ForwardPass, Norm, Operator, Stored
from .passes import product
from .sharding import Columns, ModelSplit, Rows, divide


@dataclasses.dataclass(frozen=True)
class CompressedShape:
    """`head_dim` of the one key and value head, `queries` rank of the queries, output
    by `groups` of rank `output`; `window` raw entries. GPUs divide heads and groups."""

    hidden: int
    heads: int
    head_dim: int
    queries: int
    groups: int
    output: int
    window: int

    def shard(self, split: ModelSplit) -> "CompressedShape":
        """The shape on one of several GPUs."""
        heads = divide(self.heads, split.tp, "attention heads")
        groups = divide(self.groups, split.tp, "groups of heads")
        return dataclasses.replace(self, heads=heads, groups=groups)


@dataclasses.dataclass(frozen=True)
class Compressed(Operator):
    """The write of new entries and the attention over the window and the entries of
    `ratio` tokens (0: none); `chosen`: entries that a query reads (0: all)."""

    shape: CompressedShape
    ratio: int
    chosen: int = 0

    def shard(self, split: ModelSplit) -> "Compressed":
        return dataclasses.replace(self, shape=self.shape.shard(split))

    def forward(self, run: ForwardPass) -> list[Kernel]:
        s = self.shape
        queries = s.heads * s.head_dim
        both = queries + s.head_dim
        write = cache_write(run, "rope_kv_write", both, queries, s.head_dim)
        rows = [write, self._row(run, s.window, causal=True)]
        if self.ratio and run.kv_len >= self.ratio:
            rows.append(self._row(run, 0, causal=False))
        return rows

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.shape.heads),)  # a sink a head

    def cached(self) -> tuple[Cached, ...]:
        raw = Cached(state=self.shape.window * self.shape.head_dim * _RAW)
        grown = self.shape.head_dim / self.ratio if self.ratio else 0.0
        return (raw, Cached(grown)) if grown else (raw,)

    def _row(self, run: ForwardPass, window: int, causal: bool) -> Kernel:
        """Attention over the raw entries of a window, or over entries of several
        tokens, of which a query of a prompt sees those before it."""
        many = not run.is_step
        if window:
            keys = run.kv_len if many else min(run.kv_len, window)
        else:
            keys = round(_mean_visible(run, self.ratio, self.chosen)) or 1
        return cached_attention(
            run, self.shape.heads, keys, self.shape.head_dim, shared_kv=True,
            window_size=window if many else 0, causal=causal,
        )  # fmt: skip


_RAW = 2.0
"""Bytes of an element of a raw entry."""


def _mean_visible(run: ForwardPass, ratio: int, chosen: int) -> Number:
    """Mean number of entries of `ratio` tokens that a query sees, at most `chosen`."""
    last = run.kv_len / ratio
    most = min(last, chosen or last)
    if run.is_step:
        return most
    return most - most**2 / (2 * last)  # rises up to `most`, then stays


@dataclasses.dataclass(frozen=True)
class GroupedOutput(Stored):
    """Products of groups of heads, each to a rank of its own."""

    shape: CompressedShape
    module: str = dataclasses.field(default="self_attn.o_a_proj", kw_only=True)

    def shard(self, split: ModelSplit) -> "GroupedOutput":
        return dataclasses.replace(self, shape=self.shape.shard(split))

    def forward(self, run: ForwardPass) -> list[Kernel]:
        s = self.shape
        inner = s.heads * s.head_dim // s.groups
        return [product(run.values, s.groups, run.tokens, s.output, inner)]

    def weights(self) -> tuple[Weights, ...]:
        s = self.shape
        return (Weights(s.heads * s.head_dim * s.output, self.format, True),)


def compressed_attention(
    shape: CompressedShape, ratio: int, index: Indexer | None
) -> Part:
    """Projections, compression, index, attention and output."""
    s, prefix = shape, "self_attn"
    down = Linear(s.queries + s.head_dim, s.hidden, module=f"{prefix}.q_a_proj")
    norms = (
        Norm("rmsnorm", s.queries, residual=False),
        Norm("rmsnorm", s.head_dim, residual=False),
    )
    up = Linear(
        s.heads * s.head_dim, s.queries, module=f"{prefix}.q_b_proj", split=Columns()
    )
    chosen = index.chosen if index else 0
    output = Linear(
        s.hidden, s.groups * s.output, module=f"{prefix}.o_b_proj", split=Rows()
    )
    return (
        down,
        *norms,
        up,
        *(_compressor(s.hidden, s.head_dim, ratio, index is not None) if ratio else ()),
        *(_index(index, s.hidden) if index else ()),
        Compressed(s, ratio, chosen),
        GroupedOutput(s),
        output,
    )


def _compressor(hidden: int, width: int, ratio: int, overlaps: bool) -> Part:
    """Values and gates of the tokens of an entry, summed with the gates' softmax; where
    entries overlap both are twice as wide. Every place in an entry has an offset."""
    wide = 2 * width if overlaps else width
    return (
        Linear(2 * wide, hidden, wide=True),
        Map("compress", 2 * wide, writes=0.5 / ratio, parameters=ratio * wide),
        Plain(width),
    )


def _index(index: Indexer, hidden: int) -> Part:
    """Its compressor, queries from the attention's rank, a weight a head, scores."""
    d = index.head_dim
    return (
        *_compressor(hidden, d, index.ratio, overlaps=True),
        Linear(index.heads * d, index.queries, module="self_attn.indexer.q_b_proj"),
        Linear(index.heads, hidden, wide=True),
        index,
    )


def hyper_connection(hidden: int, streams: int) -> Part:
    """Collapse of `streams` residual streams before a part of a layer, their mixing and
    the expansion behind it (arXiv 2512.24880): one small product and two passes over
    all streams."""
    outputs = 2 * streams + streams**2
    return (
        Linear(outputs, streams * hidden, wide=True),
        Map("hyper_connection", hidden, reads=streams + 1, writes=streams),
        Plain(outputs + 3),
    )
