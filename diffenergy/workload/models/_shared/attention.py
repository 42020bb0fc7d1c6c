"""Attention calls as kernels: one fused kernel, or products around a softmax."""

from typing import Any

from ..._listing import Kernel, Number
from ..._unlisted import Attention, stream
from .base import Precision, product, rows_of


def fused(
    site: Attention, precision: Precision, causal: bool = True, window: int = 0
) -> Kernel:
    """FlashAttention-like kernel; one query token a sequence is a decode step."""
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


def products(
    site: Attention, precision: Precision, **zeros: float
) -> tuple[Kernel, Kernel]:
    """Queries times keys, and probabilities times values (`zeros`: of the former)."""
    dtype, batch = precision.products, site.sequences * site.heads
    q, kv, d, count = site.q_len, site.kv_len, site.head_dim, site.count
    return (
        product(dtype, batch, q, kv, d, count=count),
        product(dtype, batch, q, d, kv, count=count, **zeros),
    )


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


def score_stream(fn: str, site: Attention, dtype: str, **extra: Any) -> Kernel:
    """Elementwise kernel over the scores."""
    elements: Number = site.scores
    return stream(fn, elements, dtype, site.count, **extra)
