"""`PlanResult`: what `plan` gives, as the command shows it."""

import dataclasses
import os
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ...results import Result, written
from .._apply.export import schedule_csv, schedule_rows
from .._apply.script import apply_script
from .._problem.plan import Objective, Plan
from .._problem.problem import AUTO, Problem, Total
from .._problem.totals import default_total
from .._solving.solve import Rules

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """A schedule with what it is measured against.

    `problem`: every kernel at every pair of clocks (of phases, where phases have clocks
    of their own); `plan`: which kernel runs at which; `summary`: the JSON of
    `diffenergy dvfs --json`; `default_clock`: SM and memory clock (Hz) that the default
    of a measured table stands for, NaN where nothing is said; `notes`: what a person
    should know beside it.
    """

    view: ClassVar[str] = "schedule"
    summary: dict[str, Any]
    problem: Problem
    plan: Plan
    objective: Objective
    rules: Rules
    notes: list[str]
    default_clock: tuple[float, float] = AUTO

    @property
    def time(self) -> float:
        """s of one iteration."""
        return self.plan.time

    @property
    def energy(self) -> float:
        """J of one iteration."""
        return self.plan.energy

    @property
    def default(self) -> Total:
        """Time and energy with every clock left alone."""
        return default_total(self.problem)

    @property
    def bound(self) -> float:
        """What no schedule can go below: J, J s, J s^2 or s, as the objective."""
        return self.plan.bound

    def rows(self) -> list[dict[str, Any]]:
        """Every kernel with its clocks (MHz, None: left alone), its cost in one launch
        (s, J) and its change against default clocks (%)."""
        return schedule_rows(self.problem, self.plan)

    def frontier(self) -> Float[np.ndarray, "point 2"]:
        """Change of time and energy against default clocks (%) of the schedules that
        no other one beats, by rising time."""
        return np.array(self.summary["frontier"]).reshape(-1, 2)

    def to_csv(self, path: Path | None = None) -> str:
        """The schedule as a table that `read_table` reads, MHz, s and J; also written
        to `path`, if given."""
        return written(schedule_csv(self.problem, self.plan, self.default_clock), path)

    def to_script(self, path: Path | None = None) -> str:
        """A Python program that applies the clocks and restores them on any exit; also
        written to `path`, if given. Nothing is applied here."""
        title = self.summary.get("model") or self.summary.get("table") or ""
        rules = self.rules
        text = apply_script(
            self.problem, self.plan, rules.granularity, rules.latency, title
        )
        return written(text, path)
