"""Whole plans of one model that are cheap at given prices, for every model at once.

A plan is a few replicas on each of a few rows: a bulk on cheap rows, one short of what
divides the demand or up to two, more of another row, and one row that carries the rest
for the least. Cost with prices, not cost alone: what a limit is worth to others counts.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import sparse

from ...search import pareto_front
from .._bound import charged, limits
from .._problem import Problem

_LESS = 3
"""Numbers of replicas of a second row tried: what is left, and up to two fewer."""
_TINY = 1e-12
"""Relative, of a demand that whole replicas meet exactly."""


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Whole plans: `model`, and replicas `count` on `row` (0 of row 0: none)."""

    model: Int[np.ndarray, " plan"]
    row: Int[np.ndarray, "plan part"]
    count: Float[np.ndarray, "plan part"]

    def __len__(self) -> int:
        return len(self.model)

    def take(self, chosen: np.ndarray) -> "Candidates":
        """The chosen ones: indices, or a mask."""
        return Candidates(self.model[chosen], self.row[chosen], self.count[chosen])

    def made(self, rows: int) -> sparse.csr_array:
        """Replicas [row, plan]."""
        index = np.repeat(np.arange(len(self)), self.row.shape[1])
        entries = (self.count.ravel(), (self.row.ravel(), index))
        return sparse.csr_array(sparse.coo_array(entries, (rows, len(self))))


def joined(parts: Sequence[Candidates]) -> Candidates:
    """All plans, one part after the other."""
    width = max(x.row.shape[1] for x in parts)

    def wide(name: str) -> np.ndarray:
        each = (getattr(part, name) for part in parts)
        return np.vstack([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in each])

    models = np.concatenate([part.model for part in parts])
    return Candidates(models, wide("row"), wide("count"))


def candidates(
    problem: Problem,
    slot: int,
    prices: Float[np.ndarray, " limit"],
    *,
    width: int,
    most: int,
    splits: int = 3,
    added: Float[np.ndarray, " row"] | float = 0.0,
) -> Candidates:
    """Up to `most` plans of every model that is asked for, the cheapest at `prices`;
    `width`: rows tried as bulk; `splits`: numbers of replicas of the first of them that
    are tried; `added`: what a replica costs besides."""
    rows, wanted = problem.rows, problem.demand[slot]
    priced = charged(problem, slot, prices) + added
    bulk = _bulk(problem, priced, width)  # [model, width], -1 where there is none
    asked = np.flatnonzero((wanted > 0) & (bulk >= 0).any(axis=1))
    bulk = bulk[asked]
    rest = wanted[asked]
    # plans as [plan, part]; `of`: model as an index of `asked`
    of = np.arange(len(asked))
    row, count = np.zeros((len(of), 0), int), np.zeros((len(of), 0))
    for less in (splits, _LESS):
        choice = bulk[of]  # [plan, width]
        whole = np.floor(rest[:, None] / rows.rate[choice] * (1 + _TINY))
        tries = np.maximum(whole[:, :, None] - np.arange(less), 0.0)
        plan, which, fewer = np.nonzero(
            np.broadcast_to(choice[..., None] >= 0, tries.shape)
        )
        taken, number = choice[plan, which], tries[plan, which, fewer]
        row, count = np.c_[row[plan], taken], np.c_[count[plan], number]
        of, rest = of[plan], rest[plan] - number * rows.rate[taken]
        keep = _apart(of, row, count)
        of, rest, row, count = of[keep], rest[keep], row[keep], count[keep]
    last = _cheapest(problem, priced, asked[of], rest)
    open_ = rest > 1e-9 * wanted[asked][of]
    fine = ~open_ | (last >= 0)
    row = np.c_[row, np.where(last >= 0, last, 0)][fine]
    count = np.c_[count, (open_ & (last >= 0)).astype(float)][fine]
    found = Candidates(asked[of[fine]], row, count)
    return found.take(_best(problem, found, (count * priced[row]).sum(axis=1), most))


def _bulk(
    problem: Problem, priced: Float[np.ndarray, " row"], width: int
) -> Int[np.ndarray, "model width"]:
    """Rows with the least cost a request: the best of each pool, cheap pools first,
    then the next best of any."""
    rows = problem.rows
    each = priced / rows.rate
    lead = pd.Series(each).groupby([rows.model, rows.pool]).idxmin().to_numpy()
    # half of the width for leaders of pools, half for the cheapest of any
    found = np.full((problem.demand.shape[1], width), -1)
    half = (width + 1) // 2
    _fill(found[:, :half], rows.model, each, np.sort(lead))
    taken = np.zeros(len(rows), bool)
    taken[found[found >= 0]] = True
    _fill(found[:, half:], rows.model, each, np.flatnonzero(~taken))
    return found


def _fill(found, model, each, among):
    order = among[np.lexsort((each[among], model[among]))]
    place = pd.Series(order).groupby(model[order]).cumcount().to_numpy()
    near = place < found.shape[1]
    found[model[order[near]], place[near]] = order[near]


def _cheapest(problem, priced, model, rest):
    """Row of a model that carries `rest` at the least priced cost; -1 without."""
    rows = problem.rows
    top = 2.0 * rows.rate.max(initial=1.0)
    order = np.lexsort((rows.rate, rows.model))
    key = rows.model[order] * top + rows.rate[order]
    # cheapest from a place to the end of its model: running minimum from behind
    best = _from_behind(rows.model[order], priced[order])
    place = np.searchsorted(key, model * top + rest * (1 - _TINY))
    inside = np.minimum(place, len(order) - 1)
    good = (place < len(order)) & (rows.model[order[inside]] == model)
    return np.where(good, order[best[inside]], -1)


def _from_behind(group, value):
    """Index of the least value from each place to the end of its group."""
    rank = np.argsort(np.argsort(value, kind="stable"), kind="stable")
    least = pd.Series(rank[::-1]).groupby(group[::-1]).cummin().to_numpy()[::-1]
    return np.argsort(rank)[least]


def _apart(of, row, count):
    """One of plans that are the same."""
    key = np.c_[of, np.where(count > 0, row, -1), count]
    return np.sort(np.unique(key, axis=0, return_index=True)[1])


def _best(problem, found, cost, most):
    """The cheapest plans of each model, of those with the same GPUs the cheapest."""
    pools = limits(problem)[: len(problem.count)]
    used = (pools @ found.made(len(problem.rows))).toarray().T
    order = np.lexsort((cost, found.model))
    key = np.c_[found.model, used][order]
    first = np.sort(np.unique(key, axis=0, return_index=True)[1])
    order = order[first]
    place = pd.Series(order).groupby(found.model[order]).cumcount().to_numpy()
    return order[place < most]


# --- Replicas of one model that carry its demand, whole rows each, at the least cost.
#
# What they carry above the slowest rows is counted in parts of what is missing with
# these, one replica after the other: a dynamic program.

_ROUNDING = 1e-12


class Cover:
    """Replicas of groups with rows `columns`, `times` of each, that carry a demand.

    What each carries is rounded up to `parts` of what is missing, so that they may
    carry a little less than the demand; with `enough` down, so that they do carry it.
    """

    def __init__(
        self,
        columns: Sequence[Int[np.ndarray, " _"]],
        times: Int[np.ndarray, " group"],
        rate: Float[np.ndarray, " column"],
        cost: Float[np.ndarray, " column"],
        demand: float,
        enough: bool,
        parts: int,
    ) -> None:
        slowest = [float(rate[x].min()) for x in columns]
        lacking = max(0.0, demand - float(times @ slowest))
        self.groups = []
        for of, slow in zip(columns, slowest, strict=True):
            share = (rate[of] - slow) / lacking if lacking else np.ones(len(of))
            more = np.minimum(share, 1.0) * parts
            down = np.floor(more * (1 + _ROUNDING))
            more = down if enough else np.ceil(more * (1 - _ROUNDING))
            self.groups.append(_Rows(of, more.astype(int), cost[of]))
        self.of = list(np.repeat(np.array(self.groups, object), times))
        self.parts = parts
        self.tables = self._tables(self.of)

    def _tables(self, of: Sequence["_Rows"]) -> list[np.ndarray]:
        """The least cost of what is carried by none, by one, by two ... replicas."""
        nothing = np.full(self.parts + 1, np.inf)
        nothing[0] = 0.0
        tables = [nothing]
        for rows in of:
            tables.append(rows.after(tables[-1]))
        return tables

    @property
    def columns(self) -> list[Int[np.ndarray, " _"]]:
        """Columns of each replica."""
        return [x.columns for x in self.of]

    @property
    def least(self) -> float:
        """Infinite where they cannot carry the demand."""
        return float(self.tables[-1][-1])

    def chosen(self) -> list[int]:
        """The row of each replica."""
        if not np.isfinite(self.least):
            return [0] * len(self.of)
        found, place = [], self.parts
        for before, rows in zip(self.tables[-2::-1], self.of[::-1], strict=True):
            row, place = rows.back(before, place)
            found.append(row)
        return found[::-1]

    def with_each(self) -> Iterator[tuple[Int[np.ndarray, " _"], np.ndarray]]:
        """Columns, and the least cost with a replica of each."""
        for rows in self.groups:
            others = list(self.of)
            others.remove(rows)
            table = self._tables(others)[-1]
            yield rows.columns, rows.cost + _of_more(table)[self.parts - rows.parts]


class _Rows:
    """Rows of a replica: what each carries in parts above the slowest, its cost."""

    def __init__(self, columns: np.ndarray, parts: np.ndarray, cost: np.ndarray):
        self.columns, self.parts, self.cost = columns, parts, cost
        self.useful = pareto_front(-parts, cost)  # others carry no more for more

    def after(self, least: np.ndarray) -> np.ndarray:
        """The least cost of what is carried with a replica more than in `least`."""
        found, most = np.full(len(least), np.inf), _of_more(least)
        for row in self.useful.tolist():
            part, paid = int(self.parts[row]), float(self.cost[row])
            with_it = least[: len(least) - part] + paid
            np.minimum(found[part:], with_it, out=found[part:])
            found[-1] = min(found[-1], float(most[-1 - part]) + paid)
        return found

    def back(self, before: np.ndarray, place: int) -> tuple[int, int]:
        """The row that led to `place`, and the place before it, where the rest is then
        the least."""
        last = len(before) - 1
        back = [
            last - part + int(before[last - part :].argmin())
            if place == last else max(0, place - part)
            for part in self.parts.tolist()
        ]  # fmt: skip
        sums = np.where(place >= self.parts, before[back] + self.cost, np.inf)
        row = int(sums.argmin())
        return row, back[row]


def _of_more(least: np.ndarray) -> np.ndarray:
    """The least cost of what carries at least so much."""
    return np.minimum.accumulate(least[::-1])[::-1]
