"""Self-attention of a training step, with rotary positions, forward and backward."""

import dataclasses

from ..._listing import Kernel
from ..._unlisted import (
    HALF,
    Attention,
    attention_copies,
    repeated_keys,
    rotary_copies,
    stream,
    unlisted,
)
from .._shared.attention import Scores, cast_softmax, fused, products, score_stream
from .._shared.base import product, rows_of
from .operators import Pass, Trainable


@dataclasses.dataclass(frozen=True)
class Heads:
    """Head layout of causal attention; `window` 0 means all earlier tokens."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0

    def site(self, run: Pass, count: int = 1) -> Attention:
        """`count` calls."""
        return Attention(
            run.sequences,
            self.heads,
            self.kv_heads,
            run.q_len,
            run.kv_len,
            self.head_dim,
            count,
        )


@dataclasses.dataclass(frozen=True)
class Rotary(Trainable):
    """Rotation of queries and keys; its gradient is the rotation back."""

    layout: Heads

    def forward(self, run: Pass) -> list[Kernel]:
        site, dtype = self.layout.site(run), run.values
        if run.fused:
            both = site.queries + site.new_keys
            return [stream("rope", both, dtype, 1, reads=1, writes=1)]
        return rotary_copies(site, dtype) + rotation(site, dtype)

    def backward(self, run: Pass) -> list[Kernel]:
        return self.forward(run)

    def kept(self, run: Pass) -> float:
        """Nothing: its gradient needs the angles alone."""
        return 0.0


def rotation(site: Attention, dtype: str) -> list[Kernel]:
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
class SelfAttention(Trainable):
    """Causal attention: one fused kernel, or products around a softmax.

    Fused stacks without a fused kernel run llm.c's: heads laid apart, a softmax that
    reads and writes the visible half of the scores alone, heads joined.
    """

    layout: Heads
    scores: Scores

    def forward(self, run: Pass) -> list[Kernel]:
        site, p = self.layout.site(run), run.precision
        if run.flash:
            around = [] if run.fused else repeated_keys(site, p.values)
            return [*around, fused(site, p, window=self.layout.window)]
        repeated = repeated_keys(site, p.values)
        if run.fused:
            scores, values = products(site, p, zero_share=HALF)
            return [
                self._permute("permute", site, run),
                *repeated,
                scores,
                self._visible_softmax(site, run),
                values,
                stream("unpermute", site.queries, p.values, 1, reads=1),
            ]
        *apart, joined = attention_copies(site, p.values)
        rows = self.scores.rows(site, p, [*repeated, *apart], zero_share=HALF)
        return [*rows, joined]

    def backward(self, run: Pass) -> list[Kernel]:
        site, p = self.layout.site(run), run.precision
        groups = _sum_of_groups(site, p.values)
        if run.flash:
            row = {**fused(site, p, window=self.layout.window)}
            row["op"] = "attention_backward"
            return [row, *([] if run.fused else groups)]
        d_scores, d_values, d_queries, d_keys = _gradient_products(site, run)
        if run.fused:
            reads = {"reads": 2, "writes": 1}
            visible = site.sequences * site.heads * _visible(site)
            return [
                stream("unpermute_backward", site.queries, p.values, 1, reads=1),
                d_scores,
                d_values,
                stream("softmax_backward", visible, p.values, 1, **reads),
                d_queries,
                d_keys,
                *groups,
                self._permute("permute_backward", site, run),
            ]
        *apart, joined = attention_copies(site, p.values)
        before = self.scores.scale_queries
        half = {"zero_share": HALF}
        scale = [self.scores.scaling("scalar_mul", site, p.values, **half)]
        where = self.scores.mask == "where"
        return [
            joined,
            d_scores,
            d_values,
            *self._softmax_backward(site, run),
            *(self.scores.masking(site, p.values, **half) if where else []),
            *([] if before else scale),
            d_queries,
            d_keys,
            *apart,
            *groups,
            *(scale if before else []),
        ]

    def kept(self, run: Pass) -> float:
        """Queries, keys and values (in operators keys and values of all heads), and the
        fp32 sums of a fused kernel's rows or the probabilities.

        Probabilities made in fp32 are kept in both types; a selecting mask takes a byte
        a score. The output is the input of the next layer.
        """
        site, e = self.layout.site(run), run.element_bytes
        keys = site.new_keys if run.fused else site.keys
        operands = (site.queries + 2 * keys) * e
        if run.flash:
            return operands + 4.0 * site.sequences * site.heads * site.q_len
        if run.fused:
            return operands + site.scores * e
        cast = 4.0 if self.scores.cast and e < 4.0 else 0.0
        mask = 1.0 if self.scores.mask == "where" else 0.0
        return operands + site.scores * (e + cast + mask)

    def _permute(self, name: str, site: Attention, run: Pass) -> Kernel:
        """Queries, keys and values of all heads to or from their own layouts."""
        elements = site.queries + 2 * site.new_keys
        return stream(name, elements, run.values, 1, reads=1, writes=1)

    def _visible_softmax(self, site: Attention, run: Pass) -> Kernel:
        """Rows as long as the mean number of visible keys."""
        rows = site.sequences * site.heads * site.q_len
        return rows_of("softmax", rows, _visible(site) / site.q_len, run.values)

    def _softmax_backward(self, site: Attention, run: Pass) -> list[Kernel]:
        """With the casts backward, if the forward pass had them."""
        cast = self.scores.cast and run.values != "fp32"
        dtype = "fp32" if cast else run.values
        more = {"reads": 2, "writes": 1, "zero_share": HALF}
        row = score_stream("softmax_backward", site, dtype, **more)
        if not cast:
            return [row]
        up, _, down = cast_softmax(site, run.values, zero_share=HALF)
        return [up, row, down]


def _visible(site: Attention) -> float:
    """Scores of one head's matrix that the causal mask leaves."""
    return site.q_len * (site.q_len + 1) / 2


def _gradient_products(site: Attention, run: Pass) -> list[Kernel]:
    """dP = dO V^T, dV = P^T dO, dQ = dS K and dK = dS^T Q."""
    dtype, batch = run.precision.products, site.sequences * site.heads
    length, depth = site.q_len, site.head_dim
    wide = product(dtype, batch, length, length, depth)
    tall = product(dtype, batch, length, depth, length, zero_share=HALF)
    return [wide, tall, tall, tall]


def _sum_of_groups(site: Attention, dtype: str) -> list[Kernel]:
    """Gradients of repeated keys and values, summed over the heads of a group."""
    if site.kv_heads == site.heads:
        return []
    share = site.kv_heads / site.heads
    row = unlisted("sum_of_groups", site.keys, dtype, 1, reads=1, writes=share)
    return [row, row]
