"""Costs of matrix products in all their legal tiles."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from ...corrections import Corrections
from ...dvfs._problem.costs import row_costs
from ...estimator._estimate import Estimate, estimate_once
from ...hardware._spec import GpuSpec, OperatingPoint
from ...kernels._shared.simt import SimtGemm
from ...kernels.gemm import Gemm
from ...physics._power import COMPONENTS
from ...workload._workload import Group, Workload
from .tiles import VALUES, Product, Shapes, Tiles, legal, place

_STATIC: Final = ("idle", "leakage")
_BATCH: Final = 64
"""Tiles of every product that are evaluated at once: they fit in cache."""
_TIE: Final = 1e-9
"""Relative differences below this are rounding."""


class Launch(NamedTuple):
    """Costs of one launch of each product, quantisation of its operands left out."""

    time: Float[Array | np.ndarray, "*tile gemm"]  # s
    work: Float[Array | np.ndarray, "*tile gemm"]  # J beyond idle and leakage


def held(
    estimate: Estimate, point: OperatingPoint, products: Sequence[Product]
) -> tuple[OperatingPoint, Float[np.ndarray, " gemm"]]:
    """(clocks that each product runs at, idle power and leakage of its phase in W)."""
    phase = np.array([product.listing for product in products])
    phases = estimate.phases
    places = [COMPONENTS.index(name) for name in _STATIC]
    static = np.asarray(phases.components)[:, places].sum(1) / np.asarray(phases.time)
    rows = np.shape(phases.time)
    spread = jax.tree.map(lambda x: np.broadcast_to(x, rows)[phase], point)
    clock = np.asarray(phases.sm_clock)[phase]
    return dataclasses.replace(spread, sm_clock=clock), static[phase]


def products_of(workload: Workload, products: Sequence[Product]) -> Workload:
    """One launch of each of `products` alone, rows numbered like them; what surrounds
    them in `workload` still decides what finds its operands in L2."""
    first = np.array([product.rows[0] for product in products])
    order = np.argsort(first)
    shapes, groups = [], []
    for shape, group in zip(workload.shapes, workload.groups, strict=True):
        row, count = np.asarray(group.row), np.asarray(group.count)
        mine = isinstance(shape, Gemm | SimtGemm) & np.isin(row, first) & (count > 0)
        if mine.any():
            at = np.flatnonzero(mine)
            number = order[np.searchsorted(first[order], row[at])]
            shapes.append(jax.tree.map(lambda x, at=at: x[at], shape))
            groups.append(Group(np.ones(len(at)), number, np.asarray(group.phase)[at]))
    return Workload(
        tuple(shapes), tuple(groups), workload.phases, len(products), workload.names
    )


def legal_tiles(
    gpu: GpuSpec, shapes: Shapes
) -> tuple[Tiles, Bool[np.ndarray, "tile gemm"]]:
    """All legal tiles of each product, and which entries are some: products with fewer
    are filled up with copies. The plainest come first."""
    grid = np.array(list(itertools.product(*_plainest_first())))
    every = Tiles(*grid.T[:, :, None])
    allowed = np.asarray(_legal(gpu, shapes, every))
    counts = allowed.sum(0)
    kept = np.arange(counts.max())[:, None] < counts
    index = np.argsort(~allowed, axis=0, kind="stable")[: counts.max()]
    index = np.where(kept, index, index[:1])
    return Tiles(*np.moveaxis(grid[index], -1, 0)), kept


def _plainest_first() -> list[list[float]]:
    """Values of each field, so that among equally good tiles the first is the one that
    libraries are likelier to have: large sides, usual depth, no split."""
    plain = {"tile_m": 128.0, "tile_n": 128.0, "tile_k": 64.0, "stages": 4.0}
    logs = {name: np.log(np.array(values)) for name, values in VALUES.items()}
    return [
        [VALUES[name][i] for i in np.argsort(np.abs(x - math.log(plain.get(name, 1))))]
        for name, x in logs.items()
    ]


@jax.jit
def _legal(gpu: GpuSpec, shapes: Shapes, tiles: Tiles) -> Array:
    return legal(gpu, shapes, tiles)


def first_best(
    cost: Float[np.ndarray, "tile gemm"],
) -> Int[np.ndarray, " gemm"]:
    """First tile of each product whose cost is the least, but for rounding."""
    return np.argmax(cost <= cost.min(0) * (1 + _TIE), axis=0)


def launch_costs(
    workload: Workload, gpu: GpuSpec, clocks: OperatingPoint, corrections: Corrections
) -> Launch:
    """One launch of each row of `products_of`, at the clocks of its row."""
    costs = row_costs(workload, gpu, clocks, corrections)
    return Launch(costs.time, costs.work)


def tile_costs(
    workload: Workload,
    tiles: Tiles,
    gpu: GpuSpec,
    clocks: OperatingPoint,
    corrections: Corrections,
) -> Launch:
    """`launch_costs` with each of `tiles` (axes tile, gemm)."""
    owner = jnp.arange(workload.num_rows)

    def one(tile: Tiles) -> Launch:
        return launch_costs(place(workload, owner, tile), gpu, clocks, corrections)

    return lax.map(one, tiles, batch_size=_BATCH)


def whole_costs(
    workload: Workload,
    owner: Int[Array, " row"],
    tiles: Tiles,
    gpu: GpuSpec,
    point: OperatingPoint,
    corrections: Corrections,
) -> tuple[Float[Array, " choice"], Float[Array, " choice"]]:
    """(time in s, energy in J) of the whole workload with each of `tiles` (axes choice,
    gemm) in the rows of `owner`, host and limiter included."""

    def one(tile: Tiles) -> tuple[Array, Array]:
        found = estimate_once(place(workload, owner, tile), gpu, point, corrections)
        return found.time, found.energy

    return jax.vmap(one)(tiles)
