"""Costs of matrix products in all their legal tiles."""

import dataclasses
from collections.abc import Sequence
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ...corrections import Corrections
from ...dvfs._problem.costs import Costs, row_costs
from ...estimator._answer.records import Estimate
from ...estimator._estimate import estimate_once
from ...hardware._spec import GpuSpec, OperatingPoint
from ...kernels.gemm import Gemm, SimtGemm
from ...workload._workload import Group, Workload
from .tiles import Product, Tiles, place

_BATCH: Final = 64
"""Tiles of every product that are evaluated at once: they fit in cache."""
_TIE: Final = 1e-9
"""Relative differences below this are rounding."""


def held(
    estimate: Estimate, point: OperatingPoint, products: Sequence[Product]
) -> tuple[OperatingPoint, Float[np.ndarray, " gemm"]]:
    """(clocks that each product runs at, idle power and leakage of its phase in W)."""
    phase = np.array([product.listing for product in products])
    phases = estimate.phases
    rows = np.shape(phases.time)
    spread = jax.tree.map(lambda x: np.broadcast_to(x, rows)[phase], point)
    clock = np.asarray(phases.sm_clock)[phase]
    static = np.asarray(phases.static_power)[phase]
    return dataclasses.replace(spread, sm_clock=clock), static


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


def first_best(cost: Float[np.ndarray, "tile gemm"]) -> Int[np.ndarray, " gemm"]:
    """First tile of each product whose cost is the least, but for rounding."""
    return np.argmax(cost <= cost.min(0) * (1 + _TIE), axis=0)


def tile_costs(
    workload: Workload,
    tiles: Tiles,
    gpu: GpuSpec,
    clocks: OperatingPoint,
    corrections: Corrections,
) -> Costs:
    """`row_costs` of `products_of` with each of `tiles` (axes tile, gemm)."""
    owner = jnp.arange(workload.num_rows)

    def one(tile: Tiles) -> Costs:
        return row_costs(place(workload, owner, tile), gpu, clocks, corrections)

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
