"""Replicas of one model that carry its demand, whole rows each, at the least cost.

What they carry above the slowest rows is counted in parts of what is missing with
these, one replica after the other: a dynamic program.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

_TINY = 1e-12


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
            down = np.floor(more * (1 + _TINY))
            more = down if enough else np.ceil(more * (1 - _TINY))
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
        order = np.lexsort((cost, -parts))
        before = np.r_[np.inf, np.minimum.accumulate(cost[order])[:-1]]
        self.useful = order[cost[order] < before]  # others carry no more for more

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
