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
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...dtypes import BYTES, DTYPES
from ...hardware._fields import MMA_KINDS
from ...hardware._spec import GpuSpec
from ...physics._demand import Demand, make_demand
from ...records import Record, as_float, as_index
from .._shared import rates as _rates
from .._shared.launch import Context, Fields, Launches, floats, take
from .._shared.ops import Field, Op, same_as
from ..stream import stream_launches
from ._tiles import (
    HEADS,
    PAGED,
    kv_blocks,
    latent_tiles,
    splits,
    tiles_of,
)


def _fields(prefill: bool) -> tuple[Field, ...]:
    return (
        Field("batch", default=1.0),
        Field("q_len") if prefill else Field("q_len", default=1.0),
        Field("kv_len", default=same_as("q_len")) if prefill else Field("kv_len"),
        Field("num_heads"),
        Field("num_kv_heads", default=same_as("num_heads"), divides=("num_heads",)),
        Field("head_dim"),
        Field("v_head_dim", default=same_as("head_dim")),
        Field("window_size", default=0.0, minimum=0.0),
        Field("causal", "bool", True),
        Field("shared_kv", "bool", False),
        Field("sinks", "bool", False),
        Field("dtype", "dtype"),
        Field("kv_cache_dtype", "dtype", same_as("dtype")),
    )


NAMED: Final = ("batch", "q_len", "kv_len", "num_heads", "head_dim")
OPS: Final = (
    Op("context_attention", _fields(True), NAMED, products=True),
    Op("generation_attention", _fields(False), NAMED, products=True),
)

_WRITES: Final = "vllm/0.24"
_WRITE: Final = 55.0
"""Lane instructions to write one element of K or V to the cache (1.8 times at fp8)."""
_WRITE_TOKEN: Final = 5000.0
"""The same for one token, whatever its size: a CTA."""
_ROUND: Final = 34.0
"""Lane instructions to round one element of Q to fp8."""
_EARLY: Final = "fa1"
_TORCH: Final = "sdpa"
"""Parts of `family` of older kernels of training programs."""
_UNPACKED: Final = "fa2"
"""Part of `family` of the kernels whose tiles hold rows of one query head."""
_WIDENED: Final = ("fiprefill", "fidecode", "triton", "fa2")
"""Kernels that widen fp8 keys and values instead (parts of `family`)."""
_FP8: Final = DTYPES.index("fp8")
_KV_EDGE: Final = 3.8
"""Edge of the L2 misses of a KV cache that is read in order once a step."""
_PLANNED: Final = 992.0
"""Sequences up to which FlashAttention 3 plans splits (31 by each of 32 warps)."""
_UNPLANNED: Final = 0.35
"""Cost of a sequence beyond them / below (8.2 / 23 ns)."""


class _Attention(Record):
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


class Prefill(_Attention):
    """Attention of many query positions (fused, causal or full)."""


class Decode(_Attention):
    """Attention of one (or few) new positions over a KV cache, KV split over CTAs."""


def _pair(columns: Mapping[str, Any]) -> Any:
    """Elements of a key and its value in the cache."""
    return columns["head_dim"] + columns["v_head_dim"] * (1 - columns["shared_kv"])


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row; queries of several positions go to the prefill kernel. A sink
    is one more term of a row's sum of exponentials, and costs nothing."""
    columns = {
        name: fields[name]
        for name in _Attention.__dataclass_fields__
        if name not in ("causal", "distance", "unpacked", "early", "torch")
    }
    columns["shared_kv"] = floats(columns["shared_kv"])
    family = fields["family"].astype(str)
    for name, word in (("unpacked", _UNPACKED), ("early", _EARLY), ("torch", _TORCH)):
        columns[name] = floats(np.char.find(family, word) >= 0)
    columns["causal"] = floats(fields["causal"])
    columns["distance"] = context.pass_bytes
    decode = (
        np.full(len(columns["q_len"]), False)
        if op == "context_attention"
        else columns["q_len"] == 1
    )
    size = np.asarray(BYTES)[columns["kv_cache_dtype"]]
    kv = columns["batch"] * columns["num_kv_heads"] * columns["kv_len"]
    touched = kv * _pair(columns) * size
    launches = []
    for shape, rows in ((Prefill, ~decode), (Decode, decode)):
        index = np.flatnonzero(rows)
        if index.size:
            launches.append(
                Launches(
                    shape, take(columns, index), touched[index], "matrix", rows=index
                )
            )
    launches += _writes(columns, fields)
    return launches


def _writes(columns: dict[str, np.ndarray], fields: Fields) -> list[Launches]:
    """The kernels that write new keys and values to the cache and round fp8 queries, as
    one launch, where the framework runs them in the timed region. Instructions limit
    them, not DRAM."""
    rows = np.flatnonzero(np.char.startswith(fields["framework"].astype(str), _WRITES))
    if not rows.size:
        return []
    new = take(columns, rows)
    fp8 = new["kv_cache_dtype"] == _FP8
    tokens = new["batch"] * new["q_len"]
    elements = tokens * new["num_kv_heads"] * _pair(new)
    family = fields["family"][rows].astype(str)
    widened = np.any([np.char.find(family, name) >= 0 for name in _WIDENED], axis=0)
    queries = (fp8 & ~widened) * tokens * new["num_heads"] * new["head_dim"]
    issue = _WRITE * elements * np.where(fp8, 1.8, 1.0)
    issue += _WRITE_TOKEN * tokens + _ROUND * queries
    size = np.asarray(BYTES)[new["kv_cache_dtype"]]
    return [
        stream_launches(
            2 * (elements + queries),
            size * (elements + queries),
            host="none",
            rows=rows,
            issue=issue,
        )
    ]


def _common(shape: _Attention, gpu: GpuSpec, c: Corrections) -> dict[str, Any]:
    """Tile, types and bytes that both kernels share."""
    window = shape.window_size
    # a window at least as long as the cache runs the plain kernel
    local = (window > 0) & (window < shape.kv_len)
    fp8 = shape.kv_cache_dtype == _FP8
    # FlashAttention 2 and its like widen fp8 keys and values to the queries' type
    fp8_math = fp8 & (gpu.mma_kind > 0)
    compute = jnp.where(fp8_math, _FP8, shape.dtype)
    compute = _rates.arithmetic(gpu, compute)
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    wgmma = kind == MMA_KINDS.index("wgmma")
    paged = jnp.where(shape.unpacked > 0, PAGED, kind)
    tile_m, tile_n = tiles_of(shape.head_dim, paged, local, fp8_math)
    group = shape.num_heads / shape.num_kv_heads
    # FlashAttention 2 packs them for single queries alone, and with no window given
    latent = shape.shared_kv > 0
    alone = (window > 0) | (shape.q_len > 1) | (group <= 1)
    alone &= (shape.unpacked > 0) & ~latent
    group = jnp.where(alone, 1.0, group)
    # one warp group alone where its rows suffice
    few = wgmma & fp8_math & (shape.head_dim == HEADS[1])
    few = few & (shape.q_len * group <= 64)
    tile_m, tile_n = jnp.where(few, 64.0, tile_m), jnp.where(few, 96.0, tile_n)
    e = _rates.bytes_of(shape.kv_cache_dtype)
    rows, keys = latent_tiles(shape.head_dim, e, kind, gpu)
    tile_m, tile_n = jnp.where(latent, rows, tile_m), jnp.where(latent, keys, tile_n)
    tile_m = jnp.where(shape.tile_m > 0, shape.tile_m, tile_m)
    tile_n = jnp.where(shape.tile_n > 0, shape.tile_n, tile_n)
    # softmax and matrix products of a warp group take turns
    single = shape.q_len == 1
    serial = fp8_math & (shape.head_dim > jnp.where(single, HEADS[1], HEADS[2]))
    serial |= single & local & ~fp8_math & (shape.head_dim <= HEADS[0])
    return {
        "window": jnp.where(local, window, 0.0),
        "fp8": fp8_math,
        # wgmma wants V along the keys: fp8 values are turned in shared memory
        "turned": jnp.where(fp8_math & wgmma, 1.0, 0.0),
        "wgmma": wgmma,
        "serial": wgmma & serial,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "alone": alone,
        "group": group,
        "heads": shape.batch * shape.num_heads / group,
        "e": e,
        "d": shape.head_dim,
        "d_v": shape.v_head_dim,
        "kv": _pair(vars(shape)),
        "peak": _rates.tensor_peak(gpu, compute),
        "energy": _rates.tensor_energy(c, compute),
        "activity": _rates.activity(c, shape.zero_share),
    }


def _planned(batch: Array) -> Array:
    """Sequences for which a kernel plans the splits; cheaper where it does not."""
    return batch * jnp.where(batch <= _PLANNED, 1.0, _UNPLANNED)


def _prefill(shape: _Attention, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate; shape (kernels, 1)."""
    s = _common(shape, gpu, c)
    d, d_v, kv, e = s["d"], s["d_v"], s["kv"], s["e"]
    heads, tile_m, tile_n = s["heads"], s["tile_m"], s["tile_n"]
    tiles, blocks, longest, masked = kv_blocks(
        shape.q_len, shape.kv_len, s["group"], s["window"], shape.causal, tile_m, tile_n
    )
    split = splits(heads * tiles, shape.kv_len / tile_n, gpu)
    split = jnp.where(s["wgmma"], split, 1.0)
    split = jnp.where(shape.split_k > 0, shape.split_k, split)
    split = jnp.minimum(split, longest)
    ctas, blocks_all = heads * tiles * split, heads * blocks
    elements = tile_m * tile_n
    transposed = s["turned"] * tile_n * d_v / c.transpose_rate  # cycles
    efficiency = c.prefill_efficiency * jnp.where(s["fp8"], c.fp8_efficiency, 1.0)
    block_cycles = (
        2 * elements * (d + d_v) / (s["peak"] * efficiency)
        + elements / gpu.sfu_ops_per_cycle * c.prefill_exp
        + tile_n * kv * e / c.prefill_feed
        + transposed
    )
    rows = jnp.minimum(tile_m, shape.q_len * s["group"])
    fast = (s["group"] == 4) | (s["group"] == 8) | (s["group"] == 16)
    query = rows * (d * e + d_v * 2) / c.prefill_query
    own = c.prefill_own + query * jnp.where(fast, c.prefill_query_fast, 1.0)
    own += c.prefill_fill * block_cycles
    own += elements / gpu.sfu_ops_per_cycle * c.prefill_mask * masked / (tiles * split)
    positions = shape.batch * shape.num_heads * shape.q_len
    q_bytes, o_bytes = positions * d * e, positions * d_v * 2
    seen = jnp.minimum(shape.kv_len, shape.q_len + s["window"])
    seen = jnp.where(s["window"] > 0, seen, shape.kv_len)
    kv_once = shape.batch * shape.num_kv_heads * seen * kv * e
    loads = blocks_all * tile_n * kv * e
    near = q_bytes + o_bytes + kv_once
    miss = smooth.miss(near, c.l2_producer_share * gpu.l2_capacity, c.l2_sharpness)
    combine = jnp.where(split > 1, 4 * o_bytes * split, 0.0)
    result = make_demand(
        jnp.shape(ctas),
        tensor=2 * elements * (d + d_v) * blocks_all,
        sfu=elements * blocks_all,
        smem=loads + transposed * blocks_all * gpu.smem_bytes_per_cycle,
        l2=loads + q_bytes,
        dram=(q_bytes + kv_once) * miss,
        store_l2=o_bytes + combine,
        store_dram=o_bytes * miss,
        tensor_peak=s["peak"],
        tensor_efficiency=efficiency,
        sfu_efficiency=1 / c.prefill_exp,
        feed=c.prefill_feed,
        ctas=ctas,
        longest=smooth.ceil(longest / split) * ctas / blocks_all,
        quantization=c.prefill_quantization,
        tail=c.prefill_tail,
        own_cycles=own,
        fixed_cycles=c.prefill_cycles,
        fixed_seconds=c.prefill_schedule * _planned(shape.batch),
        launches=jnp.where(split > 1, 2.0, 1.0),
        sharpness=jnp.where(s["serial"], c.prefill_serial, c.prefill_sharpness),
        sharpness_memory=c.sharpness,
        store_exposed=0.0,
        training=c.training_attention
        * jnp.where(shape.early > 0, c.training_attention_early, 1.0)
        * jnp.where(shape.torch > 0, c.training_attention_torch, 1.0),
        tensor_energy=s["energy"],
        activity=s["activity"],
    )
    return jax.tree.map(lambda x: x[..., None], result)


def _decode(shape: Decode, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate: the KV splits of the library (`_attention_tiles.splits`)."""
    s = {k: jnp.asarray(v)[..., None] for k, v in _common(shape, gpu, c).items()}
    d, d_v, kv, kv_len = s["d"], s["d_v"], s["kv"], shape.kv_len[..., None]
    batch, given = shape.batch[..., None], shape.split_k[..., None]
    e, tile_n, fp8 = s["e"], s["tile_n"], s["fp8"]
    local = s["window"] > 0
    heads = s["heads"]
    row_tiles = smooth.ceil(s["group"] / s["tile_m"])
    tiles = heads * row_tiles
    before = jnp.where(local, smooth.floor((kv_len - s["window"]) / tile_n), 0.0)
    blocks = smooth.ceil(kv_len / tile_n) - before
    split = splits(tiles, kv_len / tile_n, gpu)
    split = jnp.where(s["alone"], 1.0, split)  # FlashAttention 2: packed or not split
    split = jnp.where(given > 0, given, split)
    split = jnp.minimum(split, blocks)
    ctas = tiles * split
    per_cta = smooth.ceil(blocks / split)
    # all rows of a tile are computed, the group's and those in vain
    elements = s["tile_m"] * tile_n * ctas * per_cta
    transposed = s["turned"] * tile_n * d_v / c.transpose_rate
    keys = jnp.where(local, s["window"], kv_len)
    positions = (shape.batch * shape.num_heads)[..., None]
    q_bytes, o_bytes = positions * d * e, positions * d_v * 2
    kv_once = batch * shape.num_kv_heads[..., None] * kv * keys * e
    pages = 4 * batch * jnp.ceil(kv_len / 64)
    readers = jnp.where(s["group"] > s["tile_m"], row_tiles, 1.0)
    kv_bytes = heads * readers * kv * keys * e + pages
    near = kv_once + pages + q_bytes + o_bytes
    distance = jnp.maximum(near, shape.distance[..., None])
    miss = smooth.miss(distance, c.l2_share * gpu.l2_capacity, _KV_EDGE)
    combine = jnp.where(split > 1, 4 * o_bytes * split, 0.0)
    own = c.decode_own * jnp.where(fp8, c.decode_own_fp8, 1.0)
    own += c.decode_own_head * (d + d_v) / 2
    own += jnp.where(local, c.decode_own_local, 0.0)
    return make_demand(
        jnp.shape(ctas),
        tensor=2 * elements * (d + d_v),
        sfu=elements,
        smem=kv_bytes + transposed * ctas * per_cta * gpu.smem_bytes_per_cycle,
        l2=kv_bytes + q_bytes,
        dram=(kv_once + pages + q_bytes) * miss,
        store_l2=o_bytes + combine,
        store_dram=o_bytes * miss,
        tensor_peak=s["peak"],
        tensor_efficiency=c.decode_efficiency,
        sfu_efficiency=1 / c.decode_exp,
        feed=c.decode_flow,
        ctas=ctas,
        quantization=c.decode_quantization,
        own_cycles=own,
        fixed_cycles=c.decode_cycles + jnp.where(local, c.decode_cycles_local, 0.0),
        fixed_seconds=c.decode_schedule * _planned(batch),
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
