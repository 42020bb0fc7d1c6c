"""Attention to earlier tokens or to all, with rotary positions: over the cache of a
serving engine, and forward and backward."""

import dataclasses
from collections.abc import Iterator

from ..._eager_rows import (
    HALF,
    attention_copies,
    repeated_keys,
    rotary_copies,
    stream,
    unlisted,
)
from ..._eager_rows import Attention as Site
from ..._kernel import Kernel
from .memory import Weights, element_bytes
from .operator import Cached, Trainable
from .passes import ForwardPass, product, rows_of
from .scores import (
    Scores,
    around_softmax,
    cast_softmax,
    fused_attention,
    products,
    score_stream,
)
from .sharding import ModelSplit, collective, divide, divide_or_copy


@dataclasses.dataclass(frozen=True)
class Heads:
    """Head layout of attention to earlier tokens (`causal`) or to all; `window` 0 means
    all earlier ones, `v_head_dim` 0 values as wide as keys."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    causal: bool = True
    v_head_dim: int = 0

    @property
    def values(self) -> int:
        """Width of a value."""
        return self.v_head_dim or self.head_dim

    @property
    def zeros(self) -> dict[str, float]:
        """Scores of later tokens are zeros: half of them."""
        return {"zero_share": HALF} if self.causal else {}

    def shard(self, split: ModelSplit) -> "Heads":
        """Heads on one of several GPUs."""
        heads = divide(self.heads, split.tp, "attention heads")
        kv_heads = divide_or_copy(self.kv_heads, split.tp)
        return dataclasses.replace(self, heads=heads, kv_heads=kv_heads)

    def site(self, run: ForwardPass, count: int = 1) -> Site:
        """Shape of `count` attention calls."""
        return Site(
            run.sequences,
            self.heads,
            self.kv_heads,
            run.q_len,
            run.kv_len if run.cp == 1 else self._visible_keys(run),
            self.head_dim,
            count,
        )

    def _visible_keys(self, run: ForwardPass) -> int:
        """Mean number of keys that a query sees, over all GPUs of a sequence."""
        length, window = run.q_len * run.cp, self.window
        if not 0 < window < length:
            return run.kv_len
        return round(window * (1 - window / (2 * length)))


def _rotation_rows(layout: Heads, run: ForwardPass) -> list[Kernel]:
    """Kernels that rotate queries and keys; the gradient is the rotation back, which
    needs the angles alone."""
    site, dtype = layout.site(run), run.values
    if run.fused:
        both = site.queries + site.new_keys
        return [stream("rope", both, dtype, 1, reads=1, writes=1)]
    return rotary_copies(site, dtype) + _rotation(site, dtype)


def _rotation(site: Site, dtype: str) -> list[Kernel]:
    """x cos + rotate_half(x) sin of queries and keys; the tables are broadcast over the
    heads."""
    return [
        row
        for elements in (site.queries, site.new_keys)
        for row in (
            stream("pointwise_mul", elements, dtype, 2 * site.count, reads=1),
            stream("pointwise_add", elements, dtype, site.count),
        )
    ]


@dataclasses.dataclass(frozen=True)
class Attention(Trainable):
    """Attention that serves, trains and runs as modules do.

    Serving engines write new keys and values to a cache, rotating on the way
    (`rotary`), and run one fused kernel over it, or products around an fp32 softmax.
    Training: one fused kernel, or products around a softmax. Fused stacks without a
    fused kernel run llm.c's: heads laid apart, a softmax that reads and writes the
    visible half of the scores alone, heads joined. GPUs that share the tokens
    (`ForwardPass.cp`) gather all keys and values forward and backward, and the latter's
    gradients are summed to their owners (as bytes the same as a ring's steps).

    `scores`: what modules do to the scores. `sinks`: one more logit a head. `chunk`:
    tokens of its own block of so many that a query sees alone (0: all). `chosen`: keys
    that a query reads at most, all of which are kept (0: all).
    """

    layout: Heads
    scores: Scores = Scores()
    rotary: bool = False
    sinks: bool = False
    chunk: int = 0
    chosen: int = 0

    @property
    def unfused(self) -> bool:
        return not self.sinks and self.layout.values == self.layout.head_dim

    def in_training(self) -> tuple["Attention", ...] | None:
        """The operator itself; None for chunked attention and chosen keys."""
        return None if self.chunk or self.chosen else (self,)

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.layout.heads),) if self.sinks else ()

    def cached(self) -> tuple[Cached, ...]:
        heads = self.layout
        elements = heads.kv_heads * (heads.head_dim + heads.values)
        return (Cached(elements, heads.window or self.chunk),)

    def shard(self, split: ModelSplit) -> "Attention":
        return dataclasses.replace(self, layout=self.layout.shard(split))

    def forward(self, run: ForwardPass) -> list[Kernel]:
        if run.fused and not run.train:
            return self._served(run)
        turned = _rotation_rows(self.layout, run) if self.rotary else []
        return [*turned, *self._inside(run)]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        turned = _rotation_rows(self.layout, run) if self.rotary else []
        return [*self._inside_backward(run), *turned]

    # --- In serving engines

    def _served(self, run: ForwardPass) -> list[Kernel]:
        rows, heads = [self._write(run)], self.layout
        for sequences, q_len, kv_len in self._blocks(run):
            times, q_len = (q_len, 1) if run.is_step else (1, q_len)
            sizes = (heads.heads * times, heads.kv_heads, q_len, kv_len, heads.head_dim)
            rows += self._cached_attention(Site(sequences, *sizes, 1), run)
        return rows

    def _blocks(self, run: ForwardPass) -> Iterator[tuple[int, int, int]]:
        """(sequences, new tokens, visible tokens) of the blocks that attend apart."""
        if not self.chunk or run.kv_len <= self.chunk:
            yield run.sequences, run.q_len, run.kv_len
            return
        if run.is_decode:  # the last block, as far as it has come
            yield run.sequences, run.q_len, (run.kv_len - 1) % self.chunk + 1
            return
        whole, rest = divmod(run.q_len, self.chunk)
        yield run.sequences * whole, self.chunk, self.chunk
        if rest:
            yield run.sequences, rest, rest

    def _cached_attention(self, site: Site, run: ForwardPass) -> list[Kernel]:
        """One fused kernel, or products around an fp32 softmax."""
        p = run.precision
        if run.flash:
            row = fused_attention(site, p, window=self.layout.window)
            if self.layout.values != self.layout.head_dim:
                row["v_head_dim"] = self.layout.values
            if self.sinks:
                row["sinks"] = True
            if self.chosen and run.is_step:
                row["kv_len"] = min(run.kv_len, self.chosen)
            elif self.chosen:
                row["window_size"] = self.chosen
            return [row]
        return around_softmax(site, p, "scale_mask", **run.zeros)

    def _write(self, run: ForwardPass) -> Kernel:
        """New keys and values copied to the cache, queries and keys rotated on the way:
        of what is rotated, or else of what is written, are the elements."""
        keys = self.layout.kv_heads * self.layout.head_dim
        both = keys + self.layout.kv_heads * self.layout.values
        if not self.rotary:
            return cache_write(run, "kv_write", both, 0, both)
        queries = self.layout.heads * self.layout.head_dim
        return cache_write(run, "rope_kv_write", queries + keys, queries, both)

    # --- In training, and as modules

    def _inside(self, run: ForwardPass) -> list[Kernel]:
        site, p = self.layout.site(run), run.precision
        if run.flash:
            around = [] if run.fused else repeated_keys(site, p.values)
            around += self._grown(run)
            return [*self._keys("all_gather", run), *around, self._fused(site, run)]
        repeated = repeated_keys(site, p.values)
        if run.fused:
            scores, values = products(site, p, **self.layout.zeros)
            batch = site.sequences * site.heads
            visible = self._visible(site) / site.q_len
            return [
                self._permute("permute", site, run),
                *repeated,
                scores,
                # rows as long as the mean number of visible keys
                rows_of("softmax", batch * site.q_len, visible, p.values),
                values,
                stream("unpermute", site.queries, p.values, 1, reads=1),
            ]
        *apart, joined = attention_copies(site, p.values)
        zeros = {} if self._reads_cache(run) else self.layout.zeros
        copies = [*self._grown(run), *repeated, *apart]
        return [*self.scores.rows(site, p, copies, **zeros), joined]

    @staticmethod
    def _reads_cache(run: ForwardPass) -> bool:
        """Whether queries see keys of earlier passes, none of which is masked."""
        return run.is_decode and not run.train

    def _grown(self, run: ForwardPass) -> list[Kernel]:
        """Keys and values of a cache that grows by a copy (stack eager)."""
        if run.fused or not self._reads_cache(run):
            return []
        width = self.layout.kv_heads * self.layout.head_dim
        cached = run.sequences * run.kv_len * width
        return [unlisted("concat", cached, run.values, 2)]

    def _inside_backward(self, run: ForwardPass) -> list[Kernel]:
        site, p = self.layout.site(run), run.precision
        groups = _sum_of_groups(site, p.values)
        if run.flash:
            row = self._fused(site, run) | {"op": "attention_backward"}
            after = [*([] if run.fused else groups), *self._keys("reduce_scatter", run)]
            return [*self._keys("all_gather", run), row, *after]
        again = self._inside(run) if _scores_again(run) else []
        return [*again, *self._operators_backward(site, groups, run)]

    def _fused(self, site: Site, run: ForwardPass) -> Kernel:
        layout = self.layout
        more: Kernel = {"v_head_dim": layout.v_head_dim} if layout.v_head_dim else {}
        more |= {"sinks": True} if self.sinks else {}
        if run.cp > 1:  # as many keys as are seen in the mean
            return fused_attention(site, run.precision, causal=False) | more
        return fused_attention(site, run.precision, layout.causal, layout.window) | more

    def _keys(self, kind: str, run: ForwardPass) -> list[Kernel]:
        """Keys and values (or their gradients) of the whole sequences."""
        layout = self.layout
        width = layout.kv_heads * (layout.head_dim + layout.values)
        return collective(kind, run.tokens * run.cp, width, run.cp, run.values, "cp")

    def _operators_backward(
        self, site: Site, groups: list[Kernel], run: ForwardPass
    ) -> list[Kernel]:
        """Gradients of products and softmax; `groups` sums those of repeated keys."""
        p = run.precision
        half = self.layout.zeros
        batch, length, depth = site.sequences * site.heads, site.q_len, site.head_dim
        # dP = dO V^T; dV = P^T dO, dQ = dS K and dK = dS^T Q
        d_scores = product(p.products, batch, length, length, depth)
        tall = product(p.products, batch, length, depth, length, **half)
        if run.fused:
            reads = {"reads": 2, "writes": 1}
            visible = site.sequences * site.heads * self._visible(site)
            return [
                stream("unpermute_backward", site.queries, p.values, 1, reads=1),
                d_scores,
                tall,
                stream("softmax_backward", visible, p.values, 1, **reads),
                tall,
                tall,
                *groups,
                self._permute("permute_backward", site, run),
            ]
        *apart, joined = attention_copies(site, p.values)
        before = self.scores.scale_queries
        scale = [self.scores.scaling("scalar_mul", site, p.values, **half)]
        where = self.scores.mask == "where"
        return [
            joined,
            d_scores,
            tall,
            *self._softmax_backward(site, run),
            *(self.scores.masking(site, p.values, **half) if where else []),
            *([] if before else scale),
            tall,
            tall,
            *apart,
            *groups,
            *(scale if before else []),
        ]

    def saved_bytes(self, run: ForwardPass) -> float:
        """Queries, keys and values (in operators keys and values of all heads), and the
        fp32 sums of a fused kernel's rows or the probabilities.

        Probabilities made in fp32 are kept in both types; a selecting mask takes a byte
        a score. The output is the input of the next layer.
        """
        site, e = self.layout.site(run), run.element_bytes
        operands = self.operand_bytes(run)
        if run.flash:
            return operands + self._sums(site)
        if _scores_again(run):
            return operands
        dropped = run.dropout * site.scores * (1.0 + e)  # the mask, what it leaves
        if run.fused:
            return operands + site.scores * e + dropped
        cast = 4.0 if self.scores.cast and e < 4.0 else 0.0
        mask = 1.0 if self.scores.mask == "where" else 0.0
        return operands + site.scores * (e + cast + mask) + dropped

    def operand_bytes(self, run: ForwardPass) -> float:
        """Bytes of queries, keys and values of a pass."""
        site = self.layout.site(run)
        keys = site.new_keys if run.fused or run.cp > 1 else site.keys
        depth, values = self.layout.head_dim, self.layout.values
        numbers = site.queries + keys + keys // depth * values
        return numbers * run.element_bytes

    def selective_bytes(self, run: ForwardPass) -> float:
        if not run.flash:
            return 0.0
        site = self.layout.site(run)
        output = site.queries // self.layout.head_dim * self.layout.values
        return output * run.element_bytes + self._sums(site)

    def _sums(self, site: Site) -> float:
        """Bytes of the fp32 sums of all rows."""
        return 4.0 * site.sequences * site.heads * site.q_len

    def _permute(self, name: str, site: Site, run: ForwardPass) -> Kernel:
        """Queries, keys and values of all heads to or from their own layouts."""
        elements = site.queries + 2 * site.new_keys
        return stream(name, elements, run.values, 1, reads=1, writes=1)

    def _softmax_backward(self, site: Site, run: ForwardPass) -> list[Kernel]:
        """With the casts backward, if the forward pass had them."""
        cast = self.scores.cast and run.values != "fp32"
        dtype = "fp32" if cast else run.values
        more = {"reads": 2, "writes": 1, **self.layout.zeros}
        row = score_stream("softmax_backward", site, dtype, **more)
        if not cast:
            return [row]
        up, _, down = cast_softmax(site, run.values, **self.layout.zeros)
        return [up, row, down]

    def _visible(self, site: Site) -> float:
        """Scores of one head's matrix that the causal mask leaves."""
        shown = site.q_len + 1 if self.layout.causal else 2 * site.q_len
        return site.q_len * shown / 2


def _sum_of_groups(site: Site, dtype: str) -> list[Kernel]:
    """Gradients of repeated keys and values, summed over the heads of a group."""
    if site.kv_heads == site.heads:
        return []
    share = site.kv_heads / site.heads
    row = unlisted("sum_of_groups", site.keys, dtype, 1, reads=1, writes=share)
    return [row, row]


def cache_write(
    run: ForwardPass, fn: str, elements: int, queries: int, cached: int
) -> Kernel:
    """Kernel over `elements` a token that reads and writes `queries`, and what is
    `cached`, which in the cache may have fewer bytes."""
    p = run.precision
    size = element_bytes(p.cache) / element_bytes(p.values)
    reads, writes = (queries + cached) / elements, (queries + cached * size) / elements
    return stream(fn, run.tokens * elements, p.values, 1, reads=reads, writes=writes)


def _scores_again(run: ForwardPass) -> bool:
    """Whether the backward pass makes the scores again that separate operators made."""
    return run.recompute == "selective" or "core" in run.recompute.split("+")
