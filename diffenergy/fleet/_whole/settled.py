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
from .cover import Cover
from .integer import Found, least

_PARTS, _FINE = 2_000, 10_000
"""Parts of what the slowest rows of replicas lack, at first and where few rows are
left."""
_FEWER, _MANY = 0.7, 250
"""Part of the rows that other prices must leave at most, to be worth a further try;
rows from which on HiGHS finds a better plan sooner."""
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
        both = (model.row_low, low), (model.row_high, high)
        return np.concatenate(both[0]), np.concatenate(both[1])

    def mixed_rows(
        self, low: Float[np.ndarray, " number"], high: Float[np.ndarray, " number"]
    ) -> LinearModel:
        """The program of the columns `corner`, with limits of the numbers."""
        model, of = self.model, np.flatnonzero(self.corner)
        matrix = sparse.csc_array(sparse.vstack([model.matrix, self.sums]))[:, of]
        ends = self.ends(low, high)
        return LinearModel(
            sparse.csr_array(matrix),
            *ends,
            model.low[of],
            model.high[of],
            model.cost[of],
        )


@dataclasses.dataclass(frozen=True)
class Priced:
    """What a setting costs at some prices, at least: with a replica of each column
    `least`; at these prices of the limits other than covers; `rows`: how many rows the
    prices were found with; `tried`: how often the setting was looked at."""

    least: Float[np.ndarray, " column"]
    price: Float[np.ndarray, " limit"]
    rows: float = np.inf
    tried: int = 0


def alone(
    choice: Choice,
    numbers: Float[np.ndarray, " group"],
    price: Float[np.ndarray, " limit"],
    near: Bool[np.ndarray, " column"],
    *,
    enough: bool = False,
    parts: int = _PARTS,
) -> tuple[float, Float[np.ndarray, " column"]]:
    """The least that whole rows of a setting cost at any prices of the limits other
    than covers, each model alone, out of the columns `near`; and these rows.

    No plan out of them costs less: each that keeps the limits gains by `price` what it
    leaves of them. What is carried is rounded up, so that the rows may carry a little
    less than the demand; with `enough` down, so that the rows do carry it.
    """
    total, models = _models(choice, numbers, price, near, enough, parts)
    counts = np.zeros(len(choice.rate))
    for model in models:
        total += model.least
        for columns, place in zip(model.columns, model.chosen(), strict=True):
            counts[columns[place]] += 1
    return total, counts


def with_each(
    choice: Choice,
    numbers: Float[np.ndarray, " group"],
    price: Float[np.ndarray, " limit"],
    near: Bool[np.ndarray, " column"],
    parts: int,
) -> Float[np.ndarray, " column"]:
    """As `alone`, with a replica of each column at least; infinite where there is
    none."""
    worth, models = _models(choice, numbers, price, near, False, parts)
    found = np.full(len(choice.rate), np.inf)
    for model in models:
        rest = worth + sum(other.least for other in models if other is not model)
        for columns, cost in model.with_each():
            found[columns] = rest + cost
    return found


def _models(
    choice: Choice,
    numbers: Float[np.ndarray, " group"],
    price: Float[np.ndarray, " limit"],
    near: Bool[np.ndarray, " column"],
    enough: bool,
    parts: int,
) -> tuple[float, list[Cover]]:
    """What the limits are worth, below 0; the models of a setting at these prices."""
    model, group, cover, rate = choice.model, choice.group, choice.cover, choice.rate
    first = len(model.row_low) - len(price)
    each = model.cost + model.matrix[first:].T @ price
    paid = price > 0
    used = near & (numbers[group] > 0)
    found = []
    for one in np.unique(cover[numbers[group] > 0]).tolist():
        groups = np.unique(group[(cover == one) & (numbers[group] > 0)])
        columns = [np.flatnonzero(used & (group == of)) for of in groups.tolist()]
        if not all(len(x) for x in columns):
            return np.inf, []
        times, demand = numbers[groups].astype(int), float(model.row_low[one])
        found.append(Cover(columns, times, rate, each, demand, enough, parts))
    return -float(price[paid] @ model.row_high[first:][paid]), found


def at_other_prices(
    choice: Choice,
    numbers: Float[np.ndarray, " group"],
    priced: Priced,
    below: float,
    parts: int = _PARTS,
) -> tuple[Priced, float, Float[np.ndarray, " column"] | None]:
    """What the plans of a setting cost at least that cost less than `below`, at the
    best prices tried, and the best plan found: prices of limits that the rows at the
    prices before would not keep rise, those of limits that they leave fall."""
    near = priced.least <= below
    first = len(choice.model.row_low) - len(priced.price)
    matrix, room = choice.model.matrix[first:], choice.model.row_high[first:]
    price, low, high = priced.price, 0 * priced.price, np.full(len(room), np.inf)
    begin = _BEGIN * abs(float(priced.least.min())) / np.maximum(np.abs(room), _TINY)
    bound, at, best, least = -np.inf, price, None, np.inf
    for _ in range(_PRICES[parts]):
        found, counts = alone(choice, numbers, price, near, parts=parts)
        if found > bound:
            bound, at = found, price
        over = matrix @ counts - room
        more, less = over > _TINY * room, (over < -_TINY * room) & (price > 0)
        if not more.any():
            _, safe = alone(choice, numbers, price, near, enough=True, parts=parts)
            cost = float(choice.model.cost @ safe)
            if cost < least and choice.fits(safe):
                best, least = safe, cost
        if bound >= min(below, least):
            break
        low, high = np.where(more, price, low), np.where(less, price, high)
        between = np.where(np.isfinite(high), (low + high) / 2, 1.5 * price + begin)
        price = np.where(more | less, between, price)
    each = priced.least
    if bound < below:
        each = np.maximum(each, with_each(choice, numbers, at, near, parts))
    return dataclasses.replace(priced, least=each, price=at), bound, best


def of_setting(
    choice: Choice,
    numbers: Float[np.ndarray, " group"],
    priced: Priced,
    below: float,
    seconds: float,
) -> tuple[Priced, Found]:
    """The least plan of a setting, as values of all columns, where it costs less than
    `below`: at other prices as long as these leave ever fewer rows, then by HiGHS."""
    best, bound = None, -np.inf
    most = min(_MANY, _FEWER * priced.rows)
    while (left := int((priced.least <= below).sum())) <= most:
        priced, found, values = at_other_prices(choice, numbers, priced, below, _FINE)
        priced = dataclasses.replace(priced, rows=float(left))
        most = _FEWER * left
        if values is not None:
            best = values
            below = min(below, float(choice.model.cost @ values))
        bound = max(bound, found)
        if bound >= below:
            return priced, Found(best, bound, True)
    found = _of_rows(choice, numbers, priced.least <= below, below, seconds)
    values = best if found.values is None else found.values
    return priced, Found(values, max(bound, found.bound), found.proven)


def _of_rows(
    choice: Choice, numbers: Float[np.ndarray, " group"],
    near: Bool[np.ndarray, " column"], below: float, seconds: float,
) -> Found:  # fmt: skip
    """The least plan of a setting out of the columns `near`, as values of all, where it
    costs less than `below`."""
    model, has = choice.model, np.flatnonzero(numbers > 0)
    used = np.flatnonzero(near & (numbers[choice.group] > 0))
    both = [model.matrix[:, used], choice.sums[has][:, used], model.cost[used][None]]
    found = least(
        model.cost[used], sparse.csr_array(sparse.vstack(both)),
        np.r_[model.row_low, numbers[has], -np.inf],
        np.r_[model.row_high, numbers[has], below],
        np.full(len(used), numbers.max(initial=0.0)),
        seconds=seconds,
    )  # fmt: skip
    if found.values is None:
        return found
    values = np.zeros(len(model.cost))
    values[used] = found.values
    return dataclasses.replace(found, values=values)
