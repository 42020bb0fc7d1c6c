"""Mixture of experts: sorting, two grouped GEMM, activation, combination, with a token
distribution over experts (`_routing`).

Equations: `docs/physics.md`, MoE.
"""

from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ... import smooth
from ...corrections import Corrections
from ...dtypes import BYTES, DTYPES
from ...hardware._spec import GpuSpec
from ...physics._demand import Demand, make_demand
from ...records import Record, as_float, as_index
from ...units import KiB
from .._shared import rates as _rates
from .._shared.launch import Context, Fields, Host, Launches, floats, with_candidates
from .._shared.ops import Field, Op, weight_bytes
from ..stream import CTA_BYTES
from . import _routing


def _wrong(kernel: Mapping[str, Any]) -> str:
    """Why a token cannot have its experts."""
    if kernel["topk"] <= kernel["num_experts"]:
        return ""
    return (
        f"`topk` is {kernel['topk']}; allowed is at most `num_experts` = "
        f"{kernel['num_experts']}"
    )


OPS: Final = (
    Op(
        "moe",
        (
            Field("num_tokens"),
            Field("hidden_size"),
            Field("inter_size"),
            Field("topk"),
            Field("num_experts"),
            Field("moe_tp_size", default=1.0),
            Field("moe_ep_size", default=1.0, divides=("num_experts",)),
            Field("distribution", "text", "balanced", choices=_routing.DISTRIBUTIONS),
            Field("gated", "bool", True),
            Field("dispatched", "bool", False, quiet=True),
            Field("dtype", "dtype"),
        ),
        named=("num_tokens", "hidden_size", "inter_size", "num_experts", "topk"),
        products=True,
        wrong=_wrong,
    ),
)

_TILES_M: Final = (16.0, 32.0, 64.0, 128.0)
_SPARSE: Final = 4
"""Where this many times the rows are no more than the experts, and all experts are
here, every row gets a tile of its own and nothing is sorted (vLLM fused_moe.py)."""
_IN_FLIGHT: Final = 4
"""CTAs of an SM that have loads in flight."""
_FP8_BLOCK: Final = DTYPES.index("fp8_block")


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


class Rows(Record):
    """A kernel over the rows of a layer (token x choice): all, on this rank or not, or
    those that were sent to it."""

    read: Float[Array, "*k"] = eqx.field(converter=as_float)  # B
    write: Float[Array, "*k"] = eqx.field(converter=as_float)  # B
    quantised: Float[Array, "*k"] = eqx.field(converter=as_float)
    """B of these in the quantisation of activations."""
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    sfu: Float[Array, "*k"] = eqx.field(converter=as_float)
    issue: Float[Array, "*k"] = eqx.field(converter=as_float)  # lane instructions
    first: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 for the first kernel of a layer, which carries what is paid once."""
    sorts: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 where rows are sorted by expert."""
    sorted: Float[Array, "*k"] = eqx.field(converter=as_float)  # rows
    experts: Float[Array, "*k"] = eqx.field(converter=as_float)  # of all ranks
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """Sorting, gate and up together, activation, down, sum over the top-k rows; not
    gated: up alone, and an activation that has no product."""
    f = fields
    whole = [
        f[name].astype(int).tolist()
        for name in ("num_tokens", "num_experts", "topk", "moe_ep_size")
    ]
    for experts, ranks, topk in zip(whole[1], whole[3], whole[2], strict=True):
        if experts % ranks:
            raise ValueError(
                f"`moe_ep_size` is {ranks}; it must divide `num_experts` = {experts}."
            )
        if topk > experts:
            raise ValueError(
                f"`topk` is {topk}; at most `num_experts` = {experts} are allowed."
            )
    loads = [
        _routing.loads(*numbers, str(name))
        for *numbers, name in zip(*whole, f["distribution"], strict=True)
    ]
    tokens = np.array([load for load, _ in loads])
    weight = np.array([w for _, w in loads])
    inner = f["inter_size"] / f["moe_tp_size"]
    # ranks that see the same tokens have rows for all of their choices (measured:
    # vLLM's fused op), those that are sent theirs have no others
    sent, here = floats(f["dispatched"]) > 0, (weight * tokens).sum(1)
    rows = np.where(sent, here, f["num_tokens"] * f["topk"])
    seen = np.where(sent, here, f["num_tokens"])
    named = f["num_experts"] / np.where(sent, f["moe_ep_size"], 1.0)
    size = np.asarray(BYTES)[f["dtype"]]
    stored = weight_bytes(f)
    quantises = np.where(size < 2, 1.0, 0.0)
    gated = floats(f["gated"])
    sides = 1 + gated
    shared: dict[str, Any] = {
        "dtype": f["dtype"],
        "stored": stored,
        "tokens": tokens,
        "weight": weight,
        "all_rows": rows,
        "experts": named,
        "distance": context.pass_bytes,
        "zero_share": f["zero_share"],
        "tile_m": f["tile_m"],
        "tile_n": f["tile_n"],
    }
    up = shared | {"n": sides * inner, "k": f["hidden_size"]}
    down = shared | {"n": f["hidden_size"], "k": inner}
    experts_bytes = weight.sum(1) * f["hidden_size"] * inner * stored

    def over_rows(read: np.ndarray, write: np.ndarray, host: Host, **given: np.ndarray):
        none = np.zeros_like(rows)
        names = ("quantised", "sfu", "issue", "first", "sorts", "sorted", "experts")
        given = dict.fromkeys(names, none) | given
        given |= {"dtype": f["dtype"], "zero_share": f["zero_share"]}
        columns = {"read": read, "write": write, **given}
        return Launches(Rows, columns, read + write, host=host)

    hidden = seen * f["hidden_size"]
    few = (_SPARSE * rows <= f["num_experts"]) & (f["moe_ep_size"] == 1)
    return [
        over_rows(  # sorting by expert, quantisation of the input
            2 * hidden * quantises,
            hidden * quantises,
            "matrix",
            quantised=3 * hidden * quantises,
            first=np.ones_like(rows),
            sorts=np.where(few, 0.0, 1.0),
            sorted=rows,
            experts=named,
        ),
        Launches(Experts, up, experts_bytes * sides, host="none"),
        over_rows(  # activation, quantisation of its result
            (4 + 2 * gated + 2 * quantises) * rows * inner,
            (4 + quantises) * rows * inner,
            "none",
            quantised=3 * rows * inner * quantises,
            issue=(6 + 2 * gated) * rows * inner,  # a load and a product less
            sfu=rows * inner,
        ),
        Launches(Experts, down, experts_bytes, host="none"),
        over_rows(  # sum over the choices of a token
            4 * rows * f["hidden_size"],
            4 * hidden,
            "none",
            issue=2 * rows * f["hidden_size"],
        ),
    ]


def demand(shape: Experts | Rows, gpu: GpuSpec, c: Corrections) -> Demand:
    """Demand of a grouped GEMM or of a kernel over the rows."""
    if isinstance(shape, Rows):
        return _rows_demand(shape, gpu, c)
    return _experts_demand(shape, gpu, c)


def _of_width(dtype: Array, wide: Array, narrow: Array, blocks: Array) -> Array:
    """A constant by dtype: 16 bits and more, narrower, 8 bits with block scales."""
    of_narrow = jnp.where(dtype == _FP8_BLOCK, blocks, narrow)
    return jnp.where(_rates.bytes_of(dtype) < 2, of_narrow, wide)


def _rows_demand(shape: Rows, gpu: GpuSpec, c: Corrections) -> Demand:
    """One candidate; shape (kernels, 1)."""
    s = with_candidates(shape)
    compute = _rates.arithmetic(gpu, s.dtype)
    quantised = jnp.where(compute == s.dtype, s.quantised, 0.0)
    once = s.read + s.write - (s.quantised - quantised)
    # bytes in quantisation take longer (or shorter) than others
    slower = _of_width(compute, as_float(1.0), c.moe_quantise, c.moe_quantise_block)
    effort = (once + (slower - 1) * quantised + 1) / (once + 1)
    away = smooth.miss(once, c.l2_producer_share * gpu.l2_capacity, c.l2_sharpness)
    paid = _of_width(compute, c.moe_cycles, c.moe_cycles_fp8, c.moe_cycles_block)
    paid = paid + c.moe_sorting * s.sorts
    sorting = c.moe_align * s.sorted + c.moe_expert * s.experts
    return make_demand(
        jnp.shape(once),
        sfu=s.sfu,
        issue=s.issue,
        l2=once,
        dram=once * away,
        feed=c.moe_stream / effort,
        ctas=smooth.at_least_one(once / CTA_BYTES),
        quantization=0.0,
        launches=s.first,
        fixed_cycles=s.first * paid,
        fixed_seconds=sorting,
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness_stream,
        activity=_rates.activity(c, s.zero_share),
    )


def _experts_demand(shape: Experts, gpu: GpuSpec, c: Corrections) -> Demand:
    """Candidates are the M sides of the tile; shape (kernels, 4)."""
    given = shape.tile_m[..., None]
    tile_m = jnp.where(given > 0, given, as_float(_TILES_M))
    tile_n = jnp.where(tile_m < 64, 64.0, 128.0)
    tile_n = jnp.where(shape.tile_n[..., None] > 0, shape.tile_n[..., None], tile_n)
    n, k = shape.n[..., None], shape.k[..., None]
    compute = _rates.arithmetic(gpu, shape.dtype)[..., None]
    e, stored = _rates.bytes_of(compute), shape.stored[..., None]
    load, weight = shape.tokens[..., None, :], shape.weight[..., None, :]
    tiles_m = jnp.sum(weight * smooth.ceil(load / tile_m[..., None]), axis=-1)
    active = jnp.sum(weight * (load > 0), axis=-1)
    rows = jnp.sum(weight * load, axis=-1)
    across = smooth.ceil(n / tile_n)
    ctas = smooth.at_least_one(tiles_m * across)
    fetched = ctas * tile_n * k  # elements of weights
    loads = (
        rows * across * k * e + fetched * stored
    )  # no rows beyond an expert's tokens
    near = active * n * k * stored + rows * (k * e + 2 * n)
    capacity = c.l2_share * gpu.l2_capacity
    miss = smooth.miss(near, capacity, c.l2_sharpness)
    far = smooth.miss(
        jnp.maximum(near, shape.distance[..., None]), capacity, c.l2_sharpness
    )
    step = 128 / jnp.where(e < 2, 1.0, e)  # elements; scales are no part of a step
    steps = smooth.ceil(k / step)
    # no vector loads where k is no multiple of 16: single elements, masked ones too
    single = c.moe_misaligned * (2 / e) * smooth.ceil(k / 128) * 128 / k
    slow = jnp.where(jnp.mod(k, 16.0) == 0, 1.0, single)
    weights = active * n * k * stored * far
    tokens = rows * k * e * miss
    # tiles over the same weights do not bring more of them into flight
    busy = jnp.minimum(ctas, gpu.num_sms)
    loading = jnp.minimum(ctas, _IN_FLIGHT * gpu.num_sms)
    streams = jnp.minimum(smooth.at_least_one(active * across), loading)
    share = (weights + tokens) / (weights * loading / streams + tokens + 1e-9)
    flow = c.moe_flow * gpu.smem_per_sm / (228 * KiB) * share * loading / busy
    # a library sizes its grid before it knows the routing: each row in a tile of its
    # own, or a part-filled tile for each expert of all ranks; idle tiles end at once
    all_rows, experts = shape.all_rows[..., None], shape.experts[..., None]
    grid = jnp.minimum(all_rows, (all_rows + experts * (tile_m - 1)) / tile_m)
    empty = jnp.maximum(grid - tiles_m, 0.0) * across
    efficiency = _of_width(
        compute, c.moe_efficiency, c.moe_efficiency_fp8, c.moe_efficiency_block
    )
    flop = ctas * 2 * tile_m * tile_n * steps * step
    return make_demand(
        jnp.shape(ctas),
        tensor=flop,
        issue=_rates.EXPANSION * fetched * _rates.expands(stored, compute),
        smem=2 * loads,
        l2=loads,
        dram=weights + tokens,
        store_l2=2 * rows * n,
        store_dram=2 * rows * n * miss,
        tensor_peak=_rates.tensor_peak(gpu, compute),
        tensor_efficiency=efficiency,
        feed=c.moe_feed / slow,
        flow=flow,
        l2_sharing=c.tile_load_scale,
        ctas=ctas,
        quantization=c.moe_quantization,
        own_cycles=c.moe_own,
        path_cycles=c.step_cycles * steps,
        fixed_cycles=c.moe_empty * empty / gpu.num_sms,
        launches=0.0,  # the layer's first kernel carries them
        sharpness=c.moe_sharpness,
        sharpness_memory=c.moe_sharpness_memory,
        store_exposed=c.store_exposed,
        training=c.training_experts,
        tensor_energy=_rates.tensor_energy(c, compute)
        * _rates.padded_energy(rows * n / (ctas * tile_m * tile_n))
        + c.moe_load_energy * loads / flop,
        activity=_rates.activity(c, shape.zero_share)[..., None],
    )
