"""Tiles, KV blocks and splits of fused attention, from shapes alone.

**Tiles** (tile_m x tile_n) follow head size, type and window (`local`); unlisted head
sizes take the next larger one:

| kernels | d = 64 | 128 | 192 | 256 |
|---|---|---|---|---|
| FlashAttention 2, packed (mma.sync) | 128x64 | 128x64 | 128x64 | 128x64 |
| FlashAttention 2, paged KV | 64x256 | 64x128 | 64x64 | 64x64 |
| FlashAttention 3, paged KV (wgmma), bf16 | 192x128 | 128x128 | 128x96 | 128x80 |
| .. local | 192x96 | 128x128 | 128x64 | 128x64 |
| .. fp8 | 192x128 | 128x160 | 128x96 | 128x128 |
| .. fp8 local | 192x160 | 128x96 | 128x128 | 128x64 |
| TensorRT-LLM (tcgen05) | 128x128 | 128x128 | 128x128 | 128x128 |
| splash attention (systolic), recalled | 512x512 | 512x512 | 512x512 | 512x512 |

A latent cache (`shared_kv`): 64 rows by as many keys, 64 or 32, as two stages hold
beside the queries in shared memory, else 16 (FlashInfer; 64 on Hopper, 32 on A100, 16
on Ada at d = 576), and 128x128 on tcgen05, where a pair of CTAs shares them.

From the libraries' public sources; where measured times disagree, the tile that fits
them. One more case: fp8 of d = 128 on wgmma with at most 64 rows (q G) runs 64x96, one
warp group alone.

**Splits.** FlashAttention 3's rule: every SM gets the same number of KV blocks, with a
margin of 10 %. It looks at neither window nor mask; 32 is the cap under CUDA graphs:

    blocks = ceil(L/tile_n)        per_sm = ceil(1.1 tiles blocks/N)
    s      = min(ceil(max(blocks/per_sm, 1)), 32)

s is at most the blocks that a tile visits. Prefill splits on wgmma only, decode
everywhere but in unpacked FlashAttention 2 (G = 1). s > 1: a second launch, and
8 batch num_heads q d_v s bytes of partial results through L2.
"""

from typing import Final

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ... import smooth
from ...hardware import MMA_KINDS, GpuSpec
from ...records import as_float

HEADS: Final = (64.0, 128.0, 192.0, 256.0)
PAGED: Final = len(MMA_KINDS)
_MOST_SPLITS: Final = 32.0
"""Splits that vLLM allows under CUDA graphs."""
_MARGIN: Final = 1.1
"""Blocks of an SM, at most / mean (FlashAttention 3, `flash_prepare_scheduler.cu`)."""

# (tile_m, tile_n) by kernels (MMA kind, then `PAGED`), variant (bf16, bf16 local, fp8,
# fp8 local) and head_dim: the table above
_FA2: Final = [[(128, 64)] * 4] * 4
_FA3: Final = [
    [(192, 128), (128, 128), (128, 96), (128, 80)],
    [(192, 96), (128, 128), (128, 64), (128, 64)],
    [(192, 128), (128, 160), (128, 96), (128, 128)],
    [(192, 160), (128, 96), (128, 128), (128, 64)],
]
_TRTLLM: Final = [[(128, 128)] * 4] * 4
_SPLASH: Final = [[(512, 512)] * 4] * 4
_FA2_PAGED: Final = [[(64, 256), (64, 128), (64, 64), (64, 64)]] * 4
_TILES: Final = np.array([_FA2, _FA3, _TRTLLM, _SPLASH, _FA2_PAGED], float)


def tiles_of(
    head_dim: Array, kind: Array, local: Array, fp8: Array
) -> tuple[Array, Array]:
    """(tile_m, tile_n) of the kernel that serves a head size, type and window.

    `kind`: the GPU's MMA kind, or `PAGED` for FlashAttention 2 with a paged cache.
    """
    variant = (2 * fp8 + local).astype(jnp.int32)
    head = jnp.searchsorted(as_float(HEADS[:-1]), lax.stop_gradient(head_dim))
    table = as_float(_TILES)[kind, variant, head]
    return table[..., 0], table[..., 1]


_LATENT: Final = 64.0
"""Query rows, and most keys, of a tile of a latent cache; 128 on tcgen05, where a pair
of CTAs shares them (FlashMLA, TensorRT-LLM)."""


def latent_tiles(
    head_dim: Array, e: Array, kind: Array, gpu: GpuSpec
) -> tuple[Array, Array]:
    """(tile_m, tile_n) of a kernel whose values are part of its keys (MLA).

    Beside 64 query rows of 16 bits as many keys, 64 or 32, as two stages of shared
    memory hold, else 16 (FlashInfer `mla.cuh`: 221,696 and 147,968 B at head_dim 576).
    """
    size = lax.stop_gradient(head_dim)
    room = lax.stop_gradient(gpu.smem_per_sm) - _LATENT * size * 2
    keys = room / (2 * size * lax.stop_gradient(e))
    tile_n = jnp.where(keys >= 64, 64.0, jnp.where(keys >= 32, 32.0, 16.0))
    pair = kind == MMA_KINDS.index("tcgen05")
    return jnp.where(pair, 128.0, _LATENT), jnp.where(pair, 128.0, tile_n)


def kv_blocks(
    q_len: Array,
    kv_len: Array,
    group: Array,
    window: Array,
    causal: Array,
    tile_m: Array,
    tile_n: Array,
) -> tuple[Array, Array, Array, Array]:
    """(tiles, blocks, longest, masked) of one KV head's query rows.

    Row tile m holds `tile_m` (position, group member) pairs and visits the KV blocks
    between the window's start and its last position. `blocks` and `masked` are sums
    over tiles, `longest` the largest block count. The block count is exact (a floor
    sum) with the closed form's gradient; with a window the other two are estimates.
    """
    tiles = smooth.ceil(q_len * group / tile_m)
    whole = lax.stop_gradient
    m, n, g, q = whole(tile_m), whole(tile_n), whole(group), whole(q_len)
    count = whole(jnp.ceil(q * g / m))
    shift = jnp.maximum(whole(kv_len) - q, 0.0)  # positions already in the cache
    span, last = g * n, jnp.floor((q - 1 + shift) / n)
    # the first block inside the window: zero until tile `first`
    first = jnp.clip(jnp.ceil((window - 1 - shift) * g / m), 0.0, count)
    inside = jnp.maximum((shift - window + 1) * g + first * m, 0.0)
    ends, starts, diagonals = smooth.floor_sum(
        jnp.stack([count - 1, count - first, count]),
        m,
        jnp.stack([m - 1 + shift * g, inside, (1 + shift) * g]),
        span,
    )
    ends = ends + last
    starts = jnp.where(window > 0, starts, 0.0)
    exact = ends - starts + count
    diagonal = ends - diagonals + count
    masked = jnp.where(window > 0, jnp.minimum(exact, 2 * diagonal), diagonal)
    # continuous: mean visible keys plus the rounding of both block ends
    keys = jnp.where(
        window > 0, jnp.minimum(window, kv_len), kv_len - (q_len - tile_m / group) / 2
    )
    relaxed = tiles * (keys / tile_n + jnp.where(window > 0, 1.0, 0.5))
    longest = jnp.where(
        window > 0,
        jnp.minimum(jnp.ceil(kv_len / tile_n), jnp.floor(window / tile_n) + 1.0),
        jnp.ceil(kv_len / tile_n),
    )
    full = tiles * smooth.ceil(kv_len / tile_n)
    blocks = jnp.where(causal > 0, smooth.with_slope_of(exact, relaxed), full)
    masked = jnp.where(
        causal > 0, smooth.with_slope_of(masked, tiles + 0 * masked), 0.0
    )
    return tiles, blocks, jnp.maximum(longest, blocks / tiles), masked


def splits(tiles: Array, blocks: Array, gpu: GpuSpec) -> Array:
    """CTAs that share the KV cache of one row tile of `blocks` KV blocks.

    FlashAttention 3 gives every SM the same number of blocks of the whole cache, with a
    margin of 10 %; it looks at neither window nor mask.
    """
    blocks = smooth.ceil(blocks)
    per_sm = smooth.ceil(_MARGIN * tiles * blocks / gpu.num_sms)
    share = smooth.ceil(smooth.at_least_one(blocks / per_sm))
    return jnp.minimum(share, _MOST_SPLITS)
