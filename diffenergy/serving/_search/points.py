"""`Table`: the points of a search, servers that do both and pools apart alike."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._deployment import Deployment
from .request import Objective


@dataclasses.dataclass(frozen=True)
class Table:
    """Points of a search, flat. `candidate`: its number (pools apart: that of the
    decode pool); `clock` (Hz), batch `limit` and `replicas`; `prefill`: candidate of
    the prefill pool, -1 for servers that do both, its clock and workers; `group`:
    number of the deployment, whose points differ in clock and batch limit (pools apart:
    in all but the type); `gpus` in all; `power`: W of all of them, with a node at the
    wall; `energy` (J) and `cost` of an output token; `stable`: whether the power limit
    is kept with room to the saturation; `over`: figures over their limits, by name."""

    candidate: np.ndarray
    clock: np.ndarray
    limit: np.ndarray
    replicas: np.ndarray
    prefill: np.ndarray
    prefill_clock: np.ndarray
    prefill_workers: np.ndarray
    group: np.ndarray
    gpus: np.ndarray
    power: np.ndarray
    energy: np.ndarray
    cost: np.ndarray
    stable: np.ndarray
    over: dict[str, np.ndarray]

    @property
    def apart(self) -> np.ndarray:
        """Whether prefill and decode are apart."""
        return self.prefill >= 0

    def take(self, rows: np.ndarray) -> "Table":
        """The points at `rows`."""
        return jax.tree.map(lambda x: x[rows], self)

    def score(self, objective: Objective) -> np.ndarray:
        """What is to be least; of equal numbers of GPUs the one of least energy."""
        return score(objective, self.gpus, self.energy, self.cost)

    def keeps(self, factors: Mapping[str, float], but: str = "") -> np.ndarray:
        """Where limits times `factors` (1 where none is given) are kept, all `but`
        one."""
        keeps = self.stable.copy()
        for name, over in self.over.items():
            if name != but:
                keeps &= over <= factors.get(name, 1.0)
        return keeps

    def least(self, objective: Objective, factors: Mapping[str, float]) -> float:
        """The least score of points that keep the limits; infinite if none does."""
        scores = self.score(objective)[self.keeps(factors)]
        return float(scores.min(initial=np.inf))

    def ranked(self, objective: Objective, rows: np.ndarray) -> np.ndarray:
        """`rows` by score; of equals (to 9 digits) the one of highest clock, then that
        of the least batch limit."""
        scores = self.score(objective)[rows]
        equal = (scores / scores.min(initial=np.inf)).round(9)
        return rows[np.lexsort((self.limit[rows], -self.clock[rows], equal))]

    def best_rows(
        self, objective: Objective, factors: Mapping[str, float]
    ) -> np.ndarray:
        """The first of `ranked` of each group that keeps the limits times `factors`."""
        order = self.ranked(objective, np.flatnonzero(self.keeps(factors)))
        return order[np.unique(self.group[order], return_index=True)[1]]

    def scaled(self, rows: np.ndarray, factors: Mapping[str, float]) -> "Table":
        """The table with figures over limits of some rows times factors."""
        over = {
            name: np.where(rows, self.over[name] * x, self.over[name])
            for name, x in factors.items()
        }
        return dataclasses.replace(self, over=self.over | over)


jax.tree_util.register_dataclass(Table, [x.name for x in dataclasses.fields(Table)], [])


def joined(tables: Sequence[Table]) -> Table:
    """The points of all tables."""
    return jax.tree.map(lambda *x: np.concatenate(x), *tables)


def score(objective: Objective, gpus: Any, energy: Any, cost: Any) -> Any:
    """What a search makes least, of `gpus`, J and price of an output token."""
    by_name = {"energy": energy, "cost": cost, "gpus": gpus + energy / (1 + energy)}
    return by_name[objective]


def wall_power(of: Deployment, gpus: np.ndarray, power: np.ndarray) -> np.ndarray:
    """W of all GPUs, each of which draws `power` W; with a node at the wall."""
    if of.site is None:
        return gpus * power
    wall = np.empty_like(power)
    for number in np.unique(gpus):
        here = gpus == number
        watts = power[here][:, None]
        wall[here] = of.site.energies(np.ones_like(watts), watts, int(number)).wall
    return wall
