"""`PlanResult`: the result of a search for a plan."""

import dataclasses
import functools
from typing import Any, ClassVar

from ..estimator import EstimateResult, Task
from ..plans import TrainingStep
from ..results import Result, finite
from ..units import MHz
from ..workload import assemble
from ._search import Limits, Priced, SearchOutcome


@dataclasses.dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """The best plan: its figures, those of the next best and of the frontier."""

    view: ClassVar[str] = "best_plan"
    summary: dict[str, Any]
    """The JSON of the command."""
    outcome: SearchOutcome
    """Plans as they were priced, and all that were ranked."""
    best: EstimateResult
    """The best one as `estimate` answers it."""
    task: Task
    """The checked request of the best plan."""

    @functools.cached_property
    def step(self) -> TrainingStep:
        """The step of the best plan as a record: `de.estimate(step, gpu)` is
        differentiable."""
        return step_of(self.task)


def step_of(task: Task) -> TrainingStep:
    """The training step of a task as a record."""
    assert task.step is not None
    return TrainingStep(
        assemble(task.listings), task.step.steps, task.step.placed.order
    )


def plan_summary(
    outcome: SearchOutcome,
    best: dict[str, Any],
    objective: str,
    limits: Limits,
    highest: float,
    sensitivities: dict[str, Any],
) -> dict[str, Any]:
    """JSON of the command (DESIGN: `best`, `plan`, `considered`, `objective`,
    `frontier`); `highest`: Hz that was asked for."""
    return {
        "model": best["model"],
        "gpu": best["gpu"],
        "num_gpus": best["num_gpus"],
        "global_batch": best["global_batch"],
        "objective": objective,
        "plan": outcome.best.plan.text,
        "sm_clock_mhz": outcome.best.sm_clock / MHz,
        "highest_sm_clock_mhz": highest / MHz,
        "best": best,
        "second": None if outcome.second is None else entry(outcome.second),
        "considered": outcome.considered,
        "fitting": outcome.fitting,
        "priced": outcome.priced,
        "ranking_error": outcome.error,
        "next_behind": outcome.behind,
        "max_memory_bytes": limits.memory,
        "max_power_w": finite(limits.power),
        **_over_time(limits.swing, limits.ramp, "max_"),
        "sensitivities": sensitivities,
        "frontier": [entry(x) for x in outcome.frontier],
    }


def entry(x: Priced) -> dict[str, Any]:
    """A plan with its figures."""
    return {
        "plan": x.plan.text,
        "num_gpus": x.plan.gpus,
        "step_time_s": x.time,
        "energy_j": x.energy,
        "memory_per_gpu_bytes": x.memory,
        "power_total_w": x.power,
        "sm_clock_mhz": x.sm_clock / MHz,
        "exact": x.exact,
        **_over_time(x.swing, x.ramp),
        **({} if x.wall is None else _at_wall(x.wall, x.time)),
    }


def _at_wall(energy: float, time: float) -> dict[str, float]:
    """Keys of a step at the wall."""
    return {"wall_energy_j": energy, "wall_power_w": energy / time}


def _over_time(
    swing: float | None, ramp: float | None, prefix: str = ""
) -> dict[str, float | None]:
    """Keys of swing (W) and ramp (W/s), or of their limits, where they are known."""
    keys = {"swing_w": swing, "ramp_w_per_s": ramp}
    return {f"{prefix}{x}": y for x, y in keys.items() if finite(y) is not None}
