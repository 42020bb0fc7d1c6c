"""`Found`: what a search comes back with; every score in it is exact."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Score:
    """A legal design and what the model says of it.

    `objective` is in the unit of the objective, `area` NaN where it is not known,
    `violation` by how much the worst limit is passed, as a share of it (0: none).
    `fields`: the varied numbers by name, SI, and `tiles` as a list of one mapping a
    matrix product. `metrics`: every metric by name, SI.
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
class Found:
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
