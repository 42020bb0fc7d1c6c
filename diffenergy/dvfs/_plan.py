"""`Objective`, `Rules` and `Plan`: what is asked of a schedule, and the answer."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ._problem import TIE, Problem, Spent, Total, default_spent, listed
from ._request import Aggregation, Goal, Granularity
from ._switching import Switching

_POWERS: Final = {"energy": (1, 0), "edp": (1, 1), "ed2p": (1, 2), "time": (0, 1)}
"""Of energy and time, in what is to be small."""


class Objective(NamedTuple):
    """Least energy, E T, E T^2 or time among the schedules that keep two limits."""

    goal: Goal = "energy"
    max_slowdown: float = np.inf  # % against the default clocks; negative: faster
    power_cap: float = np.inf  # W, mean over the iteration

    @property
    def powers(self) -> tuple[int, int]:
        """Of energy and time, in what is to be small."""
        return _POWERS[self.goal]

    def value(self, total: Total) -> Float[np.ndarray, "*plan"]:
        """Value of the objective: J, J s, J s^2 or s."""
        if self.goal == "time":
            return np.asarray(total.time)
        return np.asarray(total.energy * total.time ** self.powers[1])

    def most_time(self, default: Total) -> float:
        """Longest time allowed (s)."""
        return float(default.time * (1 + self.max_slowdown / 100))

    def keeps(self, total: Total, default: Total) -> Bool[np.ndarray, "*plan"]:
        """Whether totals keep both limits."""
        fast = total.time <= self.most_time(default) * (1 + TIE)
        if np.isinf(self.power_cap):
            return np.asarray(fast)
        return np.asarray(
            fast & (total.energy <= self.power_cap * total.time * (1 + TIE))
        )


@dataclasses.dataclass(frozen=True)
class Rules:
    """What a schedule may do.

    `aggregation`: the sum keeps the limits, or every kernel too. `granularity`: what
    has clocks of its own. `per_launch`: launches of a kernel may differ. `switching`:
    cost of a change (`None`: free), during which the GPU draws `stall_power` (W;
    `None`: the least power of the table).
    """

    aggregation: Aggregation = "global"
    granularity: Granularity = "kernel"
    per_launch: bool = False
    switching: Switching | None = None
    stall_power: float | None = None

    @property
    def changes(self) -> Switching:
        """What a change of clocks costs."""
        return self.switching or Switching()

    @property
    def free(self) -> bool:
        """Whether clocks change at no cost."""
        return self.changes.free

    @property
    def latency(self) -> float:
        """Time of a change of clocks (s)."""
        return self.changes.latency

    def stalled(self, problem: Problem) -> float:
        """W that a GPU draws while it stands still: no more than the coolest launch."""
        least = float(problem.power.min())
        return least if self.stall_power is None else self.stall_power


@dataclasses.dataclass(frozen=True)
class Plan:
    """A schedule: `count` launches of `kernel` at `setting` for every row.

    One row per kernel, or (switching, `per_launch`) several: in launch order where
    switching costs and clocks may change, else grouped by kernel. `solver` "default"
    leaves every clock alone; its rows name the first setting.
    """

    kernel: Int[np.ndarray, " row"]
    setting: Int[np.ndarray, " row"]
    count: Float[np.ndarray, " row"]
    time: float  # s, one iteration, switches and waiting included
    energy: float  # J
    value: float  # of the objective
    bound: float  # no schedule of this kind has a smaller value
    bound_energy: float  # J: of energy `bound`; else the least within the plan's time
    solver: str
    switches: float  # changes of setting in one iteration; NaN where they are free

    def agreeing(self, objective: Objective) -> "Plan":
        """The plan with one bound of energy where energy is the objective."""
        if objective.goal != "energy":
            return self
        return dataclasses.replace(self, bound_energy=self.bound)

    @property
    def gap(self) -> float:
        """(value - bound) / value, 0-1: how far the optimum may lie below."""
        return (self.value - self.bound) / self.value

    def spent(self, problem: Problem) -> Spent:
        """Time and energy of the launches on the GPU, without changes of clocks."""
        if self.solver == "default":
            return default_spent(problem)
        return listed(problem, self.kernel, self.setting, self.count)

    @property
    def total(self) -> Total:
        """Time and energy."""
        return Total(np.asarray(self.time), np.asarray(self.energy))
