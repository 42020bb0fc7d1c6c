"""What is planned: serving points, pools at sites, demand by slot, weights.

A **row** (serving point) is one way to run one replica of one model on one pool: its
GPUs n, the rate r (requests/s) it carries, its mean power p (W, of its n boards). With
x whole replicas on a row in a slot:

    cover   sum r x >= demand of the model
    GPUs    sum n x <= GPUs of the pool
    watts   pue (sum p x + sum parked (GPUs - used)) <= budget of the site
    starts  u >= X - X of the slot before, X = sum x of the rows of (model, pool, n)
    least   sum_t weight (slot_s watts + pue sum start u)

All powers below are above what the boards would draw parked, `extra` = p - n parked: a
used GPU saves its parked watts. Where a pool has a node, p and parked are W at the wall
(`Hosts`), so that budgets, bounds and prices are, too.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ..search import lower_hull, pareto_front

_TOLERANCE = 1e-9
"""Relative, of a limit that floating-point sums touch."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Serving points, a column each; NaN is unknown.

    `model`, `pool`: indices; `gpus`: n; `rate`: requests/s; `power`: W of all n boards;
    `ttft`, `tpot`: 95th percentiles, s; `sm_clock` Hz, `power_limit` W, `max_batch`;
    `source`: 0-based row of the table that it comes from, -1 for none.
    """

    model: Int[np.ndarray, " row"]
    pool: Int[np.ndarray, " row"]
    gpus: Float[np.ndarray, " row"]
    rate: Float[np.ndarray, " row"]
    power: Float[np.ndarray, " row"]
    ttft: Float[np.ndarray, " row"]
    tpot: Float[np.ndarray, " row"]
    sm_clock: Float[np.ndarray, " row"]
    power_limit: Float[np.ndarray, " row"]
    max_batch: Float[np.ndarray, " row"]
    source: Int[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.model)

    def take(self, chosen: np.ndarray) -> "Rows":
        """The chosen ones: indices, or a mask."""
        return Rows(*(getattr(self, name)[chosen] for name in _COLUMNS))


_COLUMNS: Final = tuple(field.name for field in dataclasses.fields(Rows))

_INDICES: Final = ("model", "pool", "source")


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of all parts, one part after the other; no rows without parts."""
    none = Rows(*(np.zeros(0, int if x in _INDICES else float) for x in _COLUMNS))
    columns = ([getattr(x, name) for x in (none, *parts)] for name in _COLUMNS)
    return Rows(*(np.concatenate(x) for x in columns))


def groups(rows: Rows) -> Int[np.ndarray, " row"]:
    """(model, pool, n) of every row as a number from 0."""
    gpus = rows.gpus.astype(int)
    most, pools = gpus.max(initial=0) + 1, rows.pool.max(initial=0) + 1
    key = (rows.model * pools + rows.pool) * most + gpus
    return np.unique(key, return_inverse=True)[1].reshape(-1)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows, what they share, and what is asked of them.

    `demand`: requests/s, headroom included; `count`, `parked` (W a GPU) and `site` of
    pools; `pue` and `budget` (W at the meter, infinite where there is none) of sites;
    `weight`: objective per joule at the meter, at least 0; `start`: J to load
    a replica of a row; `slot`: s. `slope` and `each` of pools: W at the wall = slope x
    W of boards + each x GPUs; `parked` and `start` are at the wall already.
    """

    rows: Rows
    demand: Float[np.ndarray, "slot model"]
    count: Float[np.ndarray, " pool"]
    parked: Float[np.ndarray, " pool"]
    site: Int[np.ndarray, " pool"]
    pue: Float[np.ndarray, " site"]
    budget: Float[np.ndarray, "slot site"]
    weight: Float[np.ndarray, "slot site"]
    start: Float[np.ndarray, " row"]
    slot: float
    models: tuple[str, ...]
    pools: tuple[str, ...]
    sites: tuple[str, ...]
    slope: Float[np.ndarray, " pool"] | float = 1.0
    each: Float[np.ndarray, " pool"] | float = 0.0

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.demand)

    @property
    def row_site(self) -> Int[np.ndarray, " row"]:
        """Site of every row."""
        return self.site[self.rows.pool]

    @property
    def power(self) -> Float[np.ndarray, " row"]:
        """W of a replica: of its boards, at the wall where its pool has a node."""
        pools = self.count.shape
        slope, each = (
            np.broadcast_to(x, pools)[self.rows.pool] for x in (self.slope, self.each)
        )
        return slope * self.rows.power + each * self.rows.gpus

    @property
    def extra(self) -> Float[np.ndarray, " row"]:
        """W that a replica draws beyond its boards parked."""
        return self.power - self.rows.gpus * self.parked[self.rows.pool]

    @property
    def base(self) -> Float[np.ndarray, " site"]:
        """W at the meter with every GPU parked."""
        parked = self.count * self.parked
        return self.pue * np.bincount(self.site, parked, minlength=len(self.pue))

    @functools.cached_property
    def group(self) -> Int[np.ndarray, " row"]:
        """(model, pool, n) of every row as a number from 0: what a start loads."""
        return groups(self.rows)

    @functools.cached_property
    def firsts(self) -> Int[np.ndarray, " group"]:
        """A row of each group: all of one start alike."""
        return np.unique(self.group, return_index=True)[1]

    def cost(self, slot: int) -> Float[np.ndarray, " row"]:
        """Objective that a replica adds in a slot, beyond its boards parked."""
        site = self.row_site
        return self.slot * (self.weight[slot] * self.pue)[site] * self.extra

    def idle_cost(self, slot: int) -> float:
        """Objective of a slot with every GPU parked."""
        return float(self.slot * self.weight[slot] @ self.base)

    def start_cost(self, slot: int) -> Float[np.ndarray, " row"]:
        """Objective of loading one replica."""
        return (self.weight[slot] * self.pue)[self.row_site] * self.start

    def take(self, chosen: np.ndarray) -> "Problem":
        """The problem with only the chosen rows: indices, or a mask."""
        return dataclasses.replace(
            self, rows=self.rows.take(chosen), start=self.start[chosen]
        )

    def at(self, slots: np.ndarray | slice) -> "Problem":
        """The problem with only some of its slots."""
        return dataclasses.replace(
            self,
            demand=self.demand[slots],
            budget=self.budget[slots],
            weight=self.weight[slots],
        )


def summed(
    each: Float[np.ndarray, "slot row"], of: Int[np.ndarray, " row"], size: int
) -> Float[np.ndarray, "slot thing"]:
    """Sums over the rows of each thing, `of` which there are `size`."""
    sums = np.zeros((len(each), size))
    np.add.at(sums.T, of, each.T)
    return sums


def site_power(
    problem: Problem, counts: Float[np.ndarray, "slot row"]
) -> Float[np.ndarray, "slot site"]:
    """W at the meter of every site."""
    drawn = summed(counts * problem.extra, problem.row_site, len(problem.pue))
    return problem.base + problem.pue * drawn


def starts_of(
    problem: Problem, counts: Float[np.ndarray, "slot row"]
) -> Float[np.ndarray, "slot group"]:
    """Replicas of every (model, pool, n) that are loaded in a slot; none in the
    first."""
    loaded = summed(counts, problem.group, len(problem.firsts))
    return np.maximum(0.0, np.diff(loaded, axis=0, prepend=loaded[:1]))


def value_of(problem: Problem, counts: Float[np.ndarray, "slot row"]) -> float:
    """The objective of whole replicas, starts included."""
    slots, first = range(problem.slots), problem.firsts
    rises = starts_of(problem, counts)
    prices = np.array([problem.start_cost(t)[first] for t in slots])
    running = (problem.idle_cost(t) + float(problem.cost(t) @ counts[t]) for t in slots)
    return float(sum(running) + (rises * prices).sum())


def keeps_limits(
    problem: Problem, counts: Float[np.ndarray, "slot row"]
) -> Bool[np.ndarray, " slot"]:
    """Whether whole replicas keep every limit of a slot."""
    rows, few = problem.rows, 1 + _TOLERANCE
    carried = summed(counts * rows.rate, rows.model, problem.demand.shape[1])
    used = summed(counts * rows.gpus, rows.pool, len(problem.count))
    return (
        np.all(carried * few >= problem.demand, axis=1)
        & np.all(used <= problem.count * few, axis=1)
        & np.all(site_power(problem, counts) <= problem.budget * few, axis=1)
    )


# --- Which rows can be of use: the Pareto rows of whole replicas, the hull of the LP.


def hull_rows(problem: Problem) -> Int[np.ndarray, " corner"]:
    """Rows on the lower hull of (n / r, extra / r) of their model and pool: all that a
    linear program uses whose prices of GPUs and watts are at least 0.

    `extra`, not power: a used GPU saves its parked watts, so on the plane of p / r the
    price of a GPU could be below 0, and the bound above the true one.
    """
    rows = problem.rows
    group = rows.model * len(problem.count) + rows.pool
    return _corners(group, rows.gpus / rows.rate, problem.extra / rows.rate)


def mixing_rows(problem: Problem) -> Int[np.ndarray, " corner"]:
    """Rows on the lower hull of power against rate of their group: all that a given
    number of its replicas needs, where rows may be mixed in shares."""
    return _corners(problem.group, -problem.rows.rate, problem.extra)


def _corners(
    group: Int[np.ndarray, " row"],
    across: Float[np.ndarray, " row"],
    up: Float[np.ndarray, " row"],
) -> Int[np.ndarray, " corner"]:
    """Points of the lower left hull of each group."""
    front = pareto_front(across, up, group=group)
    return np.sort(front[lower_hull(across[front], up[front], group[front])])
