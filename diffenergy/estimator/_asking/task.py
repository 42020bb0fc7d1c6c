"""`Task`: a checked request, ready to run."""

import dataclasses
import math
from typing import Any

from ...hardware import GpuCard, GpuSpec
from ...results import Infeasible
from ...workload import Workload, assemble
from .._answer import figures as _figures
from .._answer import steps as _steps
from .._answer import summary as _summary
from .._answer.kernels import kernel_entries
from .._answer.power_profile import power_figures
from .._answer.records import Estimate
from .._answer.steps import Order
from .._answer.summary import EstimateResult
from .._effects import POINT, Question, effects
from .._packed import packed
from .._packed import run as run_packed
from .._points import at_points, stacked
from .checked import Checked
from .settings import operating_points, point_of


@dataclasses.dataclass(frozen=True)
class Task(Checked):
    """A checked request, ready to run."""

    def estimates(
        self, gpu: GpuSpec | None = None, like: Workload | None = None
    ) -> Estimate:
        """Estimates as records; several settings are a leading axis. `gpu`: other
        numbers than the task's; `like`: a workload whose program (`run` of `_packed`)
        is used if it has room for this one."""
        gpu = self.gpu if gpu is None else gpu
        work = None if like is None else packed(self.listings, like)
        if work is not None and len(self.settings) == 1:
            point = operating_points(self.settings)
            return run_packed(work, gpu, point, len(self.listings))
        work = assemble(self.listings)
        estimates = at_points([(work, gpu, point_of(x)) for x in self.settings])
        return estimates[0] if len(estimates) == 1 else stacked(estimates)

    def open_widths(self) -> dict[str, float]:
        """Half widths in ln of time, power and energy at the only setting: what guessed
        numbers of the GPU, and laws where nothing was fitted, leave open."""
        return _figures.open_widths(self, self.estimates())

    def run(self, like: Workload | None = None) -> EstimateResult:
        """Runs the model (`like`: see `estimates`). Raises `Infeasible` if no power
        limit can be kept."""
        estimates = self.estimates(like=like)
        if len(self.settings) > 1:
            summary = _summary.sweep(self, estimates)
            if summary["best_energy"] is None:
                least = min(point["least_power_w"] for point in summary["points"])
                raise Infeasible(too_low(least, self.card))
            return EstimateResult(summary, self.listings, None)
        least = _summary.least_power(estimates)
        if least is not None:
            raise Infeasible(too_low(least, self.card))
        step = None if self.step is None else _steps.step_of(self, estimates)
        summary = _summary.single(self, estimates, step)
        kernels = kernel_entries(self.listings, estimates)
        if step is not None:
            kernels = _steps.kernels(step, self.listings, kernels)
        if self.detail:
            summary["kernels"] = kernels
        if self.sensitivity:
            summary["sensitivity"] = self.effects()
        profile, curves = power_figures(self, step, summary, kernels)
        return EstimateResult(
            summary | profile, self.listings, kernels, self.detail, step, curves
        )

    def effects(self) -> list[dict[str, Any]]:
        """Sensitivity of time and energy to each number of the GPU."""
        point = point_of(self.settings[0])
        defaults = [*self.about["assumed"]]
        chosen = [x for x in POINT if not any(y.startswith(x) for y in defaults)]
        work, step = assemble(self.listings), self.step
        many = (step.steps, Order(step.placed.order)) if step else (None, None)
        question = Question(work, self.gpu, point, *many)
        return effects(question, chosen, self.sensitivity)


def too_low(least: float, card: GpuCard) -> str:
    """Sentence: the power limit is below the `least` power (W) at the lowest clock."""
    limit = math.ceil(least / card.values["cap_fraction"])
    lowest = card.values["sm_clock_min"] / 1e6
    return (
        f"`power_limit` cannot be kept: at its lowest clock ({lowest:g} MHz) the GPU "
        f"draws {least:.1f} W here; the least limit that can is {limit} W."
    )
