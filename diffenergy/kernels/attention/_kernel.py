"""What prefill and decode kernels share: tile, group, types, and when they take turns.

**Serial kernels.** In some wgmma kernels softmax and products of a warp group take
turns. They overlap with `prefill_serial` or `decode_serial` in place of
`prefill_sharpness` or `decode_sharpness`: fp8 with d > 192 (single queries: d > 128),
and single bf16 queries with a window and d <= 64.

**Scheduling.** A kernel plans the splits of each sequence: `prefill_schedule` or
`decode_schedule` x batch seconds; above 992 sequences (31 by each of 32 warps) it does
not, and a sequence costs 0.35 of that.
"""

from typing import Final, NamedTuple

import jax.numpy as jnp
from jax import Array

from ...corrections import Corrections
from ...dtypes import DTYPES
from ...hardware import MMA_KINDS, GpuSpec
from .. import _rates
from ._shape import Attention, pair
from ._tiles import HEADS, PAGED, latent_tiles, tiles_of

FP8: Final = DTYPES.index("fp8")
_PLANNED: Final = 992.0
"""Sequences up to which FlashAttention 3 plans splits (31 by each of 32 warps)."""
_UNPLANNED: Final = 0.35
"""Cost of a sequence beyond them / below (8.2 / 23 ns)."""
_FEW_ROWS: Final = 64.0
_FEW_KEYS: Final = 96.0
"""Rows up to which one warp group of an fp8 kernel works alone, and its keys (64x96:
measured times, `_tiles`)."""

_ARRAY: Final = 128.0
"""Rows of a systolic array, which fewer queries fill up with padding."""


class Kernel(NamedTuple):
    """The kernel that serves a shape; the letters are those of the equations."""

    window: Array
    """Positions that a query sees; 0: all."""
    fp8: Array
    """Whether products run in fp8."""
    turned: Array
    """1 where values are turned in shared memory."""
    wgmma: Array
    serial: Array
    tile_m: Array
    tile_n: Array
    alone: Array
    """Whether the query heads of a KV head do not share tiles."""
    group: Array
    """G, query heads that share a read of K and V."""
    heads: Array
    e: Array
    """Bytes of an element of the cache."""
    d: Array
    d_v: Array
    kv: Array
    """Elements of a token and KV head in the cache."""
    compute: Array
    """Code of the type of the products."""

    @property
    def elements(self) -> Array:
        """Scores of a tile."""
        return self.tile_m * self.tile_n

    def transposed(self, c: Corrections) -> Array:
        """Cycles of shared memory that turn the values of a KV block."""
        return self.turned * self.tile_n * self.d_v / c.transpose_rate


def kernel(s: Attention, gpu: GpuSpec) -> Kernel:
    """Tile, types and sizes that both kernels share."""
    # a window at least as long as the cache runs the plain kernel
    local = (s.window_size > 0) & (s.window_size < s.kv_len)
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    wgmma = kind == MMA_KINDS.index("wgmma")
    # FlashAttention 2 and its like widen fp8 keys and values to the queries' type
    fp8 = (s.kv_cache_dtype == FP8) & gpu.copies_in_bulk
    alone, group = _group(s)
    tile_m, tile_n = _tile(s, gpu, kind, local, fp8, group)
    # softmax and matrix products of a warp group take turns
    single = s.q_len == 1
    serial = fp8 & (s.head_dim > jnp.where(single, HEADS[1], HEADS[2]))
    serial |= single & local & ~fp8 & (s.head_dim <= HEADS[0])
    return Kernel(
        window=jnp.where(local, s.window_size, 0.0),
        fp8=fp8,
        # wgmma wants V along the keys: fp8 values are turned in shared memory
        turned=jnp.where(fp8 & wgmma, 1.0, 0.0),
        wgmma=wgmma,
        serial=wgmma & serial,
        tile_m=tile_m,
        tile_n=tile_n,
        alone=alone,
        group=group,
        heads=s.batch * s.num_heads / group,
        e=_rates.bytes_of(s.kv_cache_dtype),
        d=s.head_dim,
        d_v=s.v_head_dim,
        kv=pair(vars(s)),
        compute=_rates.arithmetic(gpu, jnp.where(fp8, FP8, s.dtype)),
    )


def _group(s: Attention) -> tuple[Array, Array]:
    """(whether query heads are alone, G). FlashAttention 2 packs them for single
    queries alone, and with no window given."""
    group = s.num_heads / s.num_kv_heads
    alone = (s.window_size > 0) | (s.q_len > 1) | (group <= 1)
    alone &= (s.unpacked > 0) & ~(s.shared_kv > 0)
    return alone, jnp.where(alone, 1.0, group)


def _tile(
    s: Attention, gpu: GpuSpec, kind: Array, local: Array, fp8: Array, group: Array
) -> tuple[Array, Array]:
    """(tile_m, tile_n): as given, else the library's."""
    paged = jnp.where((s.unpacked > 0) & ~gpu.is_systolic, PAGED, kind)
    tile_m, tile_n = tiles_of(s.head_dim, paged, local, fp8)
    # one warp group alone where its rows suffice
    few = (kind == MMA_KINDS.index("wgmma")) & fp8 & (s.head_dim == HEADS[1])
    few = few & (s.q_len * group <= _FEW_ROWS)
    tile_m = jnp.where(few, _FEW_ROWS, tile_m)
    tile_n = jnp.where(few, _FEW_KEYS, tile_n)
    short = gpu.is_systolic & (s.q_len * group <= _ARRAY)
    tile_m = jnp.where(short, _ARRAY, tile_m)
    e = _rates.bytes_of(s.kv_cache_dtype)
    rows, keys = latent_tiles(s.head_dim, e, kind, gpu)
    latent = s.shared_kv > 0
    tile_m, tile_n = jnp.where(latent, rows, tile_m), jnp.where(latent, keys, tile_n)
    return _rates.or_default(s.tile_m, tile_m), _rates.or_default(s.tile_n, tile_n)


def planned(batch: Array) -> Array:
    """Sequences for which a kernel plans the splits; cheaper where it does not."""
    return batch * jnp.where(batch <= _PLANNED, 1.0, _UNPLANNED)
