"""The best legal tile of every matrix product of a workload, by trying all of them."""

import dataclasses
from collections.abc import Sequence
from typing import Final, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from ...compiling import call_compiled
from ...corrections import Corrections
from ...dvfs import Costs, row_costs
from ...estimator import Estimate, estimate_once
from ...hardware import GpuCard, GpuSpec, OperatingPoint, default_point
from ...kernels import CUDA_BATCHED, CUDA_LINEAR, LEGAL_TILES, TILE_MENU
from ...kernels.gemm import Gemm, SimtGemm
from ...nodes import Site
from ...workload import LaunchGroup, Listing, Workload, assemble
from .grid import legal_tiles
from .tiles import (
    FIELDS,
    Product,
    Tiles,
    check_searchable,
    gemm_rows,
    owners,
    place,
    shapes_of,
    usual_tiles,
    with_tiles,
)

Goal = Literal["time", "energy"]
_PRICES: Final = (0.25, 0.5, 1.0, 2.0)
"""Prices of time beside energy, in mean powers of the workload."""
_BATCH: Final = 64
"""Tiles of every product that are evaluated at once: they fit in cache."""
_TIE: Final = 1e-9
"""Relative differences below this are rounding."""


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The best tile of a product, and one launch with it and as libraries choose.

    Times in s, energies in J: what the launch adds plus idle power and leakage while it
    runs.
    """

    product: Product
    tile: dict[str, float]
    time: float
    energy: float
    default_time: float
    default_energy: float


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Tiles of a workload with the least time or energy, and what the whole costs, the
    power limit included, with them and as libraries choose (s, J).

    `tried`: legal tiles that were evaluated; `listings`: with the tiles.
    """

    goal: Goal
    products: tuple[Tuned, ...]
    time: float
    energy: float
    default_time: float
    default_energy: float
    tried: int
    listings: tuple[Listing, ...]


def tune(
    listings: Sequence[Listing],
    card: GpuCard,
    corrections: Corrections,
    point: OperatingPoint | None = None,
    goal: Goal = "time",
    site: Site | None = None,
) -> Tuning:
    """The legal tile of least time or energy for every matrix product of `listings`.

    All tiles are evaluated at the clock that the limiter holds with the library's
    choice. At a power limit, energy saved is clock gained: the tiles of least
    energy + price x time are found for several prices of time, the whole workload is
    estimated with each, limiter included, and the best is returned. `point` defaults to
    the highest clocks. Rows with a tile keep it. On a `site` energy is that at the
    wall.

    The library's choice is the mixture of `estimate`; on CUDA cores the fastest tile of
    the library's menu, since products with and without a tile are different classes
    there.

    Raises `ValueError` if there is no product to tune.
    """
    check_searchable(card)
    products = gemm_rows(listings)
    if not products:
        raise ValueError(
            "the workload has no `gemm` whose tile is free; leave the tile fields of "
            "its matrix products out."
        )
    point = default_point(card.spec) if point is None else point

    def total(listings: Sequence[Listing]) -> Estimate:
        arguments = (assemble(listings), card.spec, point, corrections)
        return call_compiled(estimate_once, arguments)

    default = total(listings)
    costs = _costs(listings, products, default, point, card.spec, corrections)
    picks = costs.picks(float(default.power))
    tiles = [costs.tiles_at(pick) for pick in picks]
    workload = assemble(with_tiles(listings, tiles[0]))
    owner = owners(products, workload.num_launches)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *tiles)
    arguments = (workload, owner, stacked, card.spec, point, corrections)
    wholes = [np.asarray(x) for x in call_compiled(whole_costs, arguments)]
    time, energy = wholes
    if site is not None:
        energy = time * site.power(energy / time, 1)
    winner = int(np.argmin(time if goal == "time" else energy))
    on_cuda = np.flatnonzero([_on_cuda(product) for product in products])
    if on_cuda.size:
        library = jax.tree.map(lambda x: x[on_cuda], costs.tiles_at(costs.library))
        picked = [products[i] for i in on_cuda]
        default = total(with_tiles(listings, library, picked))
    return Tuning(
        goal,
        costs.tuned(products, picks[winner]),
        time=float(wholes[0][winner]),
        energy=float(wholes[1][winner]),
        default_time=float(default.time),
        default_energy=float(default.energy),
        tried=int(np.isfinite(costs.time).sum()),
        listings=tuple(with_tiles(listings, tiles[winner])),
    )


@dataclasses.dataclass(frozen=True)
class _Costs:
    """One launch of every product in every legal tile, and as libraries choose; s, J,
    infinite for entries that are no tile."""

    tiles: Tiles  # axes tile, gemm
    time: Float[np.ndarray, "tile gemm"]
    energy: Float[np.ndarray, "tile gemm"]
    library: Int[np.ndarray, " gemm"]  # fastest tile of the menu, for CUDA cores
    library_time: Float[np.ndarray, " gemm"]
    library_energy: Float[np.ndarray, " gemm"]

    def picks(self, power: float) -> list[Int[np.ndarray, " gemm"]]:
        """Tiles of least energy, energy + price x time, and time; `power`: W."""
        weighed = [self.energy + price * power * self.time for price in _PRICES]
        return [first_best(cost) for cost in (self.energy, *weighed, self.time)]

    def tiles_at(self, index: Int[np.ndarray, " gemm"]) -> Tiles:
        """The tile of each product at `index`."""
        return jax.tree.map(lambda x: x[index, np.arange(len(index))], self.tiles)

    def tuned(
        self, products: Sequence[Product], best: Int[np.ndarray, " gemm"]
    ) -> tuple[Tuned, ...]:
        """Every product with its best tile."""
        chosen = self.tiles_at(best)
        return tuple(
            Tuned(
                product,
                {name: float(getattr(chosen, name)[i]) for name in FIELDS},
                float(self.time[best[i], i]),
                float(self.energy[best[i], i]),
                float(self.library_time[i]),
                float(self.library_energy[i]),
            )
            for i, product in enumerate(products)
        )


def _costs(
    listings: Sequence[Listing],
    products: Sequence[Product],
    default: Estimate,
    point: OperatingPoint,
    gpu: GpuSpec,
    corrections: Corrections,
) -> _Costs:
    shapes = shapes_of(products)
    start = with_tiles(listings, usual_tiles(gpu, shapes))
    free, tiled = (products_of(assemble(x), products) for x in (listings, start))
    clocks, static = limited_clocks(default, point, products)
    tiles, real = legal_tiles(gpu, shapes)
    arguments = (gpu, clocks, corrections)
    mixed = Costs(*map(np.asarray, call_compiled(row_costs, (free, *arguments))))
    tile_launches = Costs(
        *map(np.asarray, call_compiled(tile_costs, (tiled, tiles, *arguments)))
    )
    time = np.where(real, tile_launches.time, np.inf)
    energy = np.where(real, tile_launches.work + static * tile_launches.time, np.inf)
    library = first_best(np.where(_in_menu(products, tiles), time, np.inf))
    at = (library, np.arange(len(library)))
    on_cuda = np.array([_on_cuda(product) for product in products])
    return _Costs(
        tiles,
        time,
        energy,
        library,
        np.where(on_cuda, time[at], mixed.time),
        np.where(on_cuda, energy[at], mixed.work + static * mixed.time),
    )


def _on_cuda(product: Product) -> bool:
    return not product.kernel["tensor_core"]


def _in_menu(
    products: Sequence[Product], tiles: Tiles
) -> Bool[np.ndarray, "tile gemm"]:
    """Whether a library has each of `tiles` on its menu for CUDA cores."""
    sizes = np.stack([tiles.tile_m, tiles.tile_n, tiles.split_k], -1)
    kernels = [product.kernel for product in products]
    # both operands lie along k, as `kernels/gemm` has it
    linear = [x.get("layout") == "tn" or x["weights"] != "none" for x in kernels]
    entry = np.where(linear, CUDA_LINEAR, CUDA_BATCHED)
    same = (sizes[:, :, None] == TILE_MENU[entry]).all(-1)
    return (same & (LEGAL_TILES[entry] > 0)).any(-1)


# --- costs of products in their tiles


def limited_clocks(
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
            groups.append(
                LaunchGroup(np.ones(len(at)), number, np.asarray(group.phase)[at])
            )
    return Workload(tuple(shapes), tuple(groups), workload.phases, workload.names)


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
    owner = jnp.arange(len(clocks.sm_clock))

    # not `at_points`: thousands of tiles are one array here, not a workload each
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

    # not `at_points`, which would fill six workloads up to 64
    def one(tile: Tiles) -> tuple[Array, Array]:
        priced = estimate_once(place(workload, owner, tile), gpu, point, corrections)
        return priced.time, priced.energy

    return jax.vmap(one)(tiles)
