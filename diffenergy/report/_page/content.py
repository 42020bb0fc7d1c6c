"""From a checked request to everything that its page shows."""

import math
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ...compiling import compiler_options
from ...estimator import EstimateResult, Setting, Task
from ...estimator._estimate import demands, estimate_once
from ...estimator._jax_setup import cache_folder
from ...estimator._programs import Programs
from ...estimator._settings import operating_points
from ...hardware import GpuSpec, OperatingPoint, _clocks
from ...hardware._files import field_units
from ...workload._workload import Workload, assemble
from .._summaries.kernel_work import roofs, with_work
from .._tables.known import gpu_summary
from .build import Content
from .charts.curves import Side
from .parts.rests import Basis, coefficients

_POINTS: Final = 32
_FEW: Final = 8
_LARGE: Final = 1000
"""Listing rows above which a curve has few points: a second of work a point."""


class Totals(NamedTuple):
    """A workload at several points; and the peak rates that its kernels are up
    against, of a listing row."""

    time: Float[Array | np.ndarray, " point"]  # s
    energy: Float[Array | np.ndarray, " point"]  # J
    sm_clock: Float[Array | np.ndarray, " point"]  # Hz, mean over time
    feasible: Bool[Array | np.ndarray, " point"]  # the power limit can be kept
    tensor_peak: Float[Array | np.ndarray, " row"]  # FLOP/cycle/SM; 0 if not used
    fma_peak: Float[Array | np.ndarray, " row"]  # FLOP/cycle/SM; 0 if not used


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


def totals(workload: Workload, gpu: GpuSpec, points: OperatingPoint) -> Totals:
    """`workload` at each of `points`."""

    def one(point: OperatingPoint) -> tuple[Array, Array, Array, Array]:
        found = estimate_once(workload, gpu, point)
        kept = jnp.all(found.phases.feasible)
        return found.time, found.energy, found.sm_clock, kept

    tensor, fma = jnp.zeros(workload.num_rows), jnp.zeros(workload.num_rows)
    asked = demands(workload, gpu, gpu.corrections)
    for group, demand in zip(workload.groups, asked, strict=True):
        used = jnp.where(demand.tensor > 0, demand.tensor_peak, 0.0).max(axis=1)
        tensor = tensor.at[group.row].max(used)
        used = jnp.where(demand.fma > 0, demand.fma_peak, 0.0).max(axis=1)
        fma = fma.at[group.row].max(used)
    return Totals(*jax.vmap(one)(points), tensor, fma)


def num_points(num_rows: int) -> int:
    """Clocks of a curve, and power limits: of a workload, not of a GPU, so that two
    GPUs share a compilation."""
    return _POINTS if num_rows <= _LARGE else _FEW


def sweep_settings(task: Task) -> list[Setting]:
    """The setting of `task` at rising SM clocks, then under as many power limits that
    its GPU accepts."""
    setting, values = task.settings[0], task.card.values
    num = num_points(sum(len(listing.kernels) for listing in task.listings))
    steps = np.sort(_clocks.sm_clocks(task.card))
    picked = steps[np.linspace(0, len(steps) - 1, num).round().astype(int)]
    low, high = values["power_limit_min"], values["power_limit_max"]
    limits = np.linspace(low, max(low, high), num)
    return [
        *(setting._replace(sm_clock=float(clock)) for clock in picked),
        *(setting._replace(power_limit=float(limit)) for limit in limits),
    ]
