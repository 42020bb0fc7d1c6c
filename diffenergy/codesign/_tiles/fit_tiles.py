"""How tiles fill an SM, and which values a search of tiles may take."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...hardware._spec import GpuSpec
from ...kernels._shared.rates import on_tensor_cores
from ...records import as_float
from .tiles import ACCUMULATORS, ELEMENT_BYTES, FIELDS, VALUES, Shapes, Tiles, legal


def crowding(
    gpu: GpuSpec, shapes: Shapes, tiles: Tiles
) -> Float[Array, " two_per_gemm"]:
    """By how much tiles pass what an SM holds, as shares of it, below 0 where they fit:
    shared memory of all products, then their accumulators. Differentiable."""
    smem = tiles.stages * (tiles.tile_m + tiles.tile_n) * tiles.tile_k
    smem = smem * element_bytes(shapes)
    room = accumulator_room(gpu, shapes) * gpu.registers_per_sm
    free = gpu.smem_per_sm - gpu.smem_reserved_per_cta
    return jnp.concatenate([smem / free, tiles.tile_m * tiles.tile_n / room]) - 1


def element_bytes(shapes: Shapes) -> Float[Array, " gemm"]:
    """Bytes of an operand's element without block scales."""
    return as_float(ELEMENT_BYTES)[shapes.dtype]


def accumulator_room(gpu: GpuSpec, shapes: Shapes) -> Float[Array, " gemm"]:
    """Most accumulators of a tile / registers of an SM."""
    tensor = shapes.tensor_core * on_tensor_cores(gpu, shapes.dtype) > 0
    kind = jnp.where(tensor, jnp.round(gpu.mma_kind).astype(jnp.int32), 0)
    return as_float(ACCUMULATORS)[kind]


def legal_values(gpu: GpuSpec, shapes: Shapes) -> dict[str, list[list[float]]]:
    """Values of each field, by product, that some legal tile has on `gpu`."""
    grid = np.stack(np.meshgrid(*VALUES.values(), indexing="ij"), -1)
    every = Tiles(*(grid[..., n].reshape(-1, 1) for n in range(len(FIELDS))))
    mask = np.asarray(legal(gpu, shapes, every)).reshape(*grid.shape[:-1], -1)
    found = {}
    for n, (name, values) in enumerate(VALUES.items()):
        others = tuple(i for i in range(len(FIELDS)) if i != n)
        known = np.array(mask.any(axis=others)).T
        found[name] = [np.array(values)[column].tolist() for column in known]
    return found
