"""Mixture of experts: two grouped GEMM, activation, combination, with a token
distribution over experts.

Equations: `docs/physics.md`, MoE. Counts of tokens per expert are made
on the host (they depend on shapes alone); tiles over them are counted in the model.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .. import smooth
from ..corrections import Corrections
from ..dtypes import BYTES
from ..hardware.spec import GpuSpec
from ..physics.demand import Demand
from ..physics.demand import demand as make_demand
from ..records import Record, as_float, as_index
from ..units import KiB
from . import _rates
from .launch import Context, Launches
from .ops import Field, Op
from .stream import stream_launches

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
            Field("moe_ep_size", default=1.0),
            Field("distribution", "text", "balanced"),
            Field("dtype", "dtype"),
        ),
    ),
)

BINS: Final = 64
"""Expert loads are held as at most this many sorted values with weights."""
_DRAWS: Final = 5
_TILES_M: Final = (16.0, 32.0, 64.0, 128.0)


class Experts(Record):
    """One grouped GEMM [n_e, k] x [k, n] for experts e with n_e tokens each."""

    n: Float[Array, "*k"] = eqx.field(converter=as_float)
    k: Float[Array, "*k"] = eqx.field(converter=as_float)
    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    tokens: Float[Array, "*k bins"] = eqx.field(converter=as_float)  # per expert
    weight: Float[Array, "*k bins"] = eqx.field(converter=as_float)  # experts in a bin
    distance: Float[Array, "*k"] = eqx.field(converter=as_float)  # B between two uses
    align: Float[Array, "*k"] = eqx.field(converter=as_float)  # rows sorted beforehand
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_m: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_n: Float[Array, "*k"] = eqx.field(converter=as_float)


def expert_counts(
    tokens: int, experts: int, topk: int, distribution: str
) -> np.ndarray:
    """Tokens per expert, ascending; their sum is `tokens` x `topk`.

    `balanced`: as equal as integers allow. `power_law_X`: quantiles of a bounded
    power law with exponent X. Raises `ValueError` for any other name.
    """
    total = tokens * topk
    if distribution == "balanced":
        counts = np.full(experts, total // experts)
        counts[experts - total % experts :] += 1
        return counts
    match = re.fullmatch(r"power_law_(\d+(?:\.\d+)?)", distribution)
    if match is None:
        raise ValueError(
            f"`distribution` is '{distribution}'; allowed are balanced and power_law_X "
            "with a number X."
        )
    a = float(match[1])
    low, high = (1.0, 0.8 * tokens) if total > experts else (0.01, 2.0)
    high = max(high, low * (1 + 1e-6))
    u = (np.arange(experts) + 0.5) / experts
    if abs(a - 1) < 1e-9:
        x = low * (high / low) ** u
    else:
        x = ((high ** (1 - a) - low ** (1 - a)) * u + low ** (1 - a)) ** (1 / (1 - a))
    counts = np.minimum(np.round(np.sort(x) / x.sum() * total), tokens).astype(int)
    while (missing := total - counts.sum()) != 0:  # from the largest down
        order = np.argsort(-counts, kind="stable")
        room = counts[order] < tokens if missing > 0 else counts[order] > 0
        picked = order[room][: abs(missing)]
        counts[picked] += np.sign(missing)
    return np.sort(counts)


@functools.lru_cache(maxsize=4096)
def _loads(
    tokens: int, experts: int, topk: int, ranks: int, distribution: str
) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, weight) of `BINS` load bins on the most loaded rank; with several ranks
    the mean of five fixed assignments of experts to ranks."""
    counts = expert_counts(tokens, experts, topk, distribution)
    if ranks > 1:
        rng = np.random.default_rng(0)
        picked = []
        for _ in range(_DRAWS):
            groups = rng.permutation(counts).reshape(ranks, -1)
            picked.append(groups[groups.sum(1).argmax()])
        counts, share = np.sort(np.concatenate(picked)), 1 / _DRAWS
    else:
        share = 1.0
    counts = counts[counts > 0]
    parts = np.array_split(counts, min(BINS, max(len(counts), 1)))
    load, weight = np.zeros(BINS), np.zeros(BINS)
    for i, part in enumerate(parts):
        if part.size:
            load[i], weight[i] = part.mean(), share * part.size
    return load, weight


def lower(
    op: str, fields: Mapping[str, np.ndarray], context: Context
) -> list[Launches]:
    """Gate and up together, activation, down, combination over the top-k rows."""
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
        _loads(*numbers, str(name))
        for *numbers, name in zip(*whole, f["distribution"], strict=True)
    ]
    tokens = np.array([load for load, _ in loads])
    weight = np.array([w for _, w in loads])
    inner = f["inter_size"] / f["moe_tp_size"]
    rows = f["num_tokens"] * f["topk"]
    shared: dict[str, Any] = {
        "dtype": f["dtype"],
        "tokens": tokens,
        "weight": weight,
        "distance": context.pass_bytes,
        "zero_share": f["zero_share"],
        "tile_m": f["tile_m"],
        "tile_n": f["tile_n"],
    }
    up = shared | {"n": 2 * inner, "k": f["hidden_size"], "align": rows}
    down = shared | {"n": f["hidden_size"], "k": inner, "align": np.zeros_like(rows)}
    size = np.asarray(BYTES)[f["dtype"]]
    experts_bytes = weight.sum(1) * f["hidden_size"] * inner * size
    narrow = size < 2
    quantise = np.where(narrow, 3 * rows * inner, 0.0)
    return [
        Launches(Experts, up, experts_bytes * 2, host="matrix"),
        # every top-k row passes here, on this rank or not
        stream_launches(
            6 * rows * inner + quantise * 2 / 3,
            4 * rows * inner + quantise / 3,
            host="none",
            issue=8 * rows * inner,
            sfu=rows * inner,
        ),
        Launches(Experts, down, experts_bytes, host="none"),
        stream_launches(
            4 * rows * f["hidden_size"],
            4 * f["num_tokens"] * f["hidden_size"],
            host="none",
            issue=2 * rows * f["hidden_size"],
        ),
    ]


def demand(shape: Experts, gpu: GpuSpec, c: Corrections) -> Demand:
    """Candidates are the M sides of the tile; shape (kernels, 4)."""
    given = shape.tile_m[..., None]
    tile_m = jnp.where(given > 0, given, as_float(_TILES_M))
    tile_n = jnp.where(tile_m < 64, 64.0, 128.0)
    tile_n = jnp.where(shape.tile_n[..., None] > 0, shape.tile_n[..., None], tile_n)
    n, k = shape.n[..., None], shape.k[..., None]
    e = _rates.bytes_of(shape.dtype)[..., None]
    load, weight = shape.tokens[..., None, :], shape.weight[..., None, :]
    tiles_m = jnp.sum(weight * smooth.ceil(load / tile_m[..., None]), axis=-1)
    active = jnp.sum(weight * (load > 0), axis=-1)
    rows = jnp.sum(weight * load, axis=-1)
    ctas = tiles_m * smooth.ceil(n / tile_n)
    across = smooth.ceil(n / tile_n)
    loads = (rows * across + ctas * tile_n) * k * e  # no rows beyond an expert's tokens
    near = active * n * k * e + rows * (k * e + 2 * n)
    capacity = c.l2_share * gpu.l2_capacity
    miss = smooth.miss(near, capacity, c.l2_sharpness)
    far = smooth.miss(
        jnp.maximum(near, shape.distance[..., None]), capacity, c.l2_sharpness
    )
    # vector loads are off where the inner size is no multiple of 16 elements
    slow = jnp.where(jnp.mod(shape.k, 16.0) == 0, 1.0, c.moe_misaligned)[..., None]
    efficiency = c.moe_efficiency * _rates.dtype_efficiency(c, shape.dtype)[..., None]
    step = 128 / e
    weights = active * n * k * e * far
    tokens = rows * k * e * miss
    # tiles over the same weights do not bring more of them into flight
    busy = jnp.minimum(jnp.maximum(ctas, 1.0), gpu.num_sms)
    streams = jnp.minimum(jnp.maximum(active * across, 1.0), busy)
    share = (weights + tokens) / (weights * busy / streams + tokens + 1e-9)
    flow = c.in_flight * gpu.smem_per_sm / (228 * KiB) / slow * share
    return make_demand(
        jnp.shape(ctas),
        tensor=ctas * 2 * tile_m * tile_n * k,
        smem=2 * loads,
        l2=loads,
        dram=weights + tokens,
        store_l2=2 * rows * n,
        store_dram=2 * rows * n * miss,
        tensor_peak=_rates.tensor_peak(gpu, shape.dtype)[..., None],
        tensor_efficiency=efficiency,
        feed=c.sm_feed / slow,
        flow=flow,
        l2_sharing=c.tile_load_scale,
        ctas=jnp.maximum(ctas, 1.0),
        quantization=c.moe_quantization,
        own_cycles=c.moe_own,
        path_cycles=c.step_cycles * smooth.ceil(k / step),
        fixed_seconds=(c.moe_align * shape.align)[..., None],
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness,
        store_exposed=c.store_exposed,
        tensor_energy=_rates.tensor_energy(c, shape.dtype)[..., None]
        * _rates.padded_energy(rows * n / (ctas * tile_m * tile_n + 1e-9)),
        activity=_rates.activity(c, shape.zero_share)[..., None],
    )
