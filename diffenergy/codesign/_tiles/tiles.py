"""Tiles of matrix products: which exist, which are legal, and where they go."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from ...dtypes import BYTES, code
from ...hardware import GpuCard, GpuSpec
from ...kernels import TILE_FIELDS, on_tensor_cores
from ...kernels.gemm import Gemm, SimtGemm
from ...records import Record, as_float, as_index
from ...workload import Kernel, Listing, Workload

SIDES: Final = (16.0, 32.0, 64.0, 96.0, 128.0, 160.0, 192.0, 256.0)
VALUES: Final[Mapping[str, tuple[float, ...]]] = {
    "tile_m": SIDES,
    "tile_n": SIDES,
    "tile_k": (8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0),
    "stages": (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
    "split_k": (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0),
}
"""Values of each field of a tile, over all kinds of matrix units; `legal` says which go
together. Sides are those of the menus that libraries choose from."""
FIELDS: Final = tuple(VALUES)

_POWERS: Final = (16.0, 32.0, 64.0, 128.0, 256.0)
"""Sides of mma.sync kernels: CUTLASS and cuBLAS name no others for it."""
_WARP_ROWS: Final = 64.0
"""Rows of a wgmma or tcgen05 instruction; the other side may be any multiple of 8."""
_DEPTH: Final = (64.0, 128.0, 128.0, 256.0)
"""Bytes of k of a main-loop step by MMA kind (`kernels/gemm`); twice as much is
legal too. cuBLAS names steps of 32 and 64 elements for 16-bit mma.sync kernels,
`nvMatmulHeuristics` 64 and 128 for wgmma."""
_SIMT_SIDES: Final = (32.0, 64.0, 128.0, 256.0)
_SIMT_AREA: Final = 2048.0
"""Smaller ones (32 x 32) run sliced, which a tile alone does not say."""
_SIMT_STEP, _SIMT_STAGES = 8.0, 2.0
"""The one main loop of CUDA-core kernels that `kernels/gemm/simt.py` is fitted on."""
_ELEMENT_BYTES: Final = tuple(2.0 ** np.floor(np.log2(size)) for size in BYTES)
_ACCUMULATORS: Final = (0.5, 0.75, 0.75, 0.75)
"""Most accumulators / register file by MMA kind: 256 x 128 for mma.sync, which holds
its operands in registers too, and 192 x 256 later, the largest of the menus."""


class Tiles(Record):
    """One tile for each matrix product."""

    tile_m: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    tile_n: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    tile_k: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    stages: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    split_k: Float[Array, "*gemm"] = eqx.field(converter=as_float)


class Shapes(Record):
    """Sizes and types of matrix products, as `legal` needs them."""

    m: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    n: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    k: Float[Array, "*gemm"] = eqx.field(converter=as_float)
    dtype: Int[Array, "*gemm"] = eqx.field(converter=as_index)  # code
    tensor_core: Float[Array, "*gemm"] = eqx.field(converter=as_float)  # 1 or 0


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product of a workload, whose tile is free.

    `rows`: its rows in the listings, numbered through all of them as in `Group.row`;
    `listing`: which listing they are of; `count`: its launches; `kernel`: its fields.
    """

    rows: tuple[int, ...]
    listing: int
    count: float
    kernel: Mapping[str, Any]


def gemm_rows(listings: Sequence[Listing]) -> tuple[Product, ...]:
    """The matrix products of `listings` (as `assemble` takes them) whose tile is free.

    Rows with any tile field stay as they are: a caller's tile always wins. Rows of one
    listing that differ in `count` alone are one product.
    """
    alike: dict[tuple, list[tuple[int, Kernel]]] = {}
    every = ((i, kernel) for i, x in enumerate(listings) for kernel in x.kernels)
    for number, (place, kernel) in enumerate(every):
        has_tile = any(kernel.get(name, 0) for name in _TILE_NAMES)
        if kernel["op"] == "gemm" and kernel["count"] > 0 and not has_tile:
            shape = {name: x for name, x in kernel.items() if name != "count"}
            key = (place, *sorted(shape.items()))
            alike.setdefault(key, []).append((number, kernel))
    return tuple(
        Product(
            tuple(number for number, _ in rows),
            key[0],
            float(sum(kernel["count"] for _, kernel in rows)),
            rows[0][1],
        )
        for key, rows in alike.items()
    )


def check_searchable(card: GpuCard):
    """Raises `ValueError` for a chip whose legal tiles are not known."""
    if card.mma == "systolic":
        raise ValueError(
            f"`gpu` is {card.name}, whose systolic arrays have other tiles than those "
            "that are searched; leave tiles out, the library's are chosen."
        )


_TILE_NAMES: Final = tuple(field.name for field in TILE_FIELDS)


def shapes_of(products: Sequence[Product]) -> Shapes:
    """Sizes of `products`, axis gemm."""
    kernels = [product.kernel for product in products]
    sizes = {
        name: np.array([kernel[name] for kernel in kernels], float)
        for name in ("m", "n", "k", "tensor_core")
    }
    dtype = np.array([code(str(kernel["dtype"])) for kernel in kernels], int)
    return Shapes(**sizes, dtype=dtype)


def with_tiles(
    listings: Sequence[Listing], tiles: Tiles, products: Sequence[Product] | None = None
) -> list[Listing]:
    """`listings` with `tiles` in the rows of `products` (None: all of `gemm_rows`).

    The workload of these listings has the same rows, and these products have one
    candidate each, so that `place` can change it.
    """
    tile_of: dict[int, dict[str, float]] = {}
    products = gemm_rows(listings) if products is None else products
    for i, product in enumerate(products):
        tile = {name: float(getattr(tiles, name)[i]) for name in FIELDS}
        tile_of |= dict.fromkeys(product.rows, tile)
    numbers = iter(range(sum(len(listing.kernels) for listing in listings)))
    return [
        dataclasses.replace(
            listing,
            kernels=tuple(x | tile_of.get(next(numbers), {}) for x in listing.kernels),
        )
        for listing in listings
    ]


def owners(products: Sequence[Product], room: int) -> Int[np.ndarray, " row"]:
    """Index of the product that each of `room` listing rows belongs to; -1 for others
    and for those that there are not."""
    owner = np.full(room, -1)
    for i, product in enumerate(products):
        owner[list(product.rows)] = i
    return owner


def place(
    workload: Workload, owner: Int[Array | np.ndarray, " row"], tiles: Tiles
) -> Workload:
    """`workload` with `tiles` (axis gemm) in the launches of the rows that have an
    `owner` (of `owners`).

    Pure and differentiable in the tiles; `jax.vmap` over them. `workload` is that of
    `with_tiles`: products that have one candidate each.
    """
    owner = jnp.asarray(owner)

    def placed(shape: Record, row: Int[Array, " k"]) -> Record:
        if not isinstance(shape, Gemm | SimtGemm):
            return shape
        index = owner[row]
        chosen = {
            name: jnp.where(
                index >= 0, getattr(tiles, name)[index], getattr(shape, name)
            )
            for name in FIELDS
        }
        return dataclasses.replace(shape, **chosen)

    pairs = zip(workload.shapes, workload.groups, strict=True)
    shapes = tuple(placed(shape, group.row) for shape, group in pairs)
    return dataclasses.replace(workload, shapes=shapes)


def legal(gpu: GpuSpec, shapes: Shapes, tiles: Tiles) -> Bool[Array, "*gemm"]:
    """Whether a kernel for `shapes` can be built with `tiles` on `gpu`.

    A tile that is larger than the product is legal, as libraries run them. Leading axes
    of `shapes` and `tiles` broadcast. The numbers are taken as whole.
    """
    e = element_bytes(shapes)
    steps = jnp.ceil(shapes.k / tiles.tile_k)
    split = tiles.split_k <= steps
    split &= (tiles.split_k == 1) | (e >= 2)  # 8-bit library kernels never split
    fits = shared_memory(shapes, tiles) <= gpu.smem_per_sm - gpu.smem_reserved_per_cta
    accumulators = tiles.tile_m * tiles.tile_n
    fits &= accumulators <= accumulator_room(gpu, shapes) * gpu.registers_per_sm
    on_menu = [_in(getattr(tiles, name), VALUES[name]) for name in FIELDS]
    everywhere = split & fits & jnp.all(jnp.stack(jnp.broadcast_arrays(*on_menu)), 0)
    on_tensor = _tensor_legal(gpu, e, tiles)
    return everywhere & jnp.where(
        _on_tensor(gpu, shapes), on_tensor, _simt_legal(tiles)
    )


def _tensor_legal(gpu: GpuSpec, e: Array, tiles: Tiles) -> Array:
    """Sides and depth on tensor cores."""
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    m, n = tiles.tile_m, tiles.tile_n
    # below 64 on both sides no library has a kernel, and no constant is fitted
    powers = _in(m, _POWERS) & _in(n, _POWERS) & (jnp.maximum(m, n) >= _WARP_ROWS)
    rows = (m % _WARP_ROWS == 0) | (n % _WARP_ROWS == 0)  # of either operand
    depth = tiles.tile_k * e / as_float(_DEPTH)[kind]
    return jnp.where(kind == 0, powers, rows) & _in(depth, (1.0, 2.0))


def _simt_legal(tiles: Tiles) -> Array:
    """Whether `kernels/gemm/simt.py` knows tiles: those of cuBLAS."""
    return (
        _in(tiles.tile_m, _SIMT_SIDES)
        & _in(tiles.tile_n, _SIMT_SIDES)
        & (tiles.tile_m * tiles.tile_n >= _SIMT_AREA)
        & (tiles.tile_k == _SIMT_STEP)
        & (tiles.stages == _SIMT_STAGES)
    )


def crowding(
    gpu: GpuSpec, shapes: Shapes, tiles: Tiles
) -> Float[Array, " two_per_gemm"]:
    """By how much tiles pass what an SM holds, as shares of it, below 0 where they fit:
    shared memory of all products, then their accumulators. Differentiable."""
    room = accumulator_room(gpu, shapes) * gpu.registers_per_sm
    free = gpu.smem_per_sm - gpu.smem_reserved_per_cta
    smem = shared_memory(shapes, tiles) / free
    return jnp.concatenate([smem, tiles.tile_m * tiles.tile_n / room]) - 1


def shared_memory(shapes: Shapes, tiles: Tiles) -> Float[Array, "*gemm"]:
    """B of the operands of all stages."""
    elements = tiles.stages * (tiles.tile_m + tiles.tile_n) * tiles.tile_k
    return elements * element_bytes(shapes)


def element_bytes(shapes: Shapes) -> Float[Array, "*gemm"]:
    """Bytes of an operand's element; block scales fill neither instructions nor shared
    memory."""
    return as_float(_ELEMENT_BYTES)[shapes.dtype]


def accumulator_room(gpu: GpuSpec, shapes: Shapes) -> Float[Array, "*gemm"]:
    """Most accumulators of a tile / registers of an SM."""
    kind = jnp.round(gpu.mma_kind).astype(jnp.int32)
    return as_float(_ACCUMULATORS)[jnp.where(_on_tensor(gpu, shapes), kind, 0)]


def _on_tensor(gpu: GpuSpec, shapes: Shapes) -> Bool[Array, "*gemm"]:
    return shapes.tensor_core * on_tensor_cores(gpu, shapes.dtype) > 0


def _in(x: Array, values: Sequence[float]) -> Array:
    return jnp.any(x[..., None] == as_float(values), -1)


def usual_tiles(gpu: GpuSpec, shapes: Shapes) -> Tiles:
    """A legal tile for each of `shapes` to start from: 128 x 128 (128 x 64 on CUDA
    cores), cut to a short side, with the default step, four stages if they fit, and no
    split."""
    tensor, e = np.asarray(_on_tensor(gpu, shapes)), np.asarray(element_bytes(shapes))
    m, n = (
        2.0 ** np.ceil(np.log2(np.minimum(np.asarray(x), 128.0)))
        for x in (shapes.m, shapes.n)
    )
    m = np.maximum(m, np.where(tensor, 16, 32))
    n = np.where(tensor, np.maximum(n, np.where(m < 64, 64, 16)), 64)
    step = np.where(tensor, _DEPTH[round(float(gpu.mma_kind))] / e, _SIMT_STEP)
    room = np.asarray(gpu.smem_per_sm - gpu.smem_reserved_per_cta)
    fit = np.floor(room / ((m + n) * step * e))
    stages = np.where(tensor, np.clip(fit, 2, 4), _SIMT_STAGES)
    return Tiles(m, n, step, stages, np.ones_like(m))
