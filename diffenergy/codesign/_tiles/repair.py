"""`TileTable`: the nearest legal tile of every product, its five fields together."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from ...hardware._spec import GpuSpec
from .fit_tiles import accumulator_room, element_bytes
from .tiles import FIELDS, VALUES, Shapes, Tiles, legal

_ENDLESS = 1e12
"""Shared memory (B) and registers of an SM on which every tile fits."""


@dataclasses.dataclass(frozen=True)
class _Choices:
    """Tiles that a product can have: their fields, shared memory (B) and the registers
    of an SM that they need."""

    tiles: Float[np.ndarray, "tile 5"]
    smem: Float[np.ndarray, " tile"]
    registers: Float[np.ndarray, " tile"]


class TileTable:
    """Legal tiles of the products of a search, on SMs of any size."""

    def __init__(self, gpu: GpuSpec, shapes: Shapes):
        roomy = dataclasses.replace(
            gpu,
            smem_per_sm=gpu.smem_per_sm * 0 + _ENDLESS,
            registers_per_sm=gpu.registers_per_sm * 0 + _ENDLESS,
        )
        grid = np.stack(np.meshgrid(*VALUES.values(), indexing="ij"), -1)
        grid = grid.reshape(-1, len(FIELDS))
        every = Tiles(*(column[:, None] for column in grid.T))
        mask = np.asarray(legal(roomy, shapes, every))
        self.reserved = float(gpu.smem_reserved_per_cta)
        sizes, rooms = element_bytes(shapes), accumulator_room(gpu, shapes)
        self._products = [
            _choices(grid[column], float(size), float(room))
            for column, size, room in zip(mask.T, sizes, rooms, strict=True)
        ]

    def __call__(
        self,
        tiles: Float[np.ndarray, "design 5 product"],
        smem: Float[np.ndarray, " design"],
        registers: Float[np.ndarray, " design"],
    ) -> Float[np.ndarray, "design 5 product"]:
        """The nearest tile (in logarithms) that fits an SM with `smem` B of shared
        memory and `registers`; the one of least shared memory where none does."""
        found = tiles.copy()
        for n, known in enumerate(self._products):
            fits = known.smem <= smem[:, None] - self.reserved
            fits &= known.registers <= registers[:, None]
            found[:, :, n] = known.tiles[_nearest(known, tiles[:, :, n], fits)]
        return found


def _choices(tiles: Float[np.ndarray, "tile 5"], size: float, room: float) -> _Choices:
    m, n, k, stages = tiles.T[:4]
    order = np.argsort(stages * (m + n) * k)
    smem, registers = stages * (m + n) * k * size, m * n / room
    return _Choices(tiles[order], smem[order], registers[order])


def _nearest(
    known: _Choices,
    tiles: Float[np.ndarray, "design 5"],
    fits: Bool[np.ndarray, "design tile"],
) -> np.ndarray:
    logs = np.log(known.tiles)
    away = ((np.log(tiles)[:, None] - logs) ** 2).sum(axis=-1)
    return np.argmin(np.where(fits, away, np.inf), axis=1)
