"""Matrix products on tensor or CUDA cores: batched, split-K, tile given or chosen."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .. import smooth
from ..corrections import Corrections
from ..dtypes import BYTES
from ..hardware._spec import GpuSpec
from ..physics._demand import Demand, make_demand
from ..records import as_float, as_index
from ..units import KiB
from ._shared import rates as _rates
from ._shared.clblast import Xgemm, checked
from ._shared.launch import Context, Fields, Launches, Product, floats, take
from ._shared.menu import LEGAL, MENU
from ._shared.occupancy import excess, resident_ctas, wave_traffic
from ._shared.ops import (
    HAND_TILE,
    Field,
    Op,
    on_tensor_cores,
    output_dtype,
    weight_bytes,
)
from ._shared.simt import SimtGemm
from ._shared.stream import stream_launches


def _weights(fields: Mapping[str, Any]) -> Any:
    """Which operand is a weight: `b` of an unbatched product, none of a batched one."""
    which = np.where(np.asarray(fields["batch"], float) == 1, "b", "none")
    return which if which.ndim else str(which)


OPS: Final = (
    Op(
        "gemm",
        (
            Field("batch", default=1.0),
            Field("m"),
            Field("n"),
            Field("k"),
            Field("dtype", "dtype"),
            Field("out_dtype", "dtype", output_dtype),
            Field("tensor_core", "bool", on_tensor_cores),
            Field("weights", "text", _weights, choices=("a", "b", "none")),
            Field("slices", default=1.0),
        ),
        named=("batch", "m", "n", "k"),
        products=True,
    ),
)


class Gemm(Product):
    """Products by a library; tiles that are not given are chosen from its menu."""

    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    out_dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    tensor_core: Float[Array, "*k"] = eqx.field(converter=as_float)  # 1 or 0
    linear: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 for `nn.Linear` layouts (both operands along k): selects the CUDA-core menu."""
    a_bytes: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes of A in memory (0: m k elements; an image for implicit GEMM)."""
    a_stored: Float[Array, "*k"] = eqx.field(converter=as_float)
    b_stored: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes of an element of an operand that is a weight, as stored, else 0."""
    a_distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    b_distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes touched between two uses of an operand that is a weight, else 0."""
    gathered: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Padded channels / channels of convolutions whose patches do not overlap, else
    0."""
    k_beside: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Elements of k that lie side by side, where that is not all of it, else 0."""
    eager: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 in eager passes, where a library GEMM costs more than in a loop of its own."""
    stages: Float[Array, "*k"] = eqx.field(converter=as_float)
    split_k: Float[Array, "*k"] = eqx.field(converter=as_float)
    threads: Float[Array, "*k"] = eqx.field(converter=as_float)
    given: bool = eqx.field(static=True, default=False)
    """Whether every row carries its tile: then there is one candidate."""


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row (a split-K reduction is part of a candidate); products on CUDA
    cores whose tile is known are a class of their own."""
    weights, stored = fields["weights"], weight_bytes(fields)
    columns = {
        name: fields[name] for name in ("batch", "m", "n", "k", "dtype", "out_dtype")
    }
    columns |= {
        "tensor_core": floats(fields["tensor_core"]),
        "linear": floats((fields["layout"] == "tn") | (weights != "none")),
        "a_stored": np.where(weights == "a", stored, 0.0),
        "b_stored": np.where(weights == "b", stored, 0.0),
        "a_distance": np.where(weights == "a", context.pass_bytes, 0.0),
        "b_distance": np.where(weights == "b", context.pass_bytes, 0.0),
        "eager": context.eager,
    }
    launches = product_launches(fields, columns)
    return [*_by_core(launches, fields), *_quantisation(fields)]


def _by_core(launches: Launches, fields: Fields) -> list[Launches]:
    """Hand-made tiles as `Xgemm`, other rows on CUDA cores whose tile is given as
    `SimtGemm`, the rest as they are."""
    columns = dict(launches.columns)
    columns |= {name: fields[name] for name in ("slices", *HAND_TILE)}
    by_hand = columns["mdimc"] > 0
    given = (columns["tile_m"] > 0) & (columns["tile_n"] > 0)
    tiled = given & (columns["tensor_core"] == 0) & ~by_hand
    parts = []
    classes = ((Gemm, ~tiled & ~by_hand), (SimtGemm, tiled), (Xgemm, by_hand))
    for shape, mask in classes:
        rows = np.flatnonzero(mask)
        if rows.size:
            part = take(columns, rows)
            part = checked(part) if shape is Xgemm else part
            names = set(shape.__dataclass_fields__) & set(columns)
            part = {name: part[name] for name in names}
            key = launches.key if shape is Gemm else ()
            parts.append(
                Launches(shape, part, launches.bytes[rows], "matrix", key, rows)
            )
    return parts


def _quantisation(fields: Fields) -> list[Launches]:
    """Activations of 8-bit products with weights are quantised by a kernel of their own
    (reads 16 bit, writes 8; one CTA a row)."""
    size = np.asarray(BYTES)[fields["dtype"]]
    rows = np.flatnonzero((size < 2) & (fields["weights"] != "none"))
    if not rows.size:
        return []
    first = fields["weights"][rows] == "b"  # the activations are A
    tokens = np.where(first, fields["m"][rows], fields["n"][rows])
    elements = tokens * fields["k"][rows]
    return [
        stream_launches(
            2 * elements,
            elements,
            host="none",
            rows=rows,
            issue=8 * elements,
            ctas=tokens,
            makes=fields["dtype"][rows],
        )
    ]


def product_launches(fields: Fields, columns: dict[str, np.ndarray]) -> Launches:
    """`Gemm` launches from shape columns, with the tile of the listing's fields."""
    names = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "threads", "zero_share")
    columns = {name: fields[name] for name in names} | columns
    columns["threads"] = np.where(
        columns["threads"] > 0, columns["threads"], 32.0 * fields["warps"]
    )
    for name in ("a_bytes", "a_stored", "b_stored", "gathered", "k_beside"):
        columns.setdefault(name, np.zeros_like(columns["m"]))
    size = np.asarray(BYTES)
    batch, m, n, k = (columns[name] for name in ("batch", "m", "n", "k"))
    e = size[columns["dtype"]]
    a, b = (np.where(columns[x] > 0, columns[x], e) for x in ("a_stored", "b_stored"))
    touched = batch * (m * a + n * b) * k
    touched = touched + batch * m * n * size[columns["out_dtype"]]
    return Launches(Gemm, columns, touched, host="matrix", key=("tile_m", "tile_n"))


_SCALAR_READ: Final = 32.0
_SCALAR_WRITE: Final = 12.0
"""Lane instructions' time of an access to less than 16 B of an operand, of the result
(heads of 3,137 tokens and a vocabulary of 30,522 on an H100: traces of TimeSformer and
BERT of AMD-AGI/TraceLens); see `stream.SCALAR_ACCESS`."""
_ODD_TILE: Final = (128.0, 128.0, 0.0)
"""Tile of products whose rows are no multiple of 16 B, which bulk copies cannot take:
libraries keep one old kernel for them (names in the same traces)."""
_GATHERED: Final = 5.5
"""B/cycle/SM of operands in the first layer of a vision transformer: cudnn pads its
channels to 8, gathers them by 16 B, and converts image and weights before, all of which
this rate stands for (121 us of 4 images, 1,198 us of 128 on an H100, the same
traces)."""
_PATCH_TILE: Final = (256.0, 64.0, 1.0)
"""Its tile there, undivided."""


def _column(x: Array) -> Array:
    """Kernel axis with a candidate axis of one behind it."""
    return x[..., None]


def candidates(
    shape: Gemm, gpu: GpuSpec, tensor: Array
) -> tuple[Array, Array, Array, Array]:
    """`tile_m, tile_n, split_k, legal`, each of shape (kernels, candidates)."""
    if shape.given:
        split = _rates.given_or(_column(shape.split_k), 1.0)
        tile_m, tile_n = _column(shape.tile_m), _column(shape.tile_n)
        return tile_m, tile_n, split, jnp.ones_like(split)
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    cuda = jnp.where(shape.linear > 0, 3, 4)
    entry = jnp.where(tensor > 0, kind, cuda)
    menu = as_float(MENU)[entry]
    tile = _only_tile(shape, gpu)
    given = (shape.tile_m, shape.tile_n, shape.split_k)
    known = [_rates.given_or(x, y) for x, y in zip(given, tile, strict=True)]
    tile_m, tile_n, split = (
        _rates.given_or(_column(x), menu[..., i]) for i, x in enumerate(known)
    )
    return tile_m, tile_n, split, as_float(LEGAL)[entry]


def _only_tile(shape: Gemm, gpu: GpuSpec) -> tuple[Array, Array, Array]:
    """`tile_m, tile_n, split_k` where libraries have one kernel, else 0."""
    bulk = gpu.mma_kind > 0
    patches, odd = bulk & (shape.gathered > 0), bulk & (_scalar(shape, gpu) > 0)
    tile_m, tile_n, split = (
        jnp.where(patches, x, jnp.where(odd, y, 0.0))
        for x, y in zip(_PATCH_TILE, _ODD_TILE, strict=True)
    )
    return tile_m, tile_n, split


_FMA_FRAGMENTS: Final = 1 / 32
"""`fragments` of a warp on CUDA cores, of each operand: a block of 32 x 32."""


def fragments(kind: Array, tile_m: Array, tile_n: Array) -> tuple[Array, Array]:
    """Shared-memory reads of A and of B per multiply-add, in elements: 1/columns and
    1/rows of the block that one matrix instruction (mma.sync: one warp) reuses its
    operands over."""
    rows = jnp.stack(
        jnp.broadcast_arrays(
            jnp.minimum(tile_m / 2, 64.0),
            jnp.minimum(tile_m, 64.0),
            jnp.minimum(tile_m, 128.0) * 2,  # a pair of CTAs shares its operands
        )
    )
    cols = jnp.stack(
        jnp.broadcast_arrays(
            jnp.minimum(tile_n / 2, 64.0), tile_n, jnp.minimum(tile_n, 256.0)
        )
    )
    index = jnp.round(kind).astype(jnp.int32)
    return 1 / cols[index], 1 / rows[index]


def _pipelining(
    gpu: GpuSpec,
    stage: Array,
    usual: Array,
    ahead: Array,
    more: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """(latency of L2 that a usual step waits beyond what fits have seen, in cycles;
    share of the usual bytes in flight) of a main loop whose loads run ahead.

    With S stages S - 1 loads are under way, so a step waits 1/(S - 1) of a latency. The
    constants are fitted on libraries, whose depth nobody recorded: the `usual` stages,
    or as many `stage`s (B) as fit. More than these gain nothing.

    `ahead`: usual steps under way; `more`: resident CTAs / those at the usual depth.
    """
    fit = smooth.floor(gpu.smem_per_sm / stage)
    usual = jnp.maximum(jnp.minimum(usual, fit), 2.0)
    ahead = jnp.maximum(ahead, 0.25)  # a search may try fewer than two stages
    exposed = gpu.l2_latency * jnp.maximum(1 / ahead - 1 / (usual - 1), 0.0)
    return exposed, jnp.minimum(more(usual) * ahead / (usual - 1), 1.0)


def demand(shape: Gemm, gpu: GpuSpec, c: Corrections) -> Demand:
    """Work, geometry and path of each candidate; shape (kernels, candidates).

    Equations: `docs/physics.md`, GEMM (operand feed, wave traffic,
    Little's law) on the busy/path timeline of its section Timeline.
    """
    # a type that the GPU's tensor cores lack runs on CUDA cores
    tensor = shape.tensor_core * _rates.on_tensor_cores(gpu, shape.dtype)
    tile_m, tile_n, split, legal = candidates(shape, gpu, tensor)
    batch, m, n, k = (_column(x) for x in (shape.batch, shape.m, shape.n, shape.k))
    given_split = _column(shape.split_k) > 0
    tensor = _column(tensor)
    compute = _rates.arithmetic(gpu, shape.dtype)
    e = _column(_rates.bytes_of(compute))
    a_stored, b_stored = _column(shape.a_stored), _column(shape.b_stored)
    e_a, e_b = _rates.given_or(a_stored, e), _rates.given_or(b_stored, e)
    e_out = _column(_rates.bytes_of(shape.out_dtype))
    kind = gpu.mma_kind
    # wgmma and later take operands by bulk copies of 16 B alone
    patches = jnp.where(kind > 0, _column(shape.gathered), 0.0)
    k = k * _rates.given_or(patches, 1.0)

    # main-loop step: 128 B of K for wgmma and later, 64 B for mma.sync, 8 on CUDA cores
    usual_step = jnp.where(tensor > 0, jnp.where(kind > 0, 128.0, 64.0) / e, 8.0)
    step = _rates.given_or(_column(shape.tile_k), usual_step)
    usual_stages = jnp.where(tensor > 0, 4.0, 2.0)
    given_stages = _column(shape.stages) > 0
    stages = jnp.where(given_stages, _column(shape.stages), usual_stages)
    split = jnp.minimum(split, jnp.maximum(jnp.ceil(k / step), 1.0))
    tiles_m, tiles_n = smooth.ceil(m / tile_m), smooth.ceil(n / tile_n)
    steps = smooth.ceil(k / (split * step))
    tiles = batch * tiles_m * tiles_n
    ctas = tiles * split

    threads = jnp.where(tile_m * tile_n > 128 * 128, 256.0, 128.0)
    threads = jnp.where(tensor > 0, threads, 256.0)
    threads = _rates.given_or(_column(shape.threads), threads)
    accumulators = tile_m * tile_n / threads
    registers = jnp.minimum(accumulators + 4 * jnp.sqrt(accumulators) + 24, 255.0)
    stage = tile_m * e_a + tile_n * e_b  # bytes of one element of depth
    held = lambda depth: resident_ctas(gpu, threads, registers, depth * stage)  # noqa: E731
    resident = held(stages * step)
    exposed, in_flight = _pipelining(
        gpu, stage * usual_step, usual_stages, (stages - 1) * step / usual_step,
        lambda usual: resident / held(usual * usual_step),
    )  # fmt: skip

    flop = ctas * 2 * tile_m * tile_n * step * steps
    rows, cols = jnp.minimum(tile_m, m), jnp.minimum(tile_n, n)
    fetched = ctas * steps * jnp.minimum(step, k)
    loads = fetched * (rows * e_a + cols * e_b)
    expanded = fetched * (
        rows * _rates.expands(e_a, _column(compute))
        + cols * _rates.expands(e_b, _column(compute))
    )
    reads_a, reads_b = (
        jnp.where(tensor > 0, x, _FMA_FRAGMENTS)
        for x in fragments(kind, tile_m, tile_n)
    )
    worst = _column(misalignment(shape, compute))
    pieces = _SCALAR_READ * fetched * (rows + cols) + _SCALAR_WRITE * batch * m * n
    scalar = jnp.where(kind > 0, pieces * _column(_scalar(shape, gpu)), 0.0)
    smem_work = flop / 2 * (e_a * reads_a + e_b * reads_b) + loads

    a_plain = batch * m * k * e_a
    a_bytes = _rates.given_or(_column(shape.a_bytes), a_plain)
    b_bytes, out_bytes = batch * n * k * e_b, batch * m * n * e_out
    near = a_bytes + b_bytes + out_bytes
    capacity = c.l2_share * gpu.l2_capacity
    miss = lambda distance: smooth.miss(distance, capacity, c.l2_sharpness)  # noqa: E731
    concurrent = smooth.at_least_one(gpu.num_sms * resident / split)
    waves_bytes = c.wave_traffic * batch * wave_traffic(
        tiles_m, tiles_n, tile_m, tile_n, concurrent,
        k * e_a * m / (tiles_m * tile_m), k * e_b * n / (tiles_n * tile_n),
    )  # fmt: skip
    dram = (
        a_bytes * miss(jnp.maximum(near, _column(shape.a_distance)))
        + b_bytes * miss(jnp.maximum(near, _column(shape.b_distance)))
        + excess(waves_bytes, a_plain + b_bytes) * miss(a_bytes + b_bytes)
    )
    partial = jnp.where(split > 1, 8 * split * batch * m * n, 0.0)  # fp32, write + read

    peak = _column(_rates.tensor_peak(gpu, compute))
    half = c.operand_half_tile * peak * e / 4096  # bytes that the tensor cores eat
    fed = tile_m / (tile_m + half) * tile_n / (tile_n + half)
    efficiency = c.tensor_efficiency * fed
    efficiency *= _column(_rates.dtype_efficiency(c, compute))
    fma_peak, fma_efficiency = _rates.fma_rate(gpu, c)
    slow = 1 + c.misalignment * worst
    eager = 1 + _column(shape.eager) * (c.gemm_eager - 1)
    step_cycles = jnp.where(
        tensor > 0, c.step_cycles * step * e / 128, c.fma_step_cycles * step / 8
    )
    waits = jnp.where(given_stages, exposed * step / usual_step, 0.0)
    flow = c.in_flight * gpu.smem_per_sm / (228 * KiB)
    return make_demand(
        jnp.shape(ctas),
        tensor=jnp.where(tensor > 0, flop, 0.0),
        fma=jnp.where(tensor > 0, 0.0, flop),
        issue=_rates.EXPANSION * expanded + scalar,
        smem=smem_work,
        l2=loads,
        dram=dram,
        store_l2=out_bytes + partial,
        store_dram=out_bytes * miss(near),
        tensor_peak=peak,
        tensor_efficiency=efficiency / slow,
        fma_peak=fma_peak,
        fma_efficiency=fma_efficiency / slow,
        feed=jnp.where(patches > 0, _GATHERED, c.sm_feed / slow),
        flow=flow * jnp.where(given_stages, in_flight, 1.0),
        l2_sharing=c.tile_load_scale,
        ctas=ctas,
        resident=resident,
        own_cycles=c.own_cycles,
        path_cycles=steps * (step_cycles + waits),
        fixed_cycles=c.gemm_cycles * eager + jnp.where(split > 1, c.split_cycles, 0.0),
        launches=jnp.where(split > 1, 2.0, 1.0),
        sharpness=c.sharpness,
        sharpness_memory=c.sharpness,
        store_exposed=c.store_exposed,
        training=_column(_rates.training(c, compute)),
        tensor_energy=_column(_rates.tensor_energy(c, compute))
        * _rates.padded_energy(m * n / (tiles_m * tile_m * tiles_n * tile_n)),
        activity=_column(_rates.activity(c, shape.zero_share)),
        choice=-c.choice_split * jnp.log(split),
        # 8-bit library kernels never split K
        illegal=1 - legal * jnp.where((split == 1) | (e >= 2) | given_split, 1.0, 0.0),
        tau=jnp.where(tensor > 0, c.choice_tau, c.choice_tau_fma),
    )


def _scalar(shape: Gemm, gpu: GpuSpec) -> Array:
    """Accesses of less than 16 B by the elements of operands and result: 1 where n or k
    is odd, 1/4 at multiples of 4, none of whole 16 B."""
    worst = misalignment(shape, _rates.arithmetic(gpu, shape.dtype))
    plain = shape.a_bytes == 0  # convolutions pad their channels
    return jnp.where(plain & (worst > 0.1), 0.5 ** (3 * (1 - worst)), 0.0)


def misalignment(shape: Gemm, compute: Array) -> Array:
    """0 where n and k are multiples of 8 elements, 1 where one is odd (16-bit tensor
    kernels only): log2(8/gcd(d, 8))/3 of the worse of the two."""

    def of(x: Array) -> Array:
        gcd = sum(jnp.where(jnp.mod(x, d) == 0, d / 2, 0.0) for d in (2.0, 4.0, 8.0))
        return 1 - jnp.log2(1 + gcd) / 3  # 1 + (1, 1+2, 1+2+4) = 2, 4, 8

    k = _rates.given_or(shape.k_beside, shape.k)
    worst = jnp.maximum(
        of(jax.lax.stop_gradient(shape.n)), of(jax.lax.stop_gradient(k))
    )
    narrow = (_rates.bytes_of(compute) == 2) & (shape.tensor_core > 0)
    return jnp.where(narrow, worst, 0.0)
