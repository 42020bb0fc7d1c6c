"""Fused attention: prefill (context) and decode (generation) with split KV.

Equations and constants: `docs/physics.md`, Attention (tiles, blocks, masks,
splits), on the class-free timeline.
"""

from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from .. import smooth
from ..corrections import Corrections
from ..dtypes import BYTES, DTYPES
from ..hardware.spec import GpuSpec
from ..physics.demand import Demand
from ..physics.demand import demand as make_demand
from ..records import Record, as_float, as_index
from . import _rates
from .launch import Context, Launches, floats, take
from .ops import Field, Op, same_as
from .stream import stream_launches


def _fields(prefill: bool) -> tuple[Field, ...]:
    return (
        Field("batch", default=1.0),
        Field("q_len") if prefill else Field("q_len", default=1.0),
        Field("kv_len", default=same_as("q_len")) if prefill else Field("kv_len"),
        Field("num_heads"),
        Field("num_kv_heads", default=same_as("num_heads")),
        Field("head_dim"),
        Field("window_size", default=0.0, minimum=0.0),
        Field("causal", "bool", True),
        Field("dtype", "dtype"),
        Field("kv_cache_dtype", "dtype", same_as("dtype")),
    )


OPS: Final = (
    Op("context_attention", _fields(True)),
    Op("generation_attention", _fields(False)),
)

_WRITES: Final = "vllm/0.24"
_FP8: Final = DTYPES.index("fp8")
_KV_EDGE: Final = 3.8
"""Edge of the L2 misses of a KV cache that is read in order once a step."""
_HEADS: Final = (64.0, 128.0, 192.0, 256.0)
_PLANNED: Final = 992.0
"""Sequences up to which a kernel of its own plans the splits (31 of each of 32 warps)."""
_MOST_SPLITS: Final = 32.0

# (tile_m, tile_n) by MMA kind (mma.sync: FlashAttention 2; wgmma: FlashAttention 3 with
# paged KV; tcgen05: TensorRT-LLM), variant (bf16, bf16 local, fp8, fp8 local), head_dim
_FA2: Final = [[(128, 64)] * 4] * 4
_FA3: Final = [
    [(192, 128), (128, 128), (128, 96), (128, 80)],
    [(192, 96), (128, 128), (128, 64), (128, 64)],
    [(192, 160), (128, 160), (128, 96), (128, 128)],
    [(192, 160), (128, 96), (128, 128), (128, 64)],
]
_TRTLLM: Final = [[(128, 128)] * 4] * 4
_TILES: Final = np.array([_FA2, _FA3, _TRTLLM], float)


class _Attention(Record):
    """Shapes of fused attention kernels."""

    batch: Float[Array, "*k"] = eqx.field(converter=as_float)
    q_len: Float[Array, "*k"] = eqx.field(converter=as_float)
    kv_len: Float[Array, "*k"] = eqx.field(converter=as_float)
    num_heads: Float[Array, "*k"] = eqx.field(converter=as_float)
    num_kv_heads: Float[Array, "*k"] = eqx.field(converter=as_float)
    head_dim: Float[Array, "*k"] = eqx.field(converter=as_float)
    window_size: Float[Array, "*k"] = eqx.field(converter=as_float)
    causal: Float[Array, "*k"] = eqx.field(converter=as_float)
    distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes touched between two uses of the KV cache (decode)."""
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    kv_cache_dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_m: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_n: Float[Array, "*k"] = eqx.field(converter=as_float)
    split_k: Float[Array, "*k"] = eqx.field(converter=as_float)


class Prefill(_Attention):
    """Attention of many query positions (fused, causal or full)."""


class Decode(_Attention):
    """Attention of one (or few) new positions over a KV cache, KV split over CTAs."""


def lower(
    op: str, fields: Mapping[str, np.ndarray], context: Context
) -> list[Launches]:
    """One launch a row; queries of several positions go to the prefill kernel."""
    columns = {
        name: fields[name]
        for name in _Attention.__dataclass_fields__
        if name not in ("causal", "distance")
    }
    columns["causal"] = floats(fields["causal"])
    columns["distance"] = context.pass_bytes
    decode = (
        np.full(len(columns["q_len"]), False)
        if op == "context_attention"
        else columns["q_len"] == 1
    )
    size = np.asarray(BYTES)[columns["kv_cache_dtype"]]
    kv = columns["batch"] * columns["num_kv_heads"] * columns["kv_len"]
    touched = 2 * kv * columns["head_dim"] * size
    launches = []
    for shape, rows in ((Prefill, ~decode), (Decode, decode)):
        index = np.flatnonzero(rows)
        if index.size:
            launches.append(
                Launches(
                    shape, take(columns, index), touched[index], "matrix", rows=index
                )
            )
    # this framework's timed region also writes the new keys and values to the cache
    writes = np.flatnonzero(
        np.char.startswith(fields["framework"].astype(str), _WRITES)
    )
    if writes.size:
        new = take(columns, writes)
        elements = (
            2 * new["batch"] * new["q_len"] * new["num_kv_heads"] * new["head_dim"]
        )
        write = elements * np.asarray(BYTES)[new["kv_cache_dtype"]]
        launches.append(
            stream_launches(
                2 * elements, write, host="none", rows=writes, issue=50 * elements
            )
        )
    return launches


def _tiles(
    shape: _Attention, gpu: GpuSpec, local: Array, fp8: Array
) -> tuple[Array, Array]:
    """Tile of the family that serves the GPU, by head size, type and window."""
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    variant = (2 * fp8 + local).astype(jnp.int32)
    head = jnp.searchsorted(as_float(_HEADS[:-1]), lax.stop_gradient(shape.head_dim))
    table = as_float(_TILES)[kind, variant, head]
    return (
        jnp.where(shape.tile_m > 0, shape.tile_m, table[..., 0]),
        jnp.where(shape.tile_n > 0, shape.tile_n, table[..., 1]),
    )


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


def _common(shape: _Attention, gpu: GpuSpec, c: Corrections) -> dict[str, Any]:
    """Tile, types and bytes that both kernels share."""
    window = shape.window_size
    # a window at least as long as the cache runs the plain kernel
    local = (window > 0) & (window < shape.kv_len)
    fp8 = shape.kv_cache_dtype == _FP8
    # FlashAttention 2 and its like widen fp8 keys and values to the queries' type
    fp8_math = fp8 & (gpu.mma_kind > 0)
    compute = jnp.where(fp8_math, _FP8, shape.dtype)
    tile_m, tile_n = _tiles(shape, gpu, local, fp8_math)
    wgmma = jnp.round(gpu.mma_kind) == 1
    import os
    V = os.environ.get("V", "").split(",")
    if "A" in V: # bf16 64 local
        tile_n = jnp.where(wgmma & local & ~fp8_math & (shape.head_dim == 64) & (shape.q_len>1), 160.0, tile_n)
    if "A1" in V: # bf16 64 local
        tile_n = jnp.where(wgmma & local & ~fp8_math & (shape.head_dim == 64) & (shape.q_len>1), 128.0, tile_n)
    if "B" in V: # fp8 192 plain: 160
        tile_n = jnp.where(wgmma & ~local & fp8_math & (shape.head_dim == 192) & (shape.q_len>1), 160.0, tile_n)
    if "C" in V: # fp8 192 local: 96
        tile_n = jnp.where(wgmma & local & fp8_math & (shape.head_dim == 192) & (shape.q_len>1), 96.0, tile_n)
    if "D" in V: # bf16 192 local: 96
        tile_n = jnp.where(wgmma & local & ~fp8_math & (shape.head_dim == 192) & (shape.q_len>1), 96.0, tile_n)
    if "E" in V: # fp8 128 local: 160
        tile_n = jnp.where(wgmma & local & fp8_math & (shape.head_dim == 128) & (shape.q_len>1), 160.0, tile_n)
    both = (shape.q_len >= 1)
    def put(flag, cond, n):
        return jnp.where(wgmma & cond, float(n), tile_n) if flag in V else tile_n
    hd = shape.head_dim
    tile_n = put("K", fp8_math & (hd == 128) & ~local, 96)
    tile_n = put("L", fp8_math & (hd == 128) & ~local, 112)
    tile_n = put("K2", fp8_math & (hd == 128) & ~local, 128)
    tile_n = put("K3", fp8_math & (hd == 128) & ~local, 64)
    tile_n = put("N", fp8_math & (hd == 64) & ~local, 128)
    tile_n = put("N2", fp8_math & (hd == 64) & ~local, 96)
    tile_n = put("O", ~fp8_math & (hd == 256) & ~local, 64)
    tile_n = put("O2", fp8_math & (hd == 256) & ~local, 64)
    tile_n = put("O3", fp8_math & (hd == 256) & ~local, 96)
    tile_n = put("O4", fp8_math & (hd == 256) & local, 32)
    tile_n = put("O5", fp8_math & (hd == 256) & local, 128)
    narrow_window = (shape.q_len == 1) & local & ~fp8_math & (shape.head_dim <= _HEADS[0])
    serial = narrow_window | (fp8_math & (shape.head_dim > _HEADS[1]))
    if "F" in V: serial = jnp.where(shape.q_len > 1, fp8_math & (shape.head_dim > _HEADS[2]), serial)
    if "G" in V: serial = jnp.where(shape.q_len > 1, (fp8_math | local) & (shape.head_dim > _HEADS[2]), serial)
    if "M" in V: serial = serial | (fp8_math & (hd > 64))
    if "M2" in V: serial = serial | (fp8_math & (hd > 64) & ~local)
    if "H" in V: serial = serial | (local & ~fp8_math & (shape.head_dim <= _HEADS[0]))
    return {
        "window": jnp.where(local, window, 0.0),
        "fp8": fp8_math,
        # wgmma wants V along the keys: fp8 values are turned in shared memory
        "turned": jnp.where(fp8_math & wgmma, 1.0, 0.0),
        # softmax and matrix products of a warp group take turns
        "wgmma": wgmma,
        "serial": wgmma & serial,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "group": shape.num_heads / shape.num_kv_heads,
        "e": _rates.bytes_of(shape.kv_cache_dtype),
        "peak": _rates.tensor_peak(gpu, compute),
        "energy": _rates.tensor_energy(c, compute),
        "activity": _rates.activity(c, shape.zero_share),
    }


def _prefill(shape: _Attention, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate; shape (kernels, 1)."""
    s = _common(shape, gpu, c)
    d, e, tile_m, tile_n = shape.head_dim, s["e"], s["tile_m"], s["tile_n"]
    heads = shape.batch * shape.num_kv_heads
    tiles, blocks, longest, masked = kv_blocks(
        shape.q_len, shape.kv_len, s["group"], s["window"], shape.causal, tile_m, tile_n
    )
    ctas, blocks_all = heads * tiles, heads * blocks
    elements = tile_m * tile_n
    transposed = s["turned"] * tile_n * d / c.transpose_rate  # cycles
    efficiency = c.prefill_efficiency * jnp.where(s["fp8"], c.fp8_efficiency, 1.0)
    block_cycles = (
        4 * elements * d / (s["peak"] * efficiency)
        + elements / gpu.sfu_ops_per_cycle * c.prefill_exp
        + 2 * tile_n * d * e / c.prefill_feed
        + transposed
    )
    rows = jnp.minimum(tile_m, shape.q_len * s["group"])
    import os
    V = os.environ.get("V", "").split(",")
    fp8 = s["fp8"]
    fast = (s["group"] == 4) | (s["group"] == 8) | (s["group"] == 16)
    own = c.prefill_own * (jnp.where(fp8, c.prefill_own_fp8, 1.0) if "8" in V else 1)
    own += rows * d * (e + 2) / c.prefill_query * (jnp.where(fast, c.prefill_query_fast, 1.0) if "q" in V else 1)
    own += c.prefill_fill * block_cycles * (jnp.where(fp8, c.prefill_fill_fp8, 1.0) if "f" in V else 1)
    exp = c.prefill_exp * (jnp.where(fp8, c.prefill_exp_fp8, 1.0) if "e" in V else 1)
    if "m" in V:
        own += elements / gpu.sfu_ops_per_cycle * c.prefill_mask * masked / tiles
    q_bytes = shape.batch * shape.num_heads * shape.q_len * d
    seen = jnp.minimum(shape.kv_len, shape.q_len + s["window"])
    seen = jnp.where(s["window"] > 0, seen, shape.kv_len)
    kv_once = 2 * heads * seen * d * e
    loads = blocks_all * 2 * tile_n * d * e
    near = q_bytes * (e + 2) + kv_once
    miss = smooth.miss(near, c.l2_producer_share * gpu.l2_capacity, c.l2_sharpness)
    sfu = elements * (blocks_all + ("m" not in V) * heads * masked * c.prefill_mask / c.prefill_exp)
    st = "s" in V
    result = make_demand(
        jnp.shape(ctas),
        tensor=4 * elements * d * blocks_all,
        sfu=sfu,
        smem=loads + transposed * blocks_all * gpu.smem_bytes_per_cycle,
        l2=loads + q_bytes * (e+2*st),
        dram=(q_bytes * (e + 2*st) + kv_once) * miss,
        store_l2=q_bytes * 2 * (1-st),
        store_dram=q_bytes * 2 * miss*(1-st),
        tensor_peak=s["peak"],
        tensor_efficiency=efficiency,
        sfu_efficiency=1 / exp,
        l2_sharing=1e3 if "l" in V else 1.0,
        feed=c.prefill_feed,
        ctas=ctas,
        longest=longest * tiles / blocks,
        quantization=c.prefill_quantization,
        tail=c.prefill_tail,
        own_cycles=own,
        fixed_cycles=c.prefill_cycles,
        sharpness=jnp.where(s["serial"], c.prefill_serial, c.prefill_sharpness) if "p" in V else c.prefill_sharpness,
        sharpness_memory=c.sharpness,
        store_exposed=0.0,
        tensor_energy=s["energy"],
        activity=s["activity"],
    )
    return jax.tree.map(lambda x: x[..., None], result)


def _splits(tiles: Array, blocks: Array, gpu: GpuSpec) -> Array:
    """CTAs that share the KV cache of one tile: FlashAttention 3 gives every SM the
    same number of blocks of the whole cache (a window is not looked at) with a margin
    of 10 %; vLLM allows 32 under CUDA graphs."""
    per_sm = smooth.ceil(1.1 * tiles * blocks / gpu.num_sms)
    return jnp.minimum(smooth.ceil(blocks / per_sm), _MOST_SPLITS)


def _decode(shape: Decode, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate: the library's number of KV splits (see `_splits`)."""
    s = {k: jnp.asarray(v)[..., None] for k, v in _common(shape, gpu, c).items()}
    d, kv_len = shape.head_dim[..., None], shape.kv_len[..., None]
    batch, given = shape.batch[..., None], shape.split_k[..., None]
    e, tile_n, fp8 = s["e"], s["tile_n"], s["fp8"]
    local = s["window"] > 0
    heads = batch * shape.num_kv_heads[..., None]
    tiles = heads * smooth.ceil(s["group"] / s["tile_m"])
    whole = smooth.ceil(kv_len / tile_n)
    before = jnp.where(local, smooth.floor((kv_len - s["window"]) / tile_n), 0.0)
    blocks = whole - before
    split = jnp.where(given > 0, given, _splits(tiles, whole, gpu))
    split = jnp.minimum(split, blocks)
    ctas = tiles * split
    per_cta = smooth.ceil(blocks / split)
    # all rows of a tile are computed, the group's and those in vain
    elements = s["tile_m"] * tile_n * ctas * per_cta
    transposed = s["turned"] * tile_n * d / c.transpose_rate
    keys = jnp.where(local, s["window"], kv_len)
    q_bytes = (shape.batch * shape.num_heads)[..., None] * d
    kv_bytes = 2 * heads * d * keys * e + 4 * batch * jnp.ceil(kv_len / 64)
    near = kv_bytes + q_bytes * (e + 2)
    distance = jnp.maximum(near, shape.distance[..., None])
    miss = smooth.miss(distance, c.l2_share * gpu.l2_capacity, _KV_EDGE)
    combine = jnp.where(split > 1, 8 * q_bytes * split, 0.0)
    own = c.decode_own * jnp.where(fp8, c.decode_own_fp8, 1.0) + c.decode_own_head * d
    own += jnp.where(local, c.decode_own_local, 0.0)
    # one warp plans 31 sequences at a time, 32 warps at most
    planned = batch * jnp.where(batch <= _PLANNED, 1.0, 0.35)
    return make_demand(
        jnp.shape(ctas),
        tensor=4 * elements * d,
        sfu=elements,
        smem=kv_bytes + transposed * ctas * per_cta * gpu.smem_bytes_per_cycle,
        l2=kv_bytes + q_bytes * e,
        dram=(kv_bytes + q_bytes * e) * miss,
        store_l2=q_bytes * 2 + combine,
        store_dram=q_bytes * 2 * miss,
        tensor_peak=s["peak"],
        tensor_efficiency=c.decode_efficiency,
        sfu_efficiency=1 / c.decode_exp,
        feed=c.decode_feed,
        ctas=ctas,
        quantization=c.decode_quantization,
        own_cycles=own,
        fixed_cycles=c.decode_cycles + jnp.where(local, c.decode_cycles_local, 0.0),
        fixed_seconds=c.decode_schedule * planned,
        launches=jnp.where(split > 1, 2.0, 1.0),
        sharpness=jnp.where(s["serial"], c.decode_serial, c.decode_sharpness),
        sharpness_memory=c.sharpness,
        store_exposed=1.0,
        tensor_energy=s["energy"] * _rates.padded_energy(s["group"] / s["tile_m"]),
        activity=s["activity"],
    )


def demand(shape: _Attention, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work of the kernel that the shape runs; shape (kernels, candidates)."""
    if isinstance(shape, Decode):
        return _decode(shape, gpu, c)
    return _prefill(shape, gpu, c)
