"""Which rows replicas take, once it is settled how many each (model, pool, n) has.

Whole rows of one model are looked at alone, at the prices of the linear program: what
its replicas cost above their shares, and what they carry beyond the demand. Where that
leaves a setting below the best plan, HiGHS chooses among the rows that may be part of a
better one.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ...search import LinearModel
from .integer import Found, least

_PARTS = 2_000
"""Parts of what the slowest rows of replicas lack."""
_TINY = 1e-12
_PRICES = 5
"""Prices tried of the limits of a setting."""
_BEGIN = 0.02
"""Of the cost, what all of a limit is worth at least where it is to be worth more."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Replicas of rows, a column each, and numbers that are whole in every plan.

    `model`: costs and limits, real variables; the first limits are covers of models,
    one for each column. `sums` [number, column]: the numbers, the first `groups` of
    them replicas of each (model, pool, n). `corner`: columns that suffice where
    replicas of a group are mixed in shares. `fits`: whether whole replicas keep every
    limit.
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
        return np.r_[self.model.row_low, low], np.r_[self.model.row_high, high]

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
    """A setting at the prices of its linear program: `cost` of that; `reduced`: what a
    replica costs above all that it gives and takes; `price` of the limits other than
    covers; `tried`: others, too."""

    cost: float
    reduced: Float[np.ndarray, " column"]
    price: Float[np.ndarray, " limit"]
    tried: bool = False


def alone(
    choice: Choice,
    numbers: Float[np.ndarray, " group"],
    price: Float[np.ndarray, " limit"],
    near: Bool[np.ndarray, " column"],
    *,
    enough: bool = False,
) -> tuple[float, Float[np.ndarray, " column"]]:
    """The least that whole rows of a setting cost at any prices of the limits other
    than covers, each model alone, out of the columns `near`; and these rows.

    No plan out of them costs less: each that keeps the limits gains by `price` what it
    leaves of them. What is carried is rounded up, so that the rows may carry a little
    less than the demand; with `enough` down, so that the rows do carry it.
    """
    model, group, cover, rate = choice.model, choice.group, choice.cover, choice.rate
    first = len(model.row_low) - len(price)
    matrix, room = model.matrix[first:], model.row_high[first:]
    each = model.cost + matrix.T @ price
    paid = price > 0
    total, counts = -float(price[paid] @ room[paid]), np.zeros(len(each))
    used = near & (numbers[group] > 0)
    for one in np.unique(cover[numbers[group] > 0]).tolist():
        replicas = []
        for of in np.unique(group[(cover == one) & (numbers[group] > 0)]).tolist():
            replicas += [np.flatnonzero(used & (group == of))] * int(numbers[of])
        if not all(len(x) for x in replicas):
            return np.inf, counts
        least, chosen = _cover(
            [(rate[x], each[x]) for x in replicas], float(model.row_low[one]), enough
        )
        total += least
        for columns, place in zip(replicas, chosen, strict=True):
            counts[columns[place]] += 1
    return total, counts


def _cover(
    replicas: Sequence[tuple[np.ndarray, np.ndarray]], demand: float, enough: bool
) -> tuple[float, list[int]]:
    """The least cost of replicas, each on one of its rows (rates, costs), that carry a
    demand, and the row of each; infinite where they cannot.

    One replica after the other, by what is carried above the slowest rows in parts of
    what is missing with these.
    """
    slowest = [float(rate.min()) for rate, _ in replicas]
    lacking = max(0.0, demand - sum(slowest))
    least = np.full(_PARTS + 1, np.inf)
    least[0] = 0.0
    tables, steps = [least], []
    for (rate, cost), slow in zip(replicas, slowest, strict=True):
        share = (rate - slow) / lacking if lacking else np.ones(len(rate))
        parts = np.minimum(share, 1.0) * _PARTS
        parts = (
            np.floor(parts * (1 + _TINY)) if enough else np.ceil(parts * (1 - _TINY))
        )
        steps.append(parts.astype(int))
        found = np.full(_PARTS + 1, np.inf)
        most = np.minimum.accumulate(least[::-1])[::-1]  # of what carries so much
        for part, paid in zip(steps[-1].tolist(), cost.tolist(), strict=True):
            with_it = least[: _PARTS + 1 - part] + paid
            np.minimum(found[part:], with_it, out=found[part:])
            found[-1] = min(found[-1], float(most[_PARTS - part]) + paid)
        least = found
        tables.append(least)
    chosen, place = [], _PARTS
    if not np.isfinite(least[-1]):
        return np.inf, [0] * len(replicas)
    for before, (_, cost), parts in zip(
        tables[-2::-1], replicas[::-1], steps[::-1], strict=True
    ):
        # what was carried before each row, where the rest is then the least
        back = [
            _PARTS - part + int(before[_PARTS - part :].argmin())
            if place == _PARTS else max(0, place - part)
            for part in parts.tolist()
        ]  # fmt: skip
        sums = np.where(place >= parts, before[back] + cost, np.inf)
        chosen.append(int(sums.argmin()))
        place = back[chosen[-1]]
    return float(least[-1]), chosen[::-1]


def at_other_prices(
    choice: Choice, numbers: Float[np.ndarray, " group"], priced: Priced, below: float
) -> tuple[float, Float[np.ndarray, " column"] | None]:
    """A higher bound of the plans of a setting that cost less than `below`, and the
    best plan found: prices of limits that the rows at the prices before would not keep
    rise, those of limits that they leave fall."""
    near = priced.reduced <= below - priced.cost
    first = len(choice.model.row_low) - len(priced.price)
    matrix, room = choice.model.matrix[first:], choice.model.row_high[first:]
    price, low, high = priced.price, 0 * priced.price, np.full(len(room), np.inf)
    begin = _BEGIN * abs(priced.cost) / np.maximum(np.abs(room), _TINY)
    bound, best, least = -np.inf, None, np.inf
    for _ in range(_PRICES):
        found, counts = alone(choice, numbers, price, near)
        bound = max(bound, found)
        _, safe = alone(choice, numbers, price, near, enough=True)
        cost = float(choice.model.cost @ safe)
        if cost < least and choice.fits(safe):
            best, least = safe, cost
        if bound >= min(below, least):
            break
        over = matrix @ counts - room
        more, less = over > _TINY * room, (over < -_TINY * room) & (price > 0)
        low, high = np.where(more, price, low), np.where(less, price, high)
        between = np.where(np.isfinite(high), (low + high) / 2, 1.5 * price + begin)
        price = np.where(more | less, between, price)
    return bound, best


def of_rows(
    choice: Choice, numbers: Float[np.ndarray, " group"],
    near: Bool[np.ndarray, " column"], *, seconds: float, gap: float,
) -> Found:  # fmt: skip
    """The least plan of a setting out of the columns `near`, as values of all."""
    model, has = choice.model, np.flatnonzero(numbers > 0)
    used = np.flatnonzero(near & (numbers[choice.group] > 0))
    both = sparse.vstack([model.matrix[:, used], choice.sums[has][:, used]])
    found = least(
        model.cost[used], sparse.csr_array(both),
        np.r_[model.row_low, numbers[has]], np.r_[model.row_high, numbers[has]],
        np.full(len(used), numbers.max(initial=0.0)),
        seconds=seconds, gap=gap,
    )  # fmt: skip
    if found.values is None:
        return found
    values = np.zeros(len(model.cost))
    values[used] = found.values
    return dataclasses.replace(found, values=values)
