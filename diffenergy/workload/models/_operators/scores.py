"""Attention calls as kernels: one fused kernel, or products around a softmax."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..._eager_rows import Attention, masked_select, stream
from ..._kernel import Kernel
from .._checkpoint.formats import Precision
from .passes import product, rows_of


def fused_attention(
    site: Attention, precision: Precision, causal: bool = True, window: int = 0
) -> Kernel:
    """Row of a FlashAttention-like kernel; one query token a sequence is a decode
    step."""
    return dict(
        op="generation_attention" if site.q_len == 1 else "context_attention",
        batch=site.sequences,
        q_len=site.q_len,
        kv_len=site.kv_len,
        num_heads=site.heads,
        num_kv_heads=site.kv_heads,
        head_dim=site.head_dim,
        window_size=window,
        causal=causal,
        dtype=precision.values,
        kv_cache_dtype=precision.cache,
        count=site.count,
    )


@dataclasses.dataclass(frozen=True)
class Scores:
    """Operations of a module on its scores: `scale` and `mask` ("": none) are
    elementwise kernels (`scale_queries`: of the queries, before the product), `cast`:
    softmax in fp32."""

    scale: str = "scalar_mul"
    mask: str = "pointwise_add"
    scale_queries: bool = False
    cast: bool = True

    def rows(
        self,
        site: Attention,
        precision: Precision,
        copies: Sequence[Kernel] = (),
        **zeros: float,
    ) -> list[Kernel]:
        """Attention of operators in launch order, `copies` of operands before the
        product; `zeros`: of the scores."""
        dtype = precision.values
        scores, values = products(site, precision, **zeros)
        scale = self.scaling(self.scale, site, dtype, **zeros)
        return [
            *([scale] if self.scale_queries else []),
            *copies,
            scores,
            *([] if self.scale_queries else [scale]),
            *self.masking(site, dtype, **zeros),
            *(cast_softmax if self.cast else _plain_softmax)(site, dtype, **zeros),
            values,
        ]

    def scaling(self, fn: str, site: Attention, dtype: str, **zeros: float) -> Kernel:
        """Kernel that scales the scores, or the queries."""
        if self.scale_queries:
            return stream(fn, site.queries, dtype, site.count)
        return score_stream(fn, site, dtype, **zeros)

    def masking(self, site: Attention, dtype: str, **zeros: float) -> list[Kernel]:
        """Kernel that masks the scores, if one does."""
        if self.mask == "where":
            return masked_select(site, dtype, **zeros)
        added = {"reads": 1, **zeros}
        return [score_stream(self.mask, site, dtype, **added)] if self.mask else []


def products(
    site: Attention, precision: Precision, **zeros: float
) -> tuple[Kernel, Kernel]:
    """Rows of queries times keys and of probabilities times values (`zeros`: share of
    zeros in the latter's probabilities)."""
    dtype, batch = precision.products, site.sequences * site.heads
    q, kv, d, count = site.q_len, site.kv_len, site.head_dim, site.count
    return (
        product(dtype, batch, q, kv, d, count=count),
        product(dtype, batch, q, d, kv, count=count, **zeros),
    )


def around_softmax(
    site: Attention, precision: Precision, scale: str, **zeros: float
) -> list[Kernel]:
    """The two products around a kernel that scales the scores and a softmax in fp32."""
    scores, values = products(site, precision, **zeros)
    scaled = score_stream(scale, site, precision.values, reads=1, **zeros)
    return [scores, scaled, softmax(site, "fp32", **zeros), values]


def softmax(site: Attention, dtype: str, **zeros: float) -> Kernel:
    """Softmax over the score matrices."""
    rows = site.sequences * site.heads * site.q_len
    return rows_of("softmax", rows, site.kv_len, dtype, count=site.count, **zeros)


def cast_softmax(site: Attention, dtype: str, **zeros: float) -> list[Kernel]:
    """Softmax in fp32 with the casts around it, if values are 16 bit."""
    middle = softmax(site, "fp32", **zeros)
    if dtype == "fp32":
        return [middle]
    up = score_stream("typecast_to_fp32", site, dtype, **zeros)
    down = score_stream(f"typecast_to_{dtype}", site, "fp32", out_dtype=dtype, **zeros)
    return [up, middle, down]


def _plain_softmax(site: Attention, dtype: str, **zeros: float) -> list[Kernel]:
    return [softmax(site, dtype, **zeros)]


def score_stream(fn: str, site: Attention, dtype: str, **extra: Any) -> Kernel:
    """Elementwise kernel over the scores."""
    return stream(fn, site.scores, dtype, site.count, **extra)
