"""What a search makes small, and what it must keep."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from jaxtyping import Float

from .._space.task import METRICS

GOALS: Final[Mapping[str, Mapping[str, int]]] = {
    "energy": {"energy": 1},
    "time": {"time": 1},
    "edp": {"energy": 1, "time": 1},
    "ed2p": {"energy": 1, "time": 2},
    "energy_per_token": {"energy_per_token": 1},
    "area": {"area": 1},
    "cost": {"cost": 1},
}
"""Powers of the metrics whose product is made small."""

UNITS: Final = {
    "energy": "J",
    "time": "s",
    "edp": "J s",
    "ed2p": "J s^2",
    "energy_per_token": "J",
    "area": "mm2",
    "cost": "price",
    "power": "W",
    "ttft": "s",
    "tpot": "s",
    "memory": "share of DRAM",
}
CUSTOM: Final = "custom"
"""Name of a caller's own objective."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What one descent is after, as arrays over `METRICS`.

    `powers`: exponents of the product to make small (all 0: the caller's own
    objective); `limits`: the most that each metric may be, infinite for none.
    """

    powers: Float[np.ndarray, " metric"]
    limits: Float[np.ndarray, " metric"]

    @property
    def custom(self) -> bool:
        """Whether the caller's own objective is made small."""
        return not self.powers.any()


def target(goal: str, limits: Mapping[str, float]) -> Target:
    """Target of a goal (`GOALS`, or `CUSTOM`) under `limits` by metric, SI."""
    powers = np.zeros(len(METRICS))
    for metric, power in GOALS.get(goal, {}).items():
        powers[METRICS.index(metric)] = power
    most = np.full(len(METRICS), math.inf)
    for metric, limit in limits.items():
        most[METRICS.index(metric)] = limit
    return Target(powers, most)


def objective(
    targets: Sequence[Target],
    metrics: Float[np.ndarray, "design metric"],
    custom: Float[np.ndarray, " design"],
) -> Float[np.ndarray, "design goal"]:
    """Values of the objectives, each in its unit."""
    logs = np.log(metrics)
    columns = [custom if t.custom else np.exp(logs @ t.powers) for t in targets]
    return np.stack(columns, axis=-1)


def excess(
    limits: Float[np.ndarray, " metric"], metrics: Float[np.ndarray, "design metric"]
) -> Float[np.ndarray, "design metric"]:
    """By how much each limit is passed, as a share of it; -1 where there is none."""
    return np.where(np.isinf(limits), -1.0, metrics / limits - 1)
