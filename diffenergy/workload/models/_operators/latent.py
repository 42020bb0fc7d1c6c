"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), dense or over the keys
that an indexer picks (DeepSeek-V3.2).

The cache holds a latent and a rotated key a token, once for all heads. Prefill expands
keys and values of all heads from it; decode, and sparse prefill, take the expansion to
the queries and to the outputs instead (absorbed): attention with one key and value
head whose values are the first part of the keys. GPUs divide the heads; each has the
whole latent, and the whole indexer.
"""

import dataclasses
from typing import Any

from ..._eager_rows import Attention as Site
from ..._eager_rows import stream
from ..._kernel import Kernel
from .attention import Attention, Heads, cache_write
from .elementwise import Part
from .linear import Linear
from .operator import Cached, ForwardPass, Norm, Operator, Stored, Trainable, Weights
from .passes import product, rows_of
from .scores import fused_attention
from .sharding import Columns, ModelSplit, Rows, divide, gather_rows, reduce_rows


@dataclasses.dataclass(frozen=True)
class LatentShape:
    """`nope` and `rope`: widths of a head's query without and with rotation; `values`:
    of its values; `queries`: rank of the queries (0: full); `latent`: of the cache."""

    hidden: int
    heads: int
    nope: int
    rope: int
    values: int
    queries: int
    latent: int
    bias: bool = False

    def shard(self, split: ModelSplit) -> "LatentShape":
        """The shape on one of several GPUs."""
        heads = divide(self.heads, split.tp, "attention heads")
        return dataclasses.replace(self, heads=heads)


def cached_attention(
    run: ForwardPass, heads: int, kv_len: int, head_dim: int, **more: Any
) -> Kernel:
    """Fused causal attention of a pass to `kv_len` entries of one key and value head,
    or as `more` says; queries of a decode step are as many more heads."""
    q_len, more_heads = (1, run.q_len) if run.is_step else (run.q_len, 1)
    heads *= more_heads
    site = Site(run.sequences, heads, 1, q_len, kv_len, head_dim, 1)
    return fused_attention(site, run.precision) | more


@dataclasses.dataclass(frozen=True)
class Indexer(Operator):
    """Scores of all keys by small heads, the `chosen` best of which attention reads.

    `queries`: width of what its queries are projected from (0: the hidden one).
    `ratio`: tokens to an entry.
    """

    hidden: int
    queries: int
    heads: int
    head_dim: int
    chosen: int
    ratio: int = 1

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Scores as attention in fp8 whose values are one number a key (what sums the
        heads), and the choice as a reduction over them."""
        entries = max(run.kv_len // self.ratio, 1)
        many = not run.is_step
        scores = cached_attention(
            run, self.heads, entries, self.head_dim, v_head_dim=1, shared_kv=True,
            causal=many and self.ratio == 1, dtype="fp8", kv_cache_dtype="fp8",
        )  # fmt: skip
        visible = (entries + 1) // 2 if many else entries
        return [
            stream("quantize", run.tokens * self.head_dim * self.heads, run.values, 1),
            scores,
            rows_of("softmax", run.tokens, visible, "fp32"),
        ]

    def cached(self) -> tuple[Cached, ...]:
        return (Cached(self.head_dim / self.ratio),)

    def projections(self) -> Part:
        """Queries, keys and the weight of each head."""
        d, prefix = self.head_dim, "self_attn.indexer"
        inputs = self.queries or self.hidden
        return (
            Linear(self.heads * d, inputs, module=f"{prefix}.wq_b"),
            Linear(d, self.hidden, module=f"{prefix}.wk"),
            Linear(self.heads, self.hidden, wide=True),
            Norm("layernorm", d, residual=False),
        )


@dataclasses.dataclass(frozen=True)
class Expanded(Trainable):
    """Queries rotated in place, keys put together from their expansion and the one
    rotated key of all heads, values laid apart: one kernel, backward the same with the
    gradient of that key summed over the heads. GPUs that divide the tokens gather it.
    Attention keeps what it makes.
    """

    shape: LatentShape
    split: ModelSplit = ModelSplit()

    def shard(self, split: ModelSplit) -> "Expanded":
        return dataclasses.replace(self, shape=self.shape.shard(split), split=split)

    @property
    def unfused(self) -> bool:
        return False

    def forward(self, run: ForwardPass) -> list[Kernel]:
        return [*gather_rows(run, self.shape.rope, self.split), self._row(run)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        return [self._row(run), *reduce_rows(run, self.shape.rope, self.split)]

    def _row(self, run: ForwardPass) -> Kernel:
        s = self.shape
        written = s.heads * (s.nope + 2 * s.rope + s.values)
        read = s.heads * (s.nope + s.rope + s.values) + s.rope
        reads = {"reads": read / written, "writes": 1}
        return stream("rope_kv", run.tokens * written, run.values, 1, **reads)


@dataclasses.dataclass(frozen=True)
class Latent(Stored):
    """The expansion of the cache (or of the queries), the attention and the write of
    new latents. `chosen`: keys that a query reads (0: all)."""

    shape: LatentShape
    chosen: int = 0
    module: str = dataclasses.field(default="self_attn.kv_b_proj", kw_only=True)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        s = self.shape
        queries, cached = s.heads * s.rope, s.latent + s.rope
        write = cache_write(run, "rope_kv_write", queries + s.rope, queries, cached)
        if not run.is_step and not self.chosen:
            return [write, *self._expanded(run)]
        return [write, *self._absorbed(run)]

    def in_training(self) -> tuple[Trainable, ...] | None:
        """Operators of a training step: as in prefill, without a cache."""
        s = self.shape
        if self.chosen:
            return None
        wide, depth = s.heads * (s.nope + s.values), s.nope + s.rope
        heads = Heads(s.heads, s.heads, depth, v_head_dim=s.values)
        return (
            Linear(wide, s.latent, split=Columns()),
            Expanded(s),
            Attention(heads),
        )

    def shard(self, split: ModelSplit) -> "Latent":
        return dataclasses.replace(self, shape=self.shape.shard(split))

    def weights(self) -> tuple[Weights, ...]:
        s = self.shape
        number = s.heads * (s.nope + s.values) * s.latent
        return (Weights(number, self.format, True),)

    def cached(self) -> tuple[Cached, ...]:
        return (Cached(self.shape.latent + self.shape.rope),)

    def _expanded(self, run: ForwardPass) -> list[Kernel]:
        """Kernels with keys and values of all heads."""
        s = self.shape
        wide = s.heads * (s.nope + s.values)
        expansion = Linear(wide, s.latent, format=self.format)
        row = self._row(run, s.heads, s.nope + s.rope, s.values)
        return [*expansion.forward(run), row]

    def _absorbed(self, run: ForwardPass) -> list[Kernel]:
        """Queries to the latent's width, attention over latents, values from it; these
        products read their weights in 16 bit."""
        s, dtype = self.shape, run.values
        row = self._row(run, 1, s.latent + s.rope, s.latent)
        row["shared_kv"] = True
        return [
            product(dtype, s.heads, run.tokens, s.latent, s.nope),
            row,
            product(dtype, s.heads, run.tokens, s.values, s.latent),
        ]

    def _row(
        self, run: ForwardPass, kv_heads: int, head_dim: int, values: int
    ) -> Kernel:
        many = not run.is_step
        keys = run.kv_len if many else min(run.kv_len, self.chosen or run.kv_len)
        return cached_attention(
            run, self.shape.heads, keys, head_dim, num_kv_heads=kv_heads,
            v_head_dim=values, window_size=self.chosen if many else 0,
        )  # fmt: skip


def latent_attention(
    shape: LatentShape, index: Indexer | None = None, chosen: int = 0
) -> Part:
    """Projections, attention and output; `index`: of a layer that has its own,
    `chosen`: keys that a query reads (0: all)."""
    s, width = shape, shape.heads * (shape.nope + shape.rope)
    if s.queries:
        down = Linear(s.queries + s.latent + s.rope, s.hidden, s.bias, module=_DOWN)
        up = Linear(width, s.queries, module="self_attn.q_b_proj", split=Columns())
        first = (down, Norm("rmsnorm", s.queries, residual=False))
        queries: Part = (*first, Norm("rmsnorm", s.latent, residual=False), up)
    else:
        cached = s.latent + s.rope
        split = Columns(whole=cached)
        down = Linear(width + cached, s.hidden, s.bias, module=_PLAIN, split=split)
        queries = (down, Norm("rmsnorm", s.latent, residual=False))
    output = Linear(
        s.hidden, s.heads * s.values, s.bias, module="self_attn.o_proj", split=Rows()
    )
    indexed: Part = (*index.projections(), index) if index else ()
    return (*queries, *indexed, Latent(s, chosen), output)


_DOWN = "self_attn.kv_a_proj_with_mqa"
_PLAIN = "self_attn.q_proj"
