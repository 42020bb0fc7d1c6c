"""Which rows replicas take, once it is settled how many each (model, pool, n) has.

Whole rows of one model are looked at alone, at the prices of the linear program: what
its replicas cost above their shares, and what they carry beyond the demand. Where that
leaves a setting below the best plan, HiGHS chooses among the rows that may be part of a
better one.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ...search import LinearModel
from .candidates import Cover
from .integer import Found, least
from .work import Work

_PARTS, _FINE = 2_000, 10_000
"""Parts of what the slowest rows of replicas lack, at first and where few rows are
left."""
_FEWER, _MANY = 0.7, 250
"""Part of the rows that other prices must leave at most, to be worth a further try;
rows from which on HiGHS finds a better plan sooner."""
_PER_REPLICA = 3e-5
"""Work (s) of a replica in `alone`, with `_PARTS`."""
_TINY = 1e-12
_PRICES = {_PARTS: 2, _FINE: 8}
"""Prices tried of the limits of a setting, by the parts."""
_BEGIN = 0.02
"""Of the cost, what all of a limit is worth at least where it is to be worth more."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Replicas of rows, a column each, and numbers that are whole in every plan.

    `model`: costs and limits, real variables; the first limits are covers of models,
    one for each column. `sums` [number, column]: the numbers, the first `groups` of
    them replicas of each (model, pool, n), the last all replicas. `corner`: columns
    that suffice where replicas of a group are mixed in shares. `fits`: whether whole
    replicas keep every limit.
    """

    model: LinearModel
    sums: sparse.csr_array
    groups: int
    corner: Bool[np.ndarray, " column"]
    fits: Callable[[Float[np.ndarray, " column"]], bool]

    @functools.cached_property
    def cover(self) -> Int[np.ndarray, " column"]:
        """Cover of each column."""
        by_column = sparse.csc_array(self.model.matrix)
        by_column.sort_indices()
        return by_column.indices[by_column.indptr[:-1]]

    @functools.cached_property
    def rate(self) -> Float[np.ndarray, " column"]:
        """What a replica of each column carries."""
        covers = self.model.matrix[: int(self.cover.max(initial=-1)) + 1]
        return np.asarray(covers.sum(axis=0)).reshape(-1)

    @functools.cached_property
    def group(self) -> Int[np.ndarray, " column"]:
        """Group of each column."""
        by_column = sparse.csc_array(self.sums[: self.groups])
        return by_column.indices

    def ends(
        self, low: Float[np.ndarray, " number"], high: Float[np.ndarray, " number"]
    ) -> tuple[Float[np.ndarray, " limit"], Float[np.ndarray, " limit"]]:
        """Least and most of all limits, then of the numbers."""
        model = self.model
        return np.r_[model.row_low, low], np.r_[model.row_high, high]

    def mixed_rows(
        self, low: Float[np.ndarray, " number"], high: Float[np.ndarray, " number"]
    ) -> LinearModel:
        """The program of the columns `corner`, with limits of the numbers."""
        model, of = self.model, np.flatnonzero(self.corner)
        matrix = sparse.csc_array(sparse.vstack([model.matrix, self.sums]))[:, of]
        columns = model.low[of], model.high[of], model.cost[of]
        return LinearModel(sparse.csr_array(matrix), *self.ends(low, high), *columns)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Replicas of each group of a choice, settled: which rows do they take?

    `least`: what it costs at least with a replica of each column, at `price` of the
    limits other than covers; `rows`: how many rows these were found with; `tried`: how
    often it was looked at.
    """

    choice: Choice
    numbers: Float[np.ndarray, " group"]
    least: Float[np.ndarray, " column"]
    price: Float[np.ndarray, " limit"]
    rows: float = np.inf
    tried: int = 0

    @property
    def work(self) -> float:
        """Work (s) of a look at it alone, at the coarser of the parts."""
        return _PER_REPLICA * float(self.numbers.sum())

    @property
    def shared(self) -> slice:
        """The limits other than covers."""
        return slice(len(self.choice.model.row_low) - len(self.price), None)

    def alone(
        self,
        price: Float[np.ndarray, " limit"],
        near: Bool[np.ndarray, " column"],
        *,
        enough: bool = False,
        parts: int = _PARTS,
    ) -> tuple[float, Float[np.ndarray, " column"]]:
        """The least that whole rows cost at any prices of the shared limits, each model
        alone, out of the columns `near`; and these rows.

        No plan out of them costs less: each that keeps the limits gains by `price` what
        it leaves of them. What is carried is rounded up, so that the rows may carry a
        little less than the demand; with `enough` down, so that the rows do carry it.
        """
        total, models = self._models(price, near, enough, parts)
        counts = np.zeros(len(near))
        for model in models:
            total += model.least
            for columns, place in zip(model.columns, model.chosen(), strict=True):
                counts[columns[place]] += 1
        return total, counts

    def with_each(
        self,
        price: Float[np.ndarray, " limit"],
        near: Bool[np.ndarray, " column"],
        parts: int,
    ) -> Float[np.ndarray, " column"]:
        """As `alone`, with a replica of each column at least; infinite where there is
        none."""
        worth, models = self._models(price, near, False, parts)
        found = np.full(len(near), np.inf)
        for model in models:
            rest = worth + sum(other.least for other in models if other is not model)
            for columns, cost in model.with_each():
                found[columns] = rest + cost
        return found

    def _models(
        self, price: np.ndarray, near: np.ndarray, enough: bool, parts: int
    ) -> tuple[float, list[Cover]]:
        """What the limits are worth, below 0; the models at these prices."""
        choice, model = self.choice, self.choice.model
        group, cover = choice.group, choice.cover
        each = model.cost + model.matrix[self.shared].T @ price
        has = self.numbers[group] > 0
        found = []
        for one in np.unique(cover[has]).tolist():
            groups = np.unique(group[(cover == one) & has])
            columns = [np.flatnonzero(near & (group == x)) for x in groups.tolist()]
            if not all(len(x) for x in columns):
                return np.inf, []
            times = self.numbers[groups].astype(int)
            demand = float(model.row_low[one])
            found.append(
                Cover(columns, times, choice.rate, each, demand, enough, parts)
            )
        paid = price > 0
        return -float(price[paid] @ model.row_high[self.shared][paid]), found

    def at_other_prices(
        self, below: float, work: Work, parts: int = _PARTS
    ) -> tuple["Setting", float, Float[np.ndarray, " column"] | None]:
        """What the plans cost at least that cost less than `below`, at the best prices
        tried, and the best plan found: prices of limits that the rows at the prices
        before would not keep rise, those of limits that they leave fall."""
        model, near = self.choice.model, self.least <= below
        matrix, room = model.matrix[self.shared], model.row_high[self.shared]
        price, low, high = self.price, 0 * self.price, np.full(len(room), np.inf)
        begin = _BEGIN * abs(float(self.least.min())) / np.maximum(np.abs(room), _TINY)
        bound, at, best, least = -np.inf, price, None, np.inf
        for _ in range(_PRICES[parts]):
            work.add(self.work * parts / _PARTS)
            found, counts = self.alone(price, near, parts=parts)
            if found > bound:
                bound, at = found, price
            over = matrix @ counts - room
            more, less = over > _TINY * room, (over < -_TINY * room) & (price > 0)
            if not more.any():
                _, safe = self.alone(price, near, enough=True, parts=parts)
                cost = float(model.cost @ safe)
                if cost < least and self.choice.fits(safe):
                    best, least = safe, cost
            if bound >= min(below, least):
                break
            low, high = np.where(more, price, low), np.where(less, price, high)
            between = np.where(np.isfinite(high), (low + high) / 2, 1.5 * price + begin)
            price = np.where(more | less, between, price)
        each = self.least
        if bound < below:
            work.add(self.work * parts / _PARTS * int((self.numbers > 0).sum()))
            each = np.maximum(each, self.with_each(at, near, parts))
        return dataclasses.replace(self, least=each, price=at), bound, best

    def solved(self, below: float, work: Work) -> tuple["Setting", Found]:
        """The least plan, as values of all columns, where it costs less than `below`:
        at other prices as long as these leave ever fewer rows, then by HiGHS."""
        here, best, bound = self, None, -np.inf
        most = min(_MANY, _FEWER * self.rows)
        while (left := int((here.least <= below).sum())) <= most:
            here, found, values = here.at_other_prices(below, work, _FINE)
            here = dataclasses.replace(here, rows=float(left))
            most = _FEWER * left
            if values is not None:
                best = values
                below = min(below, float(self.choice.model.cost @ values))
            bound = max(bound, found)
            if bound >= below:
                return here, Found(best, bound, True)
        found = here.of_rows(below, work)
        values = best if found.values is None else found.values
        return here, Found(values, max(bound, found.bound), found.proven)

    def of_rows(self, below: float, work: Work) -> Found:
        """The same by HiGHS alone."""
        choice, model, numbers = self.choice, self.choice.model, self.numbers
        has = np.flatnonzero(numbers > 0)
        used = np.flatnonzero((self.least <= below) & (numbers[choice.group] > 0))
        both = [model.matrix, choice.sums[has], model.cost[None]]
        found = least(
            model.cost[used], sparse.csr_array(sparse.vstack(both))[:, used],
            np.r_[model.row_low, numbers[has], -np.inf],
            np.r_[model.row_high, numbers[has], below],
            np.full(len(used), numbers.max(initial=0.0)),
            work=work,
        )  # fmt: skip
        if found.values is None:
            return found
        values = np.zeros(len(model.cost))
        values[used] = found.values
        return dataclasses.replace(found, values=values)
