"""Workloads, a GPU and what may change -> `Problem`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array

from ...corrections import Corrections
from ...hardware import OperatingPoint
from ...nodes import Site
from ...plans import Pipeline, Plan, Steps
from ...records import as_float, as_index
from ...workload import Listing, assemble
from .._space.axes import Axis, axes
from .._space.ranges import Range
from .._space.silicon import silicon_of
from .._space.task import Member, Objective, Task
from .._tiles.grid import legal_values
from .._tiles.tiles import (
    FIELDS,
    Product,
    Tiles,
    check_searchable,
    gemm_rows,
    owners,
    shapes_of,
    usual_tiles,
    with_tiles,
)
from .exact import CUSTOM, GOALS
from .problem import Problem, check_goals

if TYPE_CHECKING:
    from ...hardware import GpuCard


@dataclasses.dataclass(frozen=True)
class Listed:
    """One workload of a mix, as the search takes it.

    `listings`: of its phases, complete (`workload.unlisted.complete`); `weight`: how
    often it runs; `memory`: bytes of weights and KV cache (0: not known); `tokens`:
    that one run puts out (0: none); `plan`: GPUs that share it, `steps` and `order`:
    how its phases make a step of training on them; `site`: where the boards stand.
    """

    listings: Sequence[Listing]
    weight: float = 1.0
    memory: float = 0.0
    tokens: float = 0.0
    name: str = ""
    plan: Plan | None = None
    steps: Steps | None = None
    order: Pipeline | None = None
    site: Site | None = None

    @property
    def network(self) -> float:
        """B/s of a GPU's network card; infinite where nothing passes one."""
        if self.steps is None or not np.any(self.steps.far):
            return math.inf
        return float(self.steps.network)


def build(
    parts: Sequence[Listed],
    card: "GpuCard",
    ranges: Sequence[Range],
    goals: Sequence[str] | Objective = ("energy",),
    limits: Mapping[str, float] | None = None,
    tiles: bool = False,
    point: OperatingPoint | None = None,
    corrections: Corrections | None = None,
    price: float = 1.0,
    still: bool = False,
) -> Problem:
    """Problem of making `goals`, or a function of an `Estimate`, small over designs
    that grow out of `card`.

    - `parts`: the mix; time and energy are sums over it, weight times each.
    - `ranges`: numbers of the GPU and operating point to vary; `tiles`: those of every
      matrix product whose tile is free, too.
    - `limits`: by metric (`exact.GOALS`, ttft, tpot, power), SI; DRAM capacity always
      is one where the memory that a workload needs is known.
    - `point`: where designs run; None, or NaN in a field: at their own highest clock
      and TDP. `price`: of silicon per mm2. `still`: no number has to vary.

    Raises `ValueError` for what cannot be varied, wanted or limited.
    """
    custom = goals if callable(goals) else None
    goals = (CUSTOM,) if callable(goals) else tuple(goals)
    check_goals(goals)
    all_axes = axes(card, ranges, min(part.network for part in parts))
    if point is None:
        point = OperatingPoint(math.nan, math.nan, math.nan, math.nan, 0.0)
    if tiles:
        check_searchable(card)
    grouped = [gemm_rows(part.listings) if tiles else () for part in parts]
    products = [product for group in grouped for product in group]
    if tiles and not products:
        raise ValueError("`tiles` are varied, but no matrix product has a free tile.")
    if not all_axes and not products and not still:
        raise ValueError("nothing is varied; name at least one field.")
    shapes = shapes_of(products)
    usual = usual_tiles(card.spec, shapes)
    firsts = np.cumsum([0, *map(len, grouped)])
    members = [
        _member(part, group, int(first), usual)
        for part, group, first in zip(parts, grouped, firsts, strict=False)
    ]
    task = Task(
        tuple(members),
        card.spec,
        point,
        card.spec.corrections if corrections is None else corrections,
        silicon_of(card),
        as_float(price),
        **_bounds(all_axes),
        shapes=shapes,
        names=tuple(entry.name for entry in ranges),
        custom=custom,
    )
    metrics = _known_metrics(parts, task)
    limits = _limits(goals, limits or {}, metrics)
    plain = None
    if products:
        all_axes += _tile_axes(card.spec, shapes, usual)
        bare = tuple(_member(p, (), 0, usual) for p in parts)
        plain = dataclasses.replace(task, members=bare)
        task = dataclasses.replace(task, **_bounds(all_axes))
    about = tuple(
        _described(product, parts, n)
        for n, group in enumerate(grouped)
        for product in group
    )
    return Problem(task, all_axes, goals, limits, about, frozenset(metrics), plain)


def _member(
    part: Listed, products: Sequence[Product], first: int, usual: Tiles
) -> Member:
    """A workload of the mix; `first`: number of its first product in the mix, whose
    products begin with the tiles `usual`."""
    own_tiles = jax.tree.map(lambda x: x[first : first + len(products)], usual)
    listings = with_tiles(part.listings, own_tiles) if products else part.listings
    workload = assemble(listings)
    names, passes = np.array(workload.names), np.asarray(workload.phases.passes)
    if part.steps is not None:
        names, passes = np.array(["train"]), np.ones(1)
    owner = owners(products, workload.num_launches)
    return Member(
        workload,
        as_index(np.where(owner >= 0, owner + first, -1)),
        as_float(part.weight),
        as_float(part.memory),
        as_float(part.tokens),
        as_float(np.where(names == "prefill", 1 / passes, 0.0)),
        as_float(np.where(names == "decode", 1 / passes, 0.0)),
        part.steps,
        part.order,
        part.plan,
        None if part.site is None else _wall(part.site, part.plan),
    )


def _wall(site: Site, plan: Plan | None) -> Array:
    """Coefficients of power at the wall in that of all boards (`Member`), which it is a
    polynomial of: by three of its values."""
    gpus = 1 if plan is None else plan.gpus
    at = float(site.idle)
    zero, one, two = (site.power(x * at, gpus) for x in (0.0, 1.0, 2.0))
    square = (zero - 2 * one + two) / (2 * (gpus * at) ** 2)
    linear = (one - zero) / (gpus * at) - square * gpus * at
    return as_float([zero, linear, square])


def _bounds(varied: Sequence[Axis]) -> dict[str, Array]:
    return {x: as_float([getattr(axis, x) for axis in varied]) for x in ("low", "high")}


def _tile_axes(spec: Any, shapes: Any, usual: Tiles) -> tuple[Axis, ...]:
    """Axes of the tile fields, each for all products."""
    legal = legal_values(spec, shapes)
    return tuple(
        Axis(f"{name}[{n}]", min(values), max(values), base, tuple(values))
        for name in FIELDS
        for n, base in enumerate(np.asarray(getattr(usual, name), float).tolist())
        for values in [legal[name][n]]
    )


def _known_metrics(parts: Sequence[Listed], task: Task) -> set[str]:
    """Metrics that the task has."""
    some = {
        "ttft": any(np.asarray(member.prefill).any() for member in task.members),
        "tpot": any(np.asarray(member.decode).any() for member in task.members),
        "energy_per_token": any(part.weight * part.tokens > 0 for part in parts),
        "memory": any(part.memory > 0 for part in parts),
    }
    always = {"time", "energy", "power", "area", "cost", "board_energy"}
    return always | {metric for metric, there in some.items() if there}


def _limits(
    goals: Sequence[str], limits: Mapping[str, float], metrics: set[str]
) -> dict[str, float]:
    """The checked limits, and that of memory where its need is known."""
    needed = {metric for goal in goals for metric in GOALS.get(goal, {})}
    for metric in sorted((needed | set(limits)) - metrics):
        raise ValueError(
            f"`{metric}` is asked for, but no workload of the mix has it; take a "
            "model with `phase='generate'`."
        )
    for metric, limit in limits.items():
        if not (math.isfinite(limit) and limit > 0):
            raise ValueError(
                f"the limit of `{metric}` is {limit:g}; allowed is a number above 0."
            )
    return {**limits, **({"memory": 1.0} if "memory" in metrics else {})}


def _described(
    product: Product, parts: Sequence[Listed], number: int
) -> dict[str, Any]:
    """Shape and name of a product of part `number`, as in results."""
    kernel = product.kernel
    listing = parts[number].listings[product.listing]
    about: dict[str, Any] = {"workload": parts[number].name} if len(parts) > 1 else {}
    about |= {"phase": listing.mode}
    about |= {name: kernel.get(name) for name in ("batch", "m", "n", "k", "dtype")}
    return about | {"count": product.count}
