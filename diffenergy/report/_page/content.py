"""From a checked request to everything that its page shows."""

import math
from typing import Any

import numpy as np

from ...compiling import compiler_options
from ...estimator import EstimateResult, Task
from ...estimator._jax_setup import cache_folder
from ...estimator._programs import Programs
from ...estimator._settings import operating_points
from ...hardware._files import field_units
from ...workload._assemble import assemble
from .._summaries.kernel_work import roofs, with_work
from .._summaries.provenance import coefficients
from .._summaries.sweeps import Totals, sweep_settings, totals
from .._tables.known import gpu_summary
from .build import Content
from .charts.curves import Side
from .parts.rests import Basis


def page(
    task: Task,
    result: EstimateResult,
    versus: tuple[Task, EstimateResult] | None,
    command: str,
) -> Content:
    """The page of `result`, an estimate of one point, and of the same on a second GPU;
    `command`: the line that gives its numbers."""
    programs = Programs(cache_folder(), lambda _: compiler_options(once=True))
    found = _swept(task, programs)
    sides, bases = [_side(task, result, found)], [_basis(task)]
    notes = [*task.notes]
    if versus is not None:
        second, against = versus
        sides.append(_side(second, against, _swept(second, programs)))
        bases.append(_basis(second))
        notes += [f"{second.card.name}: {note}" for note in second.notes]
    values, summary = task.card.values, result.summary
    bandwidth = _dram_bandwidth(task)
    peaks = (np.asarray(found.tensor_peak), np.asarray(found.fma_peak))
    kernels = with_work(
        result.kernels or [], summary["phases"], values, bandwidth, *peaks
    )
    clock = max(phase["sm_clock_mhz"] for phase in summary["phases"].values())
    return Content(
        summary=summary,
        kernels=kernels,
        listings=result.listings,
        roofs=roofs(kernels, clock * 1e6, values, *peaks),
        dram_bandwidth=bandwidth,
        power_range=_power_range(task, summary),
        power_cap=task.settings[0].power_limit * values["cap_fraction"],
        sides=sides,
        bases=bases,
        fitted_on=task.corrections.fitted_on,
        notes=notes,
        command=command,
        versus=None if versus is None else versus[1].summary,
    )


def _swept(task: Task, programs: Programs) -> Totals:
    """The workload over clocks and limits, on the host."""
    points = operating_points(sweep_settings(task))
    arguments = (assemble(task.listings), task.gpu, points)
    return Totals(*map(np.asarray, programs(totals, arguments)))


def _side(task: Task, result: EstimateResult, found: Totals) -> Side:
    """Curves of one GPU; points whose power limit cannot be kept are left out."""
    columns = (found.time, found.energy, found.sm_clock, found.feasible)
    points = [
        {
            "sm_clock_set_mhz": setting.sm_clock / 1e6,
            "power_limit_w": setting.power_limit,
            "time_s": float(time),
            "energy_j": float(energy),
            "avg_power_w": float(energy / time),
            "sm_clock_mhz": float(clock) / 1e6,
            "feasible": bool(kept) and math.isfinite(time),
        }
        for setting, time, energy, clock, kept in zip(
            sweep_settings(task), *columns, strict=True
        )
    ]
    half = len(points) // 2
    clocks, limits = (
        [point for point in part if point["feasible"]]
        for part in (points[:half], points[half:])
    )
    return Side(task.card.name, clocks, limits, result.summary)


def _power_range(task: Task, summary: dict[str, Any]) -> list[float]:
    """5th and 95th percentile of the mean power, W."""
    power, time = summary["avg_power_w"], summary["time_s"]
    return [float(x) for x in task.trust.interval("power", power, time)]


def _dram_bandwidth(task: Task) -> float:
    """B/s at the memory clock of the estimate."""
    values = task.card.values
    share = task.settings[0].mem_clock / values["mem_clock"]
    return float(values["dram_bandwidth"] * share)


def _basis(task: Task) -> Basis:
    """What the figures of one GPU rest on."""
    gpu = gpu_summary(task.card, field_units(), task.corrections)
    return Basis(gpu, coefficients(task.card, task.corrections))
