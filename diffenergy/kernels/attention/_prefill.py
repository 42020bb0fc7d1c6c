"""Attention of many query positions.

tiles = ceil(q G/tile_m) per KV head and sequence. Tile i visits the KV blocks from the
window's start to its last position. Causal block counts are exact: over all tiles (a
floor sum by Euclid's algorithm), the largest, and those that the mask cuts; with a
window the last two are estimates. Per block of tile_m x tile_n elements:

    tensor = 2 tile_m tile_n (d + d_v) FLOP  at prefill_efficiency (x fp8_efficiency)
    sfu    = tile_m tile_n                   x prefill_exp
    loads  = tile_n kv e                     at prefill_feed; the same through smem
    transposition of fp8 V (wgmma only) = tile_n d_v/transpose_rate cycles of smem
    own    = prefill_own
             + rows (d e + 2 d_v)/prefill_query (x prefill_query_fast for G = 4, 8, 16)
             + prefill_fill x (sum of the four)
             + prefill_mask x sfu cycles of the masked blocks of a CTA
    ctas   = heads tiles s         longest = ceil(largest count/s)/(mean count of a CTA)
    launch + prefill_cycles

rows = min(tile_m, q G). The first block overlaps with nothing (`prefill_fill`). DRAM:
Q, K, V once x miss(Q + K + V + O) at `l2_producer_share` (they were just made); with a
window at most q + window positions of K and V.
"""

from typing import Final, NamedTuple

import jax.numpy as jnp
from jax import Array

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from .. import _rates
from .._residency import missed_when_new
from ._kernel import Kernel, kernel, planned
from ._shape import Attention
from ._tiles import kv_blocks, splits

_FAST_GROUPS: Final = (4, 8, 16)
"""Query heads of a KV head whose rows load faster (`prefill_query_fast`): so measured
times say."""


class _Blocks(NamedTuple):
    """KV blocks of the row tiles of one KV head, and CTAs."""

    tiles: Array
    visited: Array
    """Blocks of all tiles."""
    longest: Array
    """Most blocks of a tile."""
    masked: Array
    """Blocks that the mask cuts."""
    split: Array
    ctas: Array


def prefill(s: Attention, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate; shape (kernels, 1)."""
    a = kernel(s, gpu)
    b = _blocks(s, a, gpu)
    blocks = a.heads * b.visited
    efficiency = c.prefill_efficiency * jnp.where(a.fp8, c.fp8_efficiency, 1.0)
    peak = _rates.tensor_peak(gpu, a.compute)
    loads = blocks * a.tile_n * a.kv * a.e
    positions = s.batch * s.num_heads * s.q_len
    q_bytes, o_bytes = positions * a.d * a.e, positions * a.d_v * 2
    kv_bytes = s.batch * s.num_kv_heads * _visible_keys(s, a) * a.kv * a.e
    near = q_bytes + o_bytes + kv_bytes
    miss = missed_when_new(near, gpu, c)
    combine = jnp.where(b.split > 1, 4 * o_bytes * b.split, 0.0)
    turning = a.transposed(c) * blocks * gpu.smem_bytes_per_cycle
    return make_demand(
        tensor=2 * a.elements * (a.d + a.d_v) * blocks,
        sfu=a.elements * blocks,
        smem=loads + turning,
        l2=loads + q_bytes,
        dram=(q_bytes + kv_bytes) * miss,
        store_l2=o_bytes + combine,
        store_dram=o_bytes * miss,
        tensor_peak=peak,
        tensor_efficiency=efficiency,
        sfu_efficiency=1 / c.prefill_exp,
        feed=c.prefill_feed,
        ctas=b.ctas,
        longest=smooth.ceil(b.longest / b.split) * b.ctas / blocks,
        quantization=c.prefill_quantization,
        tail=c.prefill_tail,
        own_cycles=_own_cycles(s, a, b, peak * efficiency, gpu, c),
        fixed_cycles=c.prefill_cycles,
        fixed_seconds=c.prefill_schedule * planned(s.batch),
        launches=jnp.where(b.split > 1, 2.0, 1.0),
        sharpness=jnp.where(a.serial, c.prefill_serial, c.prefill_sharpness),
        sharpness_memory=c.sharpness,
        store_exposed=0.0,
        training=_training(s, c),
        tensor_energy=_rates.tensor_energy(c, a.compute),
        activity=_rates.activity(c, s.zero_share),
    )


def _blocks(s: Attention, a: Kernel, gpu: GpuSpec) -> _Blocks:
    """KV blocks, and the splits among which they are dealt."""
    tiles, visited, longest, masked = kv_blocks(
        s.q_len, s.kv_len, a.group, a.window, s.causal, a.tile_m, a.tile_n
    )
    split = splits(a.heads * tiles, s.kv_len / a.tile_n, gpu)
    split = _rates.or_default(s.split_k, jnp.where(a.wgmma, split, 1.0))
    split = jnp.minimum(split, longest)
    ctas = a.heads * tiles * split
    return _Blocks(tiles, visited, longest, masked, split, ctas)


def _own_cycles(
    s: Attention, a: Kernel, b: _Blocks, rate: Array, gpu: GpuSpec, c: Corrections
) -> Array:
    """Cycles of a CTA that nothing hides: queries, the first block, masks. `rate`:
    FLOP/cycle."""
    softmax = a.elements / gpu.sfu_ops_per_cycle
    block = (
        2 * a.elements * (a.d + a.d_v) / rate
        + softmax * c.prefill_exp
        + a.tile_n * a.kv * a.e / c.prefill_feed
        + a.transposed(c)
    )
    rows = jnp.minimum(a.tile_m, s.q_len * a.group)
    query = rows * (a.d * a.e + a.d_v * 2) / c.prefill_query
    fast = jnp.isin(a.group, jnp.asarray(_FAST_GROUPS, a.group.dtype))
    query *= jnp.where(fast, c.prefill_query_fast, 1.0)
    masks = softmax * c.prefill_mask * b.masked / (b.tiles * b.split)
    return c.prefill_own + query + c.prefill_fill * block + masks


def _visible_keys(s: Attention, a: Kernel) -> Array:
    """Positions of K and V that some query sees."""
    local = jnp.minimum(s.kv_len, s.q_len + a.window)
    return jnp.where(a.window > 0, local, s.kv_len)


def _training(s: Attention, c: Corrections) -> Array:
    """Time in training programs / here, by the age of their kernels."""
    early = jnp.where(s.early > 0, c.training_attention_early, 1.0)
    torch = jnp.where(s.torch > 0, c.training_attention_torch, 1.0)
    return c.training_attention * early * torch
