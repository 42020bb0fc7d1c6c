"""Shapes of fused attention."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
from jax import Array
from jaxtyping import Float, Int

from ...records import Record, as_float, as_index


class Attention(Record):
    """Shapes of fused attention kernels."""

    batch: Float[Array, "*k"] = eqx.field(converter=as_float)
    q_len: Float[Array, "*k"] = eqx.field(converter=as_float)
    kv_len: Float[Array, "*k"] = eqx.field(converter=as_float)
    num_heads: Float[Array, "*k"] = eqx.field(converter=as_float)
    num_kv_heads: Float[Array, "*k"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*k"] = eqx.field(converter=as_float)
    v_head_dim: Float[Array, "*k"] = eqx.field(converter=as_float)
    shared_kv: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 where values are the first `v_head_dim` of the keys and not stored apart."""
    window_size: Float[Array, "*k"] = eqx.field(converter=as_float)
    causal: Float[Array, "*k"] = eqx.field(converter=as_float)
    distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes touched between two uses of the KV cache (decode)."""
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    kv_cache_dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)
    unpacked: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 where the query heads of a KV head do not share tiles (FlashAttention 2)."""
    early: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 for the kernels of FlashAttention 1 and its time."""
    torch: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 for those of torch's `scaled_dot_product_attention`."""
    tile_m: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_n: Float[Array, "*k"] = eqx.field(converter=as_float)
    split_k: Float[Array, "*k"] = eqx.field(converter=as_float)


class Prefill(Attention):
    """Attention of many query positions (fused, causal or full)."""


class Decode(Attention):
    """Attention of one (or few) new positions over a KV cache, KV split over CTAs."""


def pair(columns: Mapping[str, Any]) -> Any:
    """Elements of a key and its value in the cache."""
    return columns["head_dim"] + columns["v_head_dim"] * (1 - columns["shared_kv"])
