"""Attention of one (or few) new positions over a KV cache that CTAs share.

q_len 1; longer queries run the prefill kernel:

    tiles  = heads ceil(G/tile_m)
    blocks = ceil(L/tile_n) - (if local) floor((L - window)/tile_n)
    ctas   = tiles s                     blocks per CTA = ceil(blocks/s)
    tensor = 2 tile_m tile_n (d + d_v) FLOP at decode_efficiency; sfu and transposition
             as in prefill, with decode_exp
    bytes  = heads ceil(G/tile_m) kv keys e + 4 batch ceil(L/64)
             L: KV length, keys = min(L, window); page table
    l2     = bytes + Q at decode_flow
    dram   = (B + Q) miss(max(B + Q + O, pass), l2_share, 3.8)
             B: bytes with each KV head once
    own    = decode_own (fp8: x decode_own_fp8) + decode_own_head (d + d_v)/2
             (+ decode_own_local if local)
    launch + decode_cycles (+ decode_cycles_local if local)

All rows of a tile are issued; those beyond G cost 30 % of the energy. 3.8 is the edge
of the L2 misses of a cache that is read in order once a step.
"""

from typing import Final

import jax.numpy as jnp

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from .. import _rates
from ._kernel import kernel, planned
from ._shape import Attention
from ._tiles import splits

_KV_EDGE: Final = 3.8
"""Edge of the L2 misses of a KV cache that is read in order once a step."""
_PAGE: Final = 64.0
_PAGE_ENTRY: Final = 4.0
"""Positions of a page of the cache (vLLM's and TensorRT-LLM's, of the campaigns), and
bytes of its entry in the table (int32)."""


def decode(s: Attention, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate: the KV splits of the library (`_tiles.splits`)."""
    a = kernel(s, gpu)
    local = a.window > 0
    row_tiles = smooth.ceil(a.group / a.tile_m)
    tiles = a.heads * row_tiles
    before = jnp.where(local, smooth.floor((s.kv_len - a.window) / a.tile_n), 0.0)
    blocks = smooth.ceil(s.kv_len / a.tile_n) - before
    split = splits(tiles, s.kv_len / a.tile_n, gpu)
    split = jnp.where(a.alone, 1.0, split)  # FlashAttention 2: packed or not split
    split = jnp.minimum(_rates.or_default(s.split_k, split), blocks)
    ctas = tiles * split
    visited = ctas * smooth.ceil(blocks / split)
    # all rows of a tile are computed, the group's and those in vain
    elements = a.elements * visited
    positions = s.batch * s.num_heads
    q_bytes, o_bytes = positions * a.d * a.e, positions * a.d_v * 2
    of_head = a.kv * jnp.where(local, a.window, s.kv_len) * a.e
    once = s.batch * s.num_kv_heads * of_head
    pages = _PAGE_ENTRY * s.batch * jnp.ceil(s.kv_len / _PAGE)
    readers = jnp.where(a.group > a.tile_m, row_tiles, 1.0)
    read = a.heads * readers * of_head + pages
    distance = jnp.maximum(once + pages + q_bytes + o_bytes, s.distance)
    miss = smooth.miss(distance, c.l2_share * gpu.l2_capacity, _KV_EDGE)
    own_cycles = c.decode_own * jnp.where(a.fp8, c.decode_own_fp8, 1.0)
    own_cycles += c.decode_own_head * (a.d + a.d_v) / 2
    return make_demand(
        tensor=2 * elements * (a.d + a.d_v),
        sfu=elements,
        smem=read + a.transposed(c) * visited * gpu.smem_bytes_per_cycle,
        l2=read + q_bytes,
        dram=(once + pages + q_bytes) * miss,
        store_l2=o_bytes + jnp.where(split > 1, 4 * o_bytes * split, 0.0),
        store_dram=o_bytes * miss,
        tensor_peak=_rates.tensor_peak(gpu, a.compute),
        tensor_efficiency=c.decode_efficiency,
        sfu_efficiency=1 / c.decode_exp,
        feed=c.decode_flow,
        ctas=ctas,
        quantization=c.decode_quantization,
        own_cycles=own_cycles + jnp.where(local, c.decode_own_local, 0.0),
        fixed_cycles=c.decode_cycles + jnp.where(local, c.decode_cycles_local, 0.0),
        fixed_seconds=c.decode_schedule * planned(s.batch),
        launches=jnp.where(split > 1, 2.0, 1.0),
        sharpness=jnp.where(a.serial, c.decode_serial, c.decode_sharpness),
        sharpness_memory=c.sharpness,
        store_exposed=1.0,
        tensor_energy=_rates.tensor_energy(c, a.compute)
        * _rates.padded_energy(a.group / a.tile_m),
        activity=_rates.activity(c, s.zero_share),
    )
