"""All legal tiles of every product, and the nearest that fit."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from ...hardware import GpuSpec
from .tiles import FIELDS, VALUES, Shapes, Tiles, accumulator_room, element_bytes, legal

_ROOMY: Final = {"smem_per_sm": 1e10, "registers_per_sm": 2.0**24}
"""Shared memory (B) and registers of an SM on which every tile fits."""
_PLAIN: Final = {"tile_m": 128.0, "tile_n": 128.0, "tile_k": 64.0, "stages": 4.0}
"""Sizes that libraries are likelier to have: large sides, usual depth, no split."""


def legal_values(gpu: GpuSpec, shapes: Shapes) -> dict[str, list[list[float]]]:
    """Values of each field, by product, that some legal tile has on `gpu`."""
    grid = _grid(VALUES.values())
    mask = _legal(gpu, shapes, grid)
    return {
        name: [np.unique(values[allowed]).tolist() for allowed in mask.T]
        for name, values in zip(FIELDS, grid.T, strict=True)
    }


def legal_tiles(
    gpu: GpuSpec, shapes: Shapes
) -> tuple[Tiles, Bool[np.ndarray, "tile gemm"]]:
    """All legal tiles of each product, and which entries are some: products with fewer
    are filled up with copies. The plainest come first."""
    logs = {name: np.log(np.array(values)) for name, values in VALUES.items()}
    grid = _grid(
        [VALUES[name][i] for i in np.argsort(np.abs(x - math.log(_PLAIN.get(name, 1))))]
        for name, x in logs.items()
    )
    allowed = _legal(gpu, shapes, grid)
    counts = allowed.sum(0)
    real = np.arange(counts.max())[:, None] < counts
    index = np.argsort(~allowed, axis=0, kind="stable")[: counts.max()]
    index = np.where(real, index, index[:1])
    return Tiles(*np.moveaxis(grid[index], -1, 0)), real


def _grid(values: Iterable[Sequence[float]]) -> Float[np.ndarray, "tile 5"]:
    """Every combination of values of the fields."""
    # an array of numbers; `estimator.combinations` makes a dictionary of each of 22,000
    return np.array(list(itertools.product(*values)))


def _legal(
    gpu: GpuSpec, shapes: Shapes, grid: Float[np.ndarray, "tile 5"]
) -> Bool[np.ndarray, "tile gemm"]:
    return np.asarray(_jitted(gpu, shapes, Tiles(*grid.T[:, :, None])))


_jitted = jax.jit(legal)


class _Choices(NamedTuple):
    """Tiles that a product can have, with what they need of an SM."""

    tiles: Float[np.ndarray, "tile 5"]
    smem: Float[np.ndarray, " tile"]  # B
    registers: Float[np.ndarray, " tile"]


class TileTable:
    """Legal tiles of the products of a search, on SMs of any size."""

    def __init__(self, gpu: GpuSpec, shapes: Shapes):
        most = {name: getattr(gpu, name) * 0 + x for name, x in _ROOMY.items()}
        roomy = dataclasses.replace(gpu, **most)
        grid = _grid(VALUES.values())
        mask = _legal(roomy, shapes, grid)
        self.reserved = float(gpu.smem_reserved_per_cta)
        sizes, rooms = element_bytes(shapes), accumulator_room(gpu, shapes)
        self._products = []
        for column, size, room in zip(mask.T, sizes, rooms, strict=True):
            m, n, k, stages, _ = grid[column].T
            order = np.argsort(stages * (m + n) * k)  # of rising shared memory
            smem, registers = stages * (m + n) * k * float(size), m * n / float(room)
            choices = _Choices(grid[column][order], smem[order], registers[order])
            self._products.append(choices)

    def __call__(
        self,
        tiles: Float[np.ndarray, "design 5 product"],
        smem: Float[np.ndarray, " design"],
        registers: Float[np.ndarray, " design"],
    ) -> Float[np.ndarray, "design 5 product"]:
        """The nearest tile (in logarithms) that fits an SM with `smem` B of shared
        memory and `registers`; the one of least shared memory where none does."""
        nearest = tiles.copy()
        for n, choices in enumerate(self._products):
            fits = choices.smem <= smem[:, None] - self.reserved
            fits &= choices.registers <= registers[:, None]
            logs = np.log(tiles[:, None, :, n]) - np.log(choices.tiles)
            away = np.where(fits, (logs**2).sum(axis=-1), np.inf)
            nearest[:, :, n] = choices.tiles[np.argmin(away, axis=1)]
        return nearest
