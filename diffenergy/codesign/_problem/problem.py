"""`Problem`: a design space, goals and limits; `DesignOutcome`: the search's result."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from .._space.axes import Axis
from .._space.ranges import TILES
from .._space.task import METRICS, Task
from .._tiles.grid import TileTable
from .._tiles.tiles import FIELDS as TILE_FIELDS
from .exact import CUSTOM, GOALS, Judged, Target, target
from .legal import nearest

LIMITS: Final = {
    "time": "max_latency",
    "power": "max_power",
    "area": "max_area",
    "cost": "max_cost",
    "ttft": "max_ttft",
    "tpot": "max_tpot",
    "memory": "dram_capacity",
}
"""Names of the limits of metrics."""


@dataclasses.dataclass(frozen=True)
class Score:
    """A legal design and what the model says of it.

    `objective` is in the unit of the objective, `violation` by how much the worst limit
    is passed, as a share of it (0: none). `fields`: the varied numbers by name, SI, and
    `tiles` as a list of one mapping a matrix product. `metrics`: every metric by name.
    """

    objective: float
    time: float  # s
    energy: float  # J
    power: float  # W, mean
    area: float  # mm2
    violation: float
    fields: Mapping[str, Any]
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Active:
    """A limit or bound that holds the design back.

    `multiplier`: how much the objective falls for one unit more room, in `unit`.
    """

    name: str
    multiplier: float
    unit: str


@dataclasses.dataclass(frozen=True)
class DesignOutcome:
    """Result of a search.

    `sensitivities`: d ln(objective) / d ln(field) of every hardware number at the best
    design, that number alone; None where the field is 0. `path`: one entry a round of
    the search. `interrupted`: the search was cut short, `best` is the best so far.
    """

    objective: str
    unit: str
    start: Score
    best: Score
    active: tuple[Active, ...]
    sensitivities: tuple[tuple[str, float | None], ...]
    evaluations: int
    wall: float  # s
    seed: int
    pareto: tuple[Score, ...]
    path: tuple[Mapping[str, Any], ...]
    interrupted: bool = False

    @property
    def improvement(self) -> float:
        """Share by which the objective fell from start to best."""
        return 1 - self.best.objective / self.start.objective


@dataclasses.dataclass(frozen=True)
class Share:
    """At most this share of what the start design has of a metric.

    `share`: above 0; 1.1 allows a tenth more.

    Raises `ValueError` for any other number.
    """

    share: int | float

    def __post_init__(self):
        if not (math.isfinite(self.share) and self.share > 0):
            raise ValueError(
                f"`share` is {self.share:g}; allowed is a number above 0, such as 1.1."
            )


@dataclasses.dataclass(frozen=True)
class Problem:
    """A design space over a task, with goals (the first one is `best`'s) and limits.

    `axes`: those of `task.names`, then the tile fields, each for all `products`.
    `products`: what a matrix product is called, with its shape. `start`: metrics of the
    base design as it is (tiles as the library chooses them). `known`: metrics that this
    task has.
    """

    task: Task
    axes: tuple[Axis, ...]
    goals: tuple[str, ...]
    limits: Mapping[str, float]
    products: tuple[Mapping[str, Any], ...]
    known: frozenset[str]
    start: Task | None = None
    """The task without tiles, where they are varied: the library chooses."""

    @property
    def at_wall(self) -> bool:
        """Whether energy counts at the wall."""
        return any(member.wall is not None for member in self.task.members)

    @property
    def targets(self) -> list[Target]:
        """Target of each goal, all under the limits."""
        return [target(goal, self.limits) for goal in self.goals]

    def legal(
        self, values: Float[np.ndarray, "design axis"]
    ) -> Float[np.ndarray, "design axis"]:
        """The nearest legal designs; tiles by all their fields together."""
        designs = nearest(self.axes, values)
        first = len(self.task.names)
        if self.products:
            tiles = values[:, first:].reshape(len(values), -1, len(self.products))
            sizes = [
                self._sizes(designs, n) for n in ("smem_per_sm", "registers_per_sm")
            ]
            designs[:, first:] = self._tile_table(tiles, *sizes).reshape(
                len(values), -1
            )
        return designs

    def _sizes(
        self, values: Float[np.ndarray, "design axis"], name: str
    ) -> Float[np.ndarray, " design"]:
        """A number of the GPU in every design."""
        if name in self.task.names:
            return values[:, self.task.names.index(name)]
        return np.full(len(values), float(getattr(self.task.gpu, name)))

    @functools.cached_property
    def _tile_table(self) -> TileTable:
        return TileTable(self.task.gpu, self.task.shapes)

    @property
    def bounds(self) -> Float[np.ndarray, "2 axis"]:
        """Lower and upper bounds of the axes."""
        ends = [(axis.low, axis.high) for axis in self.axes]
        return np.reshape(ends, (-1, 2)).T  # no axes: choices alone

    @property
    def base(self) -> Float[np.ndarray, " axis"]:
        """Values of the base design."""
        return np.array([axis.base for axis in self.axes])

    def score(self, judged: Judged, row: int, goal: Target) -> Score:
        """Score of one judged design, by names of metrics and fields."""
        values = judged.values[row]
        metrics = dict(zip(METRICS, map(float, judged.metrics[row]), strict=True))
        metrics = {name: x for name, x in metrics.items() if name in self.known}
        fields: dict[str, Any] = {
            name: float(value)
            for name, value in zip(self.task.names, values, strict=False)
        }
        if self.products:
            fields[TILES] = self._tiles(values[len(self.task.names) :])
        return Score(
            float(judged.objective(goal)[row]),
            metrics["time"],
            metrics["board_energy"],
            metrics["power"],
            metrics["area"],
            float(judged.violation(goal)[row]),
            fields,
            metrics,
        )

    def _tiles(self, values: Float[np.ndarray, " axis"]) -> list[dict[str, Any]]:
        """Tiles of every product, beside its shape; none where the library chooses."""
        columns = values.reshape(len(TILE_FIELDS), -1).T.tolist()
        return [
            {**product, **dict(zip(TILE_FIELDS, column, strict=True))}
            for product, column in zip(self.products, columns, strict=False)
        ]


def check_goals(goals: Sequence[str]) -> None:
    """Raises `ValueError` for a goal that there is not, or one given twice."""
    for goal in goals:
        if goal not in GOALS and goal != CUSTOM:
            raise ValueError(
                f"`goals` is '{goal}'; allowed are {', '.join(GOALS)}, or several "
                "of them with commas."
            )
        if len(goals) > 1 and sum(GOALS.get(goal, {"": 2}).values()) > 1:
            raise ValueError(
                f"`goals` is {','.join(goals)}, but a front is made of single "
                f"metrics; leave '{goal}' out."
            )
        if goals.count(goal) > 1:
            raise ValueError(f"`goals` names '{goal}' twice; name it once.")
