"""`SearchResult` and `TuneResult`: designs and tiles as the command shows them, and
their JSON, which tables and pictures show."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ..hardware import GpuCard, gpu_toml
from ..results import Result, finite, written
from ..workload import Listing
from ._problem.card import design_card
from ._problem.exact import UNITS
from ._problem.problem import LIMITS, DesignOutcome, Problem, Score
from ._space.ranges import TILES
from ._tiles.tiles import FIELDS as TILE_FIELDS
from ._tiles.tuning import Tuned, Tuning

_METRICS: Final = {
    "ttft_s": "ttft",
    "tpot_s": "tpot",
    "energy_j_per_token": "energy_per_token",
}
"""Keys of metrics that not every workload has."""
_SHAPE: Final = ("op", "batch", "m", "n", "k", "dtype")


@dataclasses.dataclass(frozen=True, repr=False)
class SearchResult(Result):
    """The best legal design that a search found, with what holds it back.

    `summary`: the JSON of `diffenergy codesign --json`; `outcome`: the same as records,
    with active limits, sensitivities and front; `problem`: the space, goals and limits;
    `card`: the GPU that designs start from; `notes`: what a person should know beside.
    """

    view: ClassVar[str] = "design"
    summary: dict[str, Any]
    outcome: DesignOutcome
    problem: Problem
    card: GpuCard
    notes: list[str]

    @property
    def best(self) -> Score:
        """The best design: `fields` by name, time, energy and more, SI."""
        return self.outcome.best

    @property
    def start(self) -> Score:
        """The GPU as it is, on the same workload."""
        return self.outcome.start

    @property
    def interrupted(self) -> bool:
        """Whether the search was cut short; the best may then pass a limit."""
        return self.outcome.interrupted

    @property
    def path(self) -> list[dict[str, Any]]:
        """The best legal design near the descent after every round."""
        return path_json(self.outcome)

    @property
    def refusal(self) -> str:
        """Sentence on the limits that the best design exceeds, with its values."""
        return self._views().refusal(self)

    def to_toml(
        self, name: str = "design", path: str | os.PathLike[str] | None = None
    ) -> str:
        """The best design as a GPU file called `name`; also written to `path`, if
        given, whole or not at all. Clocks to run at and tiles are no part of it."""
        card = design_card(self.card, self.problem, self.best, name)
        return written(gpu_toml(card), path)


@dataclasses.dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """The best legal tile of every matrix product of a workload.

    `summary`: the JSON of `diffenergy codesign --tune-tiles --json`; `tuning`: the same
    as records; `notes`: what a person should know beside.
    """

    view: ClassVar[str] = "tiles"
    summary: dict[str, Any]
    tuning: Tuning
    notes: list[str]

    @property
    def listings(self) -> Sequence[Listing]:
        """The kernels with their tiles, a phase each."""
        return self.tuning.listings


# --- JSON


def design_summary(problem: Problem, outcome: DesignOutcome) -> dict[str, Any]:
    """The fixed keys, with what was varied and limited.

    A number that is not known is None. `vary` gives bounds and base of every field;
    `limits` every limit in its unit, with the base's and the best design's value;
    `violation_pct` by how much a design passes its worst limit; `sensitivities` begin
    with the largest and end with unknown ones.
    """
    elasticities = [(name, finite(x)) for name, x in outcome.sensitivities]
    elasticities.sort(key=lambda pair: (pair[1] is None, -abs(pair[1] or 0.0)))
    return {
        "objective": outcome.objective,
        "unit": outcome.unit,
        "start": score_json(problem, outcome.start),
        "best": score_json(problem, outcome.best),
        "improvement_pct": finite(100 * outcome.improvement),
        "vary": _varied(problem),
        "limits": [
            {
                "name": LIMITS[metric],
                "metric": metric,
                "unit": UNITS.get(metric, ""),
                "limit": limit,
                "start": finite(outcome.start.metrics[metric]),
                "best": finite(outcome.best.metrics[metric]),
            }
            for metric, limit in problem.limits.items()
        ],
        "active_constraints": [
            {"name": x.name, "multiplier": finite(x.multiplier), "unit": x.unit}
            for x in outcome.active
        ],
        "sensitivities": [{"field": name, "elasticity": x} for name, x in elasticities],
        "evaluations": outcome.evaluations,
        "wall_s": outcome.wall,
        "seed": outcome.seed,
        "interrupted": outcome.interrupted,
        "pareto": [score_json(problem, score) for score in outcome.pareto],
    }


def score_json(problem: Problem, score: Score) -> dict[str, Any]:
    """A design: its objective, what the model says of it, and its fields (SI)."""
    priced = "cost" in problem.limits or "cost" in problem.goals
    counted, token = score.metrics["energy"], score.metrics.get("energy_per_token")
    boards, wall = {}, {}
    if problem.at_wall:
        wall = {
            "wall_energy_j": finite(counted),
            "wall_power_w": finite(counted / score.time),
            "wall_energy_j_per_token": finite(token),
        }
        each = None if token is None else token * score.energy / counted
        boards = {"energy_j_per_token": finite(each)}
    return {
        "objective": finite(score.objective),
        "time_s": finite(score.time),
        "energy_j": finite(score.energy),
        "avg_power_w": finite(score.power),
        "area_mm2": finite(score.area),
        **{key: finite(score.metrics.get(x)) for key, x in _METRICS.items()},
        **boards,
        **wall,
        "cost": finite(score.metrics.get("cost")) if priced else None,
        "violation_pct": finite(100 * score.violation),
        "fields": fields_json(score.fields),
    }


def fields_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Varied fields; counts of tiles as whole numbers."""
    entries = dict(fields)
    if TILES in entries:
        entries[TILES] = [
            {k: int(x) if k in TILE_FIELDS else x for k, x in tile.items()}
            for tile in entries[TILES]
        ]
    return entries


def path_json(outcome: DesignOutcome) -> list[dict[str, Any]]:
    """The best legal design near the descent after every round."""
    return [
        {
            **{k: finite(x) if isinstance(x, float) else x for k, x in entry.items()},
            "fields": fields_json(entry["fields"]),
        }
        for entry in outcome.path
    ]


def _varied(problem: Problem) -> dict[str, Any]:
    """Bounds, base and number of legal values (None: any) of every field."""
    first = len(problem.task.names)
    entries: dict[str, Any] = {
        axis.name: {
            "low": axis.low,
            "high": axis.high,
            "base": axis.base,
            "legal_values": None if axis.legal is None else len(axis.legal),
        }
        for axis in problem.axes[:first]
    }
    if problem.products:
        entries[TILES] = {"products": len(problem.products)}
    return entries


def tiles_json(tuning: Tuning) -> dict[str, Any]:
    """Summary of `tune`: totals, and one entry a matrix product (one launch, SI).

    `default_costs_more_pct`: by how much the library's choice costs more of what was
    asked for (`goal`).
    """
    return {
        "goal": tuning.goal,
        "time_s": tuning.time,
        "energy_j": tuning.energy,
        "default_time_s": tuning.default_time,
        "default_energy_j": tuning.default_energy,
        "tiles_tried": tuning.tried,
        "gemms": [_entry(tuned, tuning.goal) for tuned in tuning.products],
    }


def _entry(tuned: Tuned, goal: str) -> dict[str, Any]:
    kernel = tuned.product.kernel
    costs = {
        "time_s": tuned.time,
        "energy_j": tuned.energy,
        "default_time_s": tuned.default_time,
        "default_energy_j": tuned.default_energy,
    }
    key = "time_s" if goal == "time" else "energy_j"
    more = 100 * (costs[f"default_{key}"] / costs[key] - 1)
    return {
        **{name: kernel[name] for name in _SHAPE},
        "count": tuned.product.count,
        **{name: int(tuned.tile[name]) for name in TILE_FIELDS},
        **costs,
        "default_costs_more_pct": more,
    }
