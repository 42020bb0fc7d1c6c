"""The grouped GEMM of a layer of experts.

[n_e, k] x [k, n], rows = sum of n_e, candidates tile_m = 16, 32, 64, 128 (tile_n 64
below 64, else 128):

    tiles   = sum over experts ceil(n_e/tile_m)
    across  = ceil(n/tile_n)           ctas = tiles across
    step    = 128 B of K (16 bits and more), 128 elements (less)    steps = ceil(k/step)
    FLOP    = ctas steps 2 tile_m tile_n step     at the rate of its type
    path    = steps step_cycles
    loads   = (rows across e + ctas tile_n e_w) k, twice that through shared memory;
              e_w: stored weights (GEMM)
    near    = active n k e_w + rows (k e + 2 n)   active: experts with a row
    W       = active n k e_w miss(max(near, pass))
    X       = rows k e miss(near)                 dram = W + X      store = 2 rows n
    feed    = moe_feed/slow     slow = 1; where k is no multiple of 16:
                                moe_misaligned (2/e) 128 ceil(k/128)/k
    loading = min(ctas, 4 N)                      streams = min(active across, loading)
    flow    = moe_flow smem_per_sm/228 KiB x loading/min(ctas, N)
              x (W + X)/(W loading/streams + X)
    grid    = min(R, (R + experts (tile_m - 1))/tile_m) across    experts of all ranks
    fixed   = moe_empty max(grid - ctas, 0)/N cycles

with `moe_efficiency` (16 bits), `moe_efficiency_fp8` or `moe_efficiency_block`,
`moe_own`, `moe_quantization`, `moe_sharpness`, `moe_sharpness_memory`; misses as in
GEMM. *Flow*: up to four CTAs an SM have loads in flight, `moe_flow` B/cycle each; tiles
over the same weights do not bring more of them into flight, only tokens. *Misaligned*:
vector loads are off, single elements are loaded, masked ones too. *Grid*: the library
sizes it before it knows the routing; CTAs that find no rows end at once. Energy: padded
FLOP at 30 %, as in GEMM, and `moe_load_energy` J per byte of loads.
"""

from typing import Final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from ...records import Record, as_float, as_index
from .. import _rates
from .._launch import with_candidates
from .._residency import missed
from ._rows import of_width

_TILES_M: Final = (16.0, 32.0, 64.0, 128.0)
"""`BLOCK_SIZE_M` of vLLM's tuned configurations of `fused_moe`."""
_BLOCK: Final = 128.0
"""Bytes of k of a step (elements of narrow types), as in GEMM; also the elements to
whose multiple masked loads fill up k."""
_VECTOR: Final = 16.0
"""Elements of k that a vector load takes, of which k has to be a multiple."""
_IN_FLIGHT: Final = 4
"""CTAs of an SM that have loads in flight."""


class Experts(Record):
    """One grouped GEMM [n_e, k] x [k, n] for experts e with n_e tokens each."""

    n: Float[Array, "*k"] = eqx.field(converter=as_float)
    k: Float[Array, "*k"] = eqx.field(converter=as_float)
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    stored: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes of a weight's element in memory."""
    tokens: Float[Array, "*k bins"] = eqx.field(converter=as_float)  # per expert
    weight: Float[Array, "*k bins"] = eqx.field(converter=as_float)  # experts in a bin
    all_rows: Float[Array, "*k"] = eqx.field(converter=as_float)  # that were given
    experts: Float[Array, "*k"] = eqx.field(converter=as_float)  # that they name
    distance: Float[Array, "*k"] = eqx.field(converter=as_float)  # B between two uses
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_m: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_n: Float[Array, "*k"] = eqx.field(converter=as_float)


class _Grid(NamedTuple):
    """Tiles of each candidate; axes (kernel, candidate)."""

    tile_m: Array
    tile_n: Array
    tiles_m: Array
    across: Array
    """Tiles along n."""
    ctas: Array
    active: Array
    """Experts with a row."""
    rows: Array


class _Bytes(NamedTuple):
    """Bytes of a launch."""

    weights: Array
    """From DRAM, of weights."""
    tokens: Array
    """From DRAM, of activations."""
    store_dram: Array


def experts_demand(shape: Experts, gpu: GpuSpec, c: Corrections) -> Demand:
    """Candidates are the M sides of the tile; shape (kernels, 4)."""
    s = with_candidates(shape)
    grid = _grid(s)
    n, k, stored = s.n, s.k, s.stored
    compute = _rates.arithmetic(gpu, s.dtype)
    e = _rates.bytes_of(compute)
    moved = _bytes(s, grid, e, gpu, c)
    step = _BLOCK / jnp.where(e < 2, 1.0, e)  # elements; scales are no part of a step
    steps = smooth.ceil(k / step)
    fetched = grid.ctas * grid.tile_n * k  # elements of weights
    # no rows beyond an expert's tokens
    loads = grid.rows * grid.across * k * e + fetched * stored
    flop = grid.ctas * 2 * grid.tile_m * grid.tile_n * steps * step
    useful = grid.rows * n / (grid.ctas * grid.tile_m * grid.tile_n)
    return make_demand(
        tensor=flop,
        issue=_rates.EXPANSION * fetched * _rates.expands(stored, compute),
        smem=2 * loads,
        l2=loads,
        dram=moved.weights + moved.tokens,
        store_l2=2 * grid.rows * n,
        store_dram=moved.store_dram,
        tensor_peak=_rates.tensor_peak(gpu, compute),
        tensor_efficiency=of_width(
            compute, c.moe_efficiency, c.moe_efficiency_fp8, c.moe_efficiency_block
        ),
        feed=c.moe_feed / _slow(k, e, c),
        flow=_flow(grid, moved, gpu, c),
        l2_sharing=c.tile_load_scale,
        ctas=grid.ctas,
        quantization=c.moe_quantization,
        own_cycles=c.moe_own,
        path_cycles=c.step_cycles * steps,
        fixed_cycles=c.moe_empty * _empty(s, grid) / gpu.num_sms,
        launches=0.0,  # the layer's first kernel carries them
        sharpness=c.moe_sharpness,
        sharpness_memory=c.moe_sharpness_memory,
        store_exposed=c.store_exposed,
        training=c.training_experts,
        tensor_energy=_rates.tensor_energy(c, compute) * _rates.padded_energy(useful)
        + c.moe_load_energy * loads / flop,
        activity=_rates.activity(c, s.zero_share),
    )


def _grid(s: Experts) -> _Grid:
    """Tiles over the tokens of every expert (bins on the axis before the last)."""
    tile_m = _rates.or_default(s.tile_m, as_float(_TILES_M))
    tile_n = _rates.or_default(s.tile_n, jnp.where(tile_m < 64, 64.0, 128.0))
    load, weight = s.tokens, s.weight
    tiles_m = jnp.sum(weight * smooth.ceil(load / tile_m[..., None, :]), axis=-2)
    across = smooth.ceil(s.n / tile_n)
    return _Grid(
        tile_m=tile_m,
        tile_n=tile_n,
        tiles_m=tiles_m,
        across=across,
        ctas=smooth.at_least_one(tiles_m * across),
        active=jnp.sum(weight * (load > 0), axis=-2),
        rows=jnp.sum(weight * load, axis=-2),
    )


def _bytes(s: Experts, grid: _Grid, e: Array, gpu: GpuSpec, c: Corrections) -> _Bytes:
    """Bytes of weights, tokens and results that L2 misses."""
    once = grid.active * s.n * s.k * s.stored
    near = once + grid.rows * (s.k * e + 2 * s.n)
    miss = missed(near, gpu, c)
    return _Bytes(
        weights=once * missed(jnp.maximum(near, s.distance), gpu, c),
        tokens=grid.rows * s.k * e * miss,
        store_dram=2 * grid.rows * s.n * miss,
    )


def _slow(k: Array, e: Array, c: Corrections) -> Array:
    """Time of loads / that of vector loads: single elements, masked ones too, where k
    is no multiple of 16."""
    single = c.moe_misaligned * (2 / e) * smooth.ceil(k / _BLOCK) * _BLOCK / k
    return jnp.where(jnp.mod(k, _VECTOR) == 0, 1.0, single)


def _flow(grid: _Grid, moved: _Bytes, gpu: GpuSpec, c: Corrections) -> Array:
    """B/cycle/SM from DRAM; tiles over the same weights do not bring more of them into
    flight."""
    busy = jnp.minimum(grid.ctas, gpu.num_sms)
    loading = jnp.minimum(grid.ctas, _IN_FLIGHT * gpu.num_sms)
    streams = jnp.minimum(smooth.at_least_one(grid.active * grid.across), loading)
    weights, tokens = moved.weights, moved.tokens
    share = (weights + tokens) / (weights * loading / streams + tokens + 1e-9)
    return c.moe_flow * gpu.smem_per_sm / _rates.FLOW_SMEM * share * loading / busy


def _empty(s: Experts, grid: _Grid) -> Array:
    """CTAs without rows. A library sizes its grid before it knows the routing: each row
    in a tile of its own, or a part-filled tile for each expert of all ranks."""
    filled = (s.all_rows + s.experts * (grid.tile_m - 1)) / grid.tile_m
    tiles = jnp.minimum(s.all_rows, filled)
    return jnp.maximum(tiles - grid.tiles_m, 0.0) * grid.across
