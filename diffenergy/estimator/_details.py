"""`EstimateDetails`: what the page of an estimate shows beside its summary: the same
workload over clocks and power limits, work of its kernels, numbers behind it."""

import dataclasses
import math
from typing import Any, Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ..corrections import constant_rows
from ..hardware import GpuSpec, OperatingPoint, gpu_summary, sm_clocks
from ..plans import Plan, Steps, TrainingStep
from ..workload import Workload, assemble
from ._answer.step_estimate import of_step
from ._answer.steps import Order
from ._answer.summary import EstimateResult
from ._asking.settings import Setting, point_of
from ._asking.task import Task
from ._estimate import estimate_once
from ._kernel_work import Entries, Entry, Roof, mean_gpu_kernels, roofs, with_work
from ._launches import demands
from ._points import at_points, stacked

_POINTS: Final = 32
_FEW: Final = 8
_LARGE: Final = 1000
"""Listing rows above which a curve has few points: a second of work a point."""


@dataclasses.dataclass(frozen=True)
class EstimateDetails:
    """An estimate on one GPU, and what its page shows beside the summary.

    `clocks` and `limits`: figures of the whole workload at rising SM clocks, and under
    rising power limits, without the points whose power limit cannot be kept.
    `kernels`: those of `with_work`; of training on many GPUs those of the mean GPU.
    `dram_bandwidth`: B/s at the estimate's clock; `power_limit`: W that the limiter
    keeps; `gpu`: its `gpu_summary`; `constants`: its `constant_rows`; `fitted_on`: that
    of the corrections file.
    """

    result: EstimateResult
    clocks: Entries
    limits: Entries
    kernels: Entries
    roofs: list[Roof]
    dram_bandwidth: float
    power_limit: float
    gpu: Entry
    constants: Entries
    fitted_on: Entry


def estimate_details(task: Task, result: EstimateResult) -> EstimateDetails:
    """Details of `result` for a page: curves over clocks and limits, roofs, kernels."""
    totals = _swept(task)
    clocks, limits = _curves(task, totals)
    setting, values = task.settings[0], task.card.values
    rates = task.card.rates(setting.sm_clock, setting.mem_clock)
    bandwidth = float(rates.dram)
    number = sum(len(listing.kernels) for listing in task.listings)
    tensor, fma = (
        np.asarray(x)[:number] for x in (totals.tensor_peak, totals.fma_peak)
    )
    rows, at = result.kernels or [], _phase_clocks(result)
    kernels = with_work(rows, at, values, bandwidth, tensor, fma)
    return EstimateDetails(
        result=result,
        clocks=clocks,
        limits=limits,
        kernels=mean_gpu_kernels(kernels, result.summary) if result.step else kernels,
        roofs=roofs(rows, max(at.values()), values, tensor, fma),
        dram_bandwidth=bandwidth,
        power_limit=setting.power_limit * values["cap_fraction"],
        gpu=gpu_summary(task.card, task.corrections),
        constants=constant_rows(task.card, task.corrections),
        fitted_on=task.corrections.fitted_on,
    )


class _Totals(NamedTuple):
    """A workload at a point, or at several; and the peak rates that its kernels are
    up against, of a listing row."""

    time: Float[Array | np.ndarray, "*point"]  # s
    energy: Float[Array | np.ndarray, "*point"]  # J
    sm_clock: Float[Array | np.ndarray, "*point"]  # Hz, mean over time
    feasible: Bool[Array | np.ndarray, "*point"]  # the power limit can be kept
    tensor_peak: Float[Array | np.ndarray, "*row"]  # FLOP/cycle/SM; 0 if not used
    fma_peak: Float[Array | np.ndarray, "*row"]  # FLOP/cycle/SM; 0 if not used


def _phase_clocks(result: EstimateResult) -> dict[str, float]:
    """SM clock of each phase that kernels name, Hz."""
    if result.step is None:
        phases = result.summary["phases"].items()
        return {name: phase["sm_clock_mhz"] * 1e6 for name, phase in phases}
    clocks = np.asarray(result.step.result.phases.phases.sm_clock).tolist()
    names = [str(listing.mode) for listing in result.listings]
    return dict(zip(names, clocks, strict=True))


def _swept(task: Task) -> _Totals:
    """Totals of the workload at all clocks and limits of the curves, on the host."""
    work, gpu = assemble(task.listings), task.gpu
    points = [point_of(setting) for setting in _sweep_settings(task)]
    if task.step is not None:
        steps, order = task.step.steps, Order(task.step.placed.order)
        answers = at_points(
            [(work, gpu, x, steps, order) for x in points], _step_totals
        )
    else:
        plan = task.plan or Plan()
        shared = np.array([plan.tp * plan.dp, plan.pp - 1], float)
        answers = at_points([(work, gpu, x, shared) for x in points], _totals)
    every: _Totals = stacked(answers)
    return every._replace(tensor_peak=every.tensor_peak[0], fma_peak=every.fma_peak[0])


def _curves(
    task: Task, totals: _Totals
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Points over clocks and over limits; those whose power limit cannot be kept are
    left out."""
    columns = (totals.time, totals.energy, totals.sm_clock, totals.feasible)
    points = [
        {
            "sm_clock_set_mhz": setting.sm_clock / 1e6,
            "power_limit_w": setting.power_limit,
            "time_s": float(time),
            "energy_j": float(energy),
            "avg_power_w": float(energy / time),
            "sm_clock_mhz": float(clock) / 1e6,
            "feasible": bool(feasible) and math.isfinite(time),
        }
        for setting, time, energy, clock, feasible in zip(
            _sweep_settings(task), *columns, strict=True
        )
    ]
    half = len(points) // 2
    clocks, limits = (
        [point for point in part if point["feasible"]]
        for part in (points[:half], points[half:])
    )
    return clocks, limits


def _totals(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint,
    shared: Float[Array | np.ndarray, " 2"],
) -> _Totals:
    """`workload` at a point; `shared`: GPUs of a stage of a plan, and its further
    stages, which wait meanwhile."""
    result = estimate_once(workload, gpu, point)
    still = jnp.sum(result.phases.static_energy)
    return _Totals(
        result.time,
        shared[0] * (result.energy + shared[1] * still),
        result.sm_clock,
        jnp.all(result.phases.feasible),
        *_peaks(workload, gpu),
    )


def _step_totals(
    workload: Workload, gpu: GpuSpec, point: OperatingPoint, steps: Steps, order: Order
) -> _Totals:
    """A training step of many GPUs at a point."""
    work = TrainingStep(workload, steps, order.pipeline)
    step = of_step(estimate_once, work, gpu, point)
    return _Totals(
        step.time,
        step.energy,
        step.phases.sm_clock,
        jnp.all(step.phases.phases.feasible),
        *_peaks(workload, gpu),
    )


def _peaks(workload: Workload, gpu: GpuSpec) -> tuple[Array, Array]:
    """FLOP/cycle/SM that every row is up against on tensor and on CUDA cores; 0 beyond
    the last one."""
    tensor, fma = jnp.zeros((2, workload.num_launches))
    all_demands = demands(workload, gpu, gpu.corrections)
    for group, demand in zip(workload.groups, all_demands, strict=True):
        used = jnp.where(demand.tensor > 0, demand.tensor_peak, 0.0).max(axis=1)
        tensor = tensor.at[group.row].max(used)
        used = jnp.where(demand.fma > 0, demand.fma_peak, 0.0).max(axis=1)
        fma = fma.at[group.row].max(used)
    return tensor, fma


def num_points(num_rows: int) -> int:
    """Clocks of a curve, and power limits: of a workload, not of a GPU, so that two
    GPUs share a compilation."""
    return _POINTS if num_rows <= _LARGE else _FEW


def _sweep_settings(task: Task) -> list[Setting]:
    """The setting of `task` at rising SM clocks, then under as many power limits that
    its GPU accepts."""
    setting, values = task.settings[0], task.card.values
    num = num_points(sum(len(listing.kernels) for listing in task.listings))
    steps = np.sort(sm_clocks(task.card))
    picked = steps[np.linspace(0, len(steps) - 1, num).round().astype(int)]
    low, high = values["power_limit_min"], values["power_limit_max"]
    limits = np.linspace(low, max(low, high), num)
    return [
        *(setting._replace(sm_clock=float(clock)) for clock in picked),
        *(setting._replace(power_limit=float(limit)) for limit in limits),
    ]
