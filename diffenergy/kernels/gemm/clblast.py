"""`clblast_gemm`: CLBlast's tunable fp32 matrix product, every tile parameter given.

One CTA stages `tile_k` of its operands (or reads them through L1), waits, computes,
waits: nothing is double-buffered.
Per CTA and main-loop step of `tile_k` (32), with mi = tile_m/mdimc, ni = tile_n/ndimc,
thr = mdimc ndimc, v = min(vector width, 4) words, W = warp_size and
rate = min(smem_bytes_per_cycle/128, 1) wavefronts a cycle:

    registers = 20 + mi ni + mi + ni
    spilled   = softplus over 4 of (registers + unstaged mi, ni - min(255, file/thr))
    fronts(a, s) = max(1, min(a, 32) min(s, 32)/32)
                                      of a addresses that lie s words apart
    A: v fronts(min(mdimc, W, 32/v), mi)
                                      lane groups of a vector load are served apart;
                                      banks of 64 bits halve v >= 2
    B: max(fronts(W/mdimc, ni), v tiled_broadcast or, through L1, v)
    served = (thr/W) tile_k (mi/v fronts_A + ni/v fronts_B + 2 tiled_spill spilled),
             tiled_smem, tiled_l1 cycles each
    stored = tile_k (tile/32) clip(tile/staging threads, v, 32)/v
             (tiled_staging_store tiled_smem + ..._load tiled_l1)/rate
    instructions of a warp and k = mi ni + mi/v + ni/v + tiled_loop
                                   + tiled_address (unstaged loads) + 2 spilled
    busy  = pnorm(FMA, instructions/(issue slots tiled_issue), served + stored)
                                      sharpness tiled_sharpness
    path  = stage + pnorm(busy parts of a CTA alone,
                          tiled_dependence fma_latency instructions)
            + tiled_latency tile_k latency
    stage = (tiled_staging_latency l2_latency + 80) if staged
            + stored + its instructions
    l2    = every tile load + spills that L1 loses
            + (AMD) few channels at once, tiled_camping
    dram  = rows and columns of a wave x waves, at most all loads
            + 8 m n + spills that L2 loses

A CTA of fewer than four warps leaves schedulers idle: FMA and instructions of its path
take 4/warps as long. One sharpness serves inside the SM and outside it: two differ by
5 % and no rank moves. Lane groups are not merged at all (the study merges 5 %; rank
correlations move by less than 0.01). `tiled_clock` is a GPU's own factor on all SM
cycles.
"""

from typing import Final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ... import smooth
from ...corrections import Corrections
from ...dtypes import DTYPES
from ...hardware import GpuSpec
from ...physics import Demand, make_demand
from ...records import as_float
from .. import _rates
from .._launch import Context, Fields, Launches, Product, as_floats, with_candidates
from .._ops import Field, Op
from .._residency import resident_ctas

_SCHEDULERS: Final = 4.0
"""Sub-partitions of an SM, each with its share of the warps."""
_WORD: Final = 4.0
_VECTOR: Final = 4.0
"""Words that a load instruction moves per lane at most."""
_BARRIERS: Final = 80.0
"""Cycles of the two barriers of a step: of the study of CLBlast's tiles."""
_CHANNEL: Final = 256.0
"""Bytes of consecutive addresses in one channel of an AMD L2."""
_CHANNELS: Final = 16.0
"""Channels of such an L2 (MI50)."""


class Xgemm(Product):
    """Products in fp32 with their tiles.

    A CTA of `mdimc` x `ndimc` threads makes a block of `tile_m` x `tile_n`; `mdima` and
    `ndimb` threads lie along m and n while A and B are staged; `vwm` and `vwn` words
    move at once; `sa`, `sb`: 1 where A, B is staged in shared memory, 0 where it is
    read through L1.
    """

    mdimc: Float[Array, "*k"] = eqx.field(converter=as_float)
    ndimc: Float[Array, "*k"] = eqx.field(converter=as_float)
    mdima: Float[Array, "*k"] = eqx.field(converter=as_float)
    ndimb: Float[Array, "*k"] = eqx.field(converter=as_float)
    vwm: Float[Array, "*k"] = eqx.field(converter=as_float)
    vwn: Float[Array, "*k"] = eqx.field(converter=as_float)
    sa: Float[Array, "*k"] = eqx.field(converter=as_float)
    sb: Float[Array, "*k"] = eqx.field(converter=as_float)


_FIELDS: Final = tuple(Xgemm.__dataclass_fields__)
OPS: Final = (
    Op(
        "clblast_gemm",
        (
            Field("batch", default=1.0),
            *(Field(name) for name in ("m", "n", "k")),
            Field("dtype", "dtype", "fp32"),
            *(Field(x) for x in ("mdimc", "ndimc", "mdima", "ndimb", "vwm", "vwn")),
            *(Field(name, default=0.0, minimum=0.0) for name in ("sa", "sb")),
        ),
        named=("batch", "m", "n", "k"),
        known_as="gemm",
        model_flop=lambda x: 2.0 * x["batch"] * x["m"] * x["n"] * x["k"],
    ),
)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row."""
    columns = {name: as_floats(fields[name]) for name in _FIELDS}
    columns = _checked({**columns, "dtype": fields["dtype"]})
    batch, m, n, k = (columns[name] for name in ("batch", "m", "n", "k"))
    touched = _WORD * batch * ((m + n) * k + m * n)
    columns = {name: columns[name] for name in _FIELDS}
    return [Launches(Xgemm, columns, touched, host="matrix")]


def _checked(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of `Xgemm` (`tile_k` 0: 32). Raises `ValueError` for a tile that the
    kernel cannot be compiled with."""
    columns = columns | {
        "tile_k": np.where(columns["tile_k"] > 0, columns["tile_k"], 32.0)
    }
    for name in ("tile_m", "tile_n"):
        _refuse(columns, columns[name] < 1, name, "a hand-made tile needs it")
    fp32 = columns["dtype"] == DTYPES.index("fp32")
    _refuse(columns, ~fp32, "dtype", "fp32 only")
    for name in ("sa", "sb"):
        _refuse(columns, ~np.isin(columns[name], (0, 1)), name, "allowed are 0 and 1")
    threads = columns["mdimc"] * columns["ndimc"]
    _refuse(columns, threads > 1024, "ndimc", "`mdimc` x `ndimc` is at most 1024")
    for tile, across, vector in (
        ("tile_m", "mdimc", "vwm"),
        ("tile_n", "ndimc", "vwn"),
        ("tile_m", "mdima", "vwm"),
        ("tile_n", "ndimb", "vwn"),
    ):
        odd = np.mod(columns[tile], columns[across] * columns[vector]) != 0
        _refuse(columns, odd, tile, f"a multiple of `{across}` x `{vector}` is needed")
    for along in ("mdima", "ndimb"):
        odd = np.mod(columns["tile_k"] * columns[along], threads) != 0
        odd |= np.mod(threads, columns[along]) != 0
        reason = (
            "it must divide the threads, and `tile_k` be whole for the rest of them"
        )
        _refuse(columns, odd, along, reason)
    return columns


def _refuse(columns: Fields, wrong: np.ndarray, name: str, reason: str) -> None:
    if wrong.any():
        value = columns[name][int(wrong.argmax())]
        shown = DTYPES[int(value)] if name == "dtype" else f"{value:g}"
        raise ValueError(f"`{name}` of a hand-made tile is {shown}; {reason}.")


class _Side(NamedTuple):
    """Work of one operand on an SM, per warp and k unless a field says otherwise."""

    loads: Array
    """Load instructions."""
    cycles: Array
    """Cycles of the shared-memory and L1 pipe."""
    addresses: Array
    """Load instructions that go to L1 with an address of their own."""
    latency: Array
    stored: Array
    """Cycles of that pipe to stage the operand, a step of the CTA."""
    moved: Array
    """Staging loads, a step of the CTA."""


class _Step(NamedTuple):
    """Work of one main-loop step of a CTA."""

    fma: Array
    """FLOP."""
    math: Array
    """Instructions of the math, in warps."""
    beside: Array
    """Those of the loop beside it."""
    staging: Array
    """Those that stage."""
    served: Array
    """Cycles of the shared-memory and L1 pipe for the math."""
    stored: Array
    """Those that stage."""
    chain: Array
    """Instructions of a warp that wait for one another."""


def demand(shape: Xgemm, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work, geometry and path; one candidate, shape (kernels, 1)."""
    x = with_candidates(shape)
    spilled, resident = _occupancy(x, gpu)
    a, b = _operands(x, gpu, c)
    step = _step(x, a, b, spilled, gpu, c)
    steps = smooth.ceil(x.k / x.tile_k)
    ctas = x.batch * smooth.ceil(x.m / x.tile_m) * smooth.ceil(x.n / x.tile_n)
    per_step = ctas * steps
    l2, dram = _traffic(x, gpu, c, ctas, resident, spilled)
    return make_demand(
        fma=per_step * step.fma,
        math_issue=per_step * step.math * gpu.warp_size,
        issue=per_step * (step.beside + step.staging) * gpu.warp_size,
        issue_efficiency=c.tiled_issue * c.tiled_clock,
        # time of the pipe, as bytes
        smem=per_step * (step.served + step.stored) * gpu.smem_bytes_per_cycle,
        smem_efficiency=c.tiled_clock,
        l2=l2,
        dram=dram,
        fma_peak=gpu.fma_flop_per_cycle_fp32,
        fma_efficiency=_fma_share(gpu, c) * c.tiled_clock,
        l2_sharing=c.tiled_l2 * c.tiled_clock,
        ctas=ctas,
        resident=resident,
        path_cycles=steps * _path(x, a, b, step, gpu, c) / c.tiled_clock,
        sharpness=c.tiled_sharpness,
        sharpness_issue=c.tiled_sharpness,
        sharpness_memory=c.tiled_sharpness,
        activity=_rates.activity(c, x.zero_share),
    )


def _step(
    x: Xgemm, a: _Side, b: _Side, spilled: Array, gpu: GpuSpec, c: Corrections
) -> _Step:
    """Work of a step of one CTA."""
    threads = x.mdimc * x.ndimc
    warps = threads / gpu.warp_size
    across, down = _accumulators(x)
    math = warps * x.tile_k * across * down
    address = c.tiled_address * (a.addresses + b.addresses)
    beside = (
        warps * x.tile_k * (a.loads + b.loads + c.tiled_loop + address + 2 * spilled)
    )
    spill_cycles = 2 * c.tiled_spill * spilled
    return _Step(
        fma=2 * threads * across * down * x.tile_k,
        math=math,
        beside=beside,
        staging=(2 + c.tiled_staging_address) * (a.moved + b.moved) * warps / threads,
        served=warps * x.tile_k * (a.cycles + b.cycles + spill_cycles),
        stored=a.stored + b.stored,
        chain=(math + beside - 2 * warps * x.tile_k * spilled) / warps,
    )


def _path(
    x: Xgemm, a: _Side, b: _Side, step: _Step, gpu: GpuSpec, c: Corrections
) -> Array:
    """Cycles of a step of one CTA alone: stage, barrier, compute, barrier."""
    warps = x.mdimc * x.ndimc / gpu.warp_size
    slots = gpu.issue_slots_per_cycle * c.tiled_issue / gpu.warp_size
    fma_rate = gpu.fma_flop_per_cycle_fp32 * _fma_share(gpu, c)
    idle = jnp.maximum(_SCHEDULERS / warps, 1.0)
    waited = jnp.maximum(x.sa, x.sb) * (
        c.tiled_staging_latency * gpu.l2_latency + _BARRIERS
    )
    stage = waited + step.stored + idle * step.staging / slots
    compute = smooth.pnorm(
        (
            idle * step.fma / fma_rate,
            idle * (step.math + step.beside) / slots,
            step.served,
            c.tiled_dependence * gpu.fma_latency * step.chain,
        ),
        c.tiled_sharpness,
    )
    exposed = c.tiled_latency * x.tile_k * jnp.maximum(a.latency, b.latency)
    return stage + compute + exposed


def _fma_share(gpu: GpuSpec, c: Corrections) -> Array:
    """Share of the fp32 peak that the math reaches."""
    return c.tiled_fma * jnp.where(gpu.fp32_doubled > 0, c.fp32_dual, 1.0)


def _accumulators(x: Xgemm) -> tuple[Array, Array]:
    """Accumulators of a thread, along m and along n."""
    return x.tile_m / x.mdimc, x.tile_n / x.ndimc


def _occupancy(x: Xgemm, gpu: GpuSpec) -> tuple[Array, Array]:
    """Registers of a thread that do not fit and are spilled to L1; resident CTAs."""
    threads = x.mdimc * x.ndimc
    across, down = _accumulators(x)
    needed = 20 + across * down + across + down
    most = jnp.minimum(255.0, gpu.registers_per_sm / threads)
    unstaged = (1 - x.sa) * across + (1 - x.sb) * down
    spilled = smooth.softplus(needed + unstaged - most, 4.0)
    registers = 8 * smooth.ceil(jnp.minimum(needed, most) / 8)
    smem = x.tile_k * _WORD * (x.sa * x.tile_m + x.sb * x.tile_n)
    smem = jnp.maximum(smem, 1.0)
    reserved = gpu.smem_reserved_per_cta
    return spilled, resident_ctas(gpu, threads, registers, smem, reserved)


def _operands(x: Xgemm, gpu: GpuSpec, c: Corrections) -> tuple[_Side, _Side]:
    """A, whose lanes lie along m, and B, whose lanes lie along n.

    The lanes of a warp cover m first. A vector load of A is served in groups of lanes,
    each with its own conflicts; the few addresses of B are broadcast.
    """
    along = jnp.minimum(x.mdimc, gpu.warp_size)
    behind = gpu.warp_size / along
    wide_a, wide_b = jnp.minimum(x.vwm, _VECTOR), jnp.minimum(x.vwn, _VECTOR)
    stride_a, stride_b = _accumulators(x)
    least = x.sb * c.tiled_broadcast + (1 - x.sb)
    fronts_a = wide_a * _conflicts(jnp.minimum(along, 32 / wide_a), stride_a)
    fronts_b = jnp.maximum(_conflicts(behind, stride_b), least * wide_b)

    # wavefronts per cycle: Turing half of one; Kepler's banks give two words at once
    wide_rate = gpu.smem_bytes_per_cycle / _rates.WAVEFRONT
    rate = jnp.minimum(wide_rate, 1.0)

    def side(
        tile: Array,
        words: Array,
        staging: Array,
        v: Array,
        staged: Array,
        fronts: Array,
    ) -> _Side:
        in_smem = jnp.where(v >= 2, wide_rate, rate)
        cost = staged * c.tiled_smem / in_smem + (1 - staged) * c.tiled_l1 / rate
        cycles = gpu.warp_size / 32 * fronts * cost
        stride = jnp.minimum(jnp.maximum(tile / staging, v), 32.0)
        copy = c.tiled_staging_store * c.tiled_smem + c.tiled_staging_load * c.tiled_l1
        return _Side(
            loads=words / v,
            cycles=words / v * cycles,
            addresses=(1 - staged) * words / v,
            latency=staged * gpu.smem_latency + (1 - staged) * gpu.l1_latency,
            stored=x.tile_k * staged * tile / 32 * stride / v * copy / rate,
            moved=x.tile_k * staged * tile / v,
        )

    return (
        side(x.tile_m, stride_a, x.mdima, wide_a, x.sa, fronts_a),
        side(x.tile_n, stride_b, x.ndimb, wide_b, x.sb, fronts_b),
    )


def _conflicts(addresses: Array, stride: Array) -> Array:
    """Wavefronts of so many addresses a `stride` of words apart: lines, or banks."""
    lines = jnp.minimum(addresses, 32.0) * jnp.minimum(stride, 32.0) / 32
    return jnp.maximum(lines, 1.0)


def _traffic(
    x: Xgemm, gpu: GpuSpec, c: Corrections, ctas: Array, resident: Array, spilled: Array
) -> tuple[Array, Array]:
    """Bytes asked of L2 and of DRAM by the whole launch."""
    wave = jnp.minimum(gpu.num_sms * resident, ctas)
    tiles_m = smooth.at_least_one(x.m / x.tile_m)
    columns = smooth.at_least_one(wave / tiles_m)  # of tiles that one wave touches
    rows = x.tile_m * jnp.minimum(wave, tiles_m) + x.tile_n * columns
    loads = ctas * x.k * _WORD * (x.tile_m + x.tile_n)

    spilled_bytes = resident * spilled * x.mdimc * x.ndimc * _WORD  # of an SM
    past_l1 = spilled_bytes / (spilled_bytes + gpu.l1_capacity)
    spilled_bytes_of_all = spilled_bytes * gpu.num_sms
    past_l2 = spilled_bytes_of_all / (spilled_bytes_of_all + gpu.l2_capacity)
    spills = ctas * x.k * 2 * _WORD * spilled * x.mdimc * x.ndimc * past_l1

    # rows of B of one step lie in few channels of an AMD L2
    spread = jnp.clip(_WORD * x.tile_n * columns / _CHANNEL, 1.0, _CHANNELS)
    camped = ctas * x.k * _WORD * x.tile_n * (_CHANNELS / spread - 1) * c.tiled_camping
    camped = jnp.where(gpu.warp_size > 32, camped, 0.0)

    loaded = jnp.minimum(ctas / wave * rows * x.k * _WORD, loads)
    blocks = 2 * _WORD * x.batch * x.m * x.n  # C, read and written
    return loads + spills + camped, loaded + blocks + spills * past_l2
