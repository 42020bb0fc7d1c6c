"""What a workload costs by the model: every listing row at clocks of its own, and the
whole at one pair of clocks or one power limit, limiter included."""

import dataclasses
import math
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ..corrections import Corrections
from ..estimator import (
    PhaseEstimate,
    at_points,
    estimate_once,
    runs,
    stacked,
    unstacked,
)
from ..hardware import GpuCard, GpuSpec, OperatingPoint
from ..physics import LEAKAGE_REFERENCE, static_power, with_corrections
from ..workload import LaunchGroup, Phases, Workload
from ._problem import Spent

_MOST_LIMITS: Final = 64


class Costs(NamedTuple):
    """All launches of a listing row together, at the clocks of the row."""

    time: Float[Array | np.ndarray, "*setting row"]  # s
    work: Float[Array | np.ndarray, "*setting row"]  # J beyond idle and leakage
    idle: Float[Array | np.ndarray, "*setting row"]  # W
    leakage: Float[Array | np.ndarray, "*setting row"]  # W where `leakage_growth` is 1


def row_costs(
    workload: Workload, gpu: GpuSpec, clocks: OperatingPoint, corrections: Corrections
) -> Costs:
    """Costs of every row of `workload` at `clocks` (one row a listing row, of which
    power cap and temperature are not used) on a `gpu` with `corrections`. Pure,
    differentiable; `jax.vmap` over clocks. Rows have no host, and the power limiter
    stays out: what a stage may draw is a limit of the whole schedule.
    """
    ones = jnp.ones_like(clocks.sm_clock)
    applied = jnp.minimum(clocks.sm_clock, gpu.sm_clock_applied_max)
    point = dataclasses.replace(
        clocks, sm_clock=applied, power_cap=ones, temperature=LEAKAGE_REFERENCE * ones
    )
    run, _ = runs(_by_row(workload, len(ones)), gpu, point, corrections, False, False)
    board = with_corrections(gpu, corrections)
    idle, leakage, _ = static_power(board, corrections, applied, 0 * ones, point)
    work = run.energy - (idle + leakage) * run.time
    return Costs(run.time, work, idle, leakage)


def _by_row(workload: Workload, number: int) -> Workload:
    """The same launches with each of the `number` listing rows as a phase of its own,
    without host."""
    zeros = jnp.zeros(number)
    owner = zeros.astype(jnp.int32)
    for group in workload.groups:
        owner = owner.at[group.row].set(group.phase)
    groups = tuple(LaunchGroup(g.count, g.row, g.row) for g in workload.groups)
    p = workload.phases
    about = (p.data_activity, p.math_activity, p.training, p.age)
    contents = (x[owner] for x in about)
    phases = Phases(zeros, zeros, zeros, zeros, zeros, zeros, *contents)
    return Workload(workload.shapes, groups, phases, ("",) * number)


# --- one setting for all


@dataclasses.dataclass(frozen=True)
class PowerCurve:
    """A workload under power limits from the least one up, clocks left alone."""

    limit: Float[np.ndarray, " limit"]  # W
    time: Float[np.ndarray, " limit"]  # s
    energy: Float[np.ndarray, " limit"]  # J
    sm_clock: Float[np.ndarray, " limit"]  # Hz, mean over time, after the limiter
    feasible: Bool[np.ndarray, " limit"]  # the limit can be kept at the lowest clock


@dataclasses.dataclass(frozen=True)
class Uniform:
    """A workload with one setting for all kernels."""

    default: PhaseEstimate
    clocks: Spent  # [setting, stage], waiting included
    static: Float[np.ndarray, "setting stage"]  # W of idling and leakage
    feasible: Bool[np.ndarray, " setting"]  # the power limit can be kept
    limits: PowerCurve
    limited: PhaseEstimate  # [limit, stage]


def uniform(
    workload: Workload,
    card: GpuCard,
    corrections: Corrections,
    settings: Float[np.ndarray, "setting 2"],
    power_cap: float,
    temperature: float | None,
) -> Uniform:
    """`workload` at default clocks, at each of `settings` (SM, memory clock; Hz, NaN:
    left alone) under `power_cap` (W), and under lower power limits.

    Limits go up from the least one that `card` accepts by whole watts, in at most 64
    steps. `temperature`: C; None lets it follow the power.
    """
    limits = _limits(card, power_cap)
    points = _points(card, settings, limits, power_cap, temperature)
    gpu = card.spec
    questions = [(workload, gpu, point, corrections) for point in unstacked(points)]
    phases: PhaseEstimate = stacked(at_points(questions, _phases))
    time, energy, clock, keeps = (
        np.asarray(x)
        for x in (phases.time, phases.energy, phases.sm_clock, phases.feasible)
    )
    keeps, last = np.asarray(keeps.all(axis=1)), len(settings) + 1
    whole = time[last:].sum(axis=1)
    return Uniform(
        default=jax.tree.map(lambda x: x[0], phases),
        clocks=Spent(time[1:last], energy[1:last]),
        static=np.asarray(phases.static_power)[1:last],
        feasible=keeps[1:last],
        limits=PowerCurve(
            limits,
            whole,
            energy[last:].sum(axis=1),
            (clock * time)[last:].sum(axis=1) / whole,
            keeps[last:],
        ),
        limited=jax.tree.map(lambda x: x[last:], phases),
    )


def _limits(card: GpuCard, highest: float) -> Float[np.ndarray, " limit"]:
    """Power limits from the least one to `highest`, W."""
    least = math.ceil(min(card.values["power_limit_min"], highest))
    step = max(math.ceil((highest - least) / (_MOST_LIMITS - 1)), 1)
    return np.append(np.arange(least, highest, step), highest).astype(float)


def _points(
    card: GpuCard,
    settings: Float[np.ndarray, "setting 2"],
    limits: Float[np.ndarray, " limit"],
    power_cap: float,
    temperature: float | None,
) -> OperatingPoint:
    """Default, settings, limits."""
    left = np.full((1, 2), np.nan)
    clocks = np.concatenate([left, settings, np.repeat(left, len(limits), axis=0)])
    caps = np.concatenate([np.full(1 + len(settings), power_cap), limits])
    degrees = math.nan if temperature is None else temperature
    return OperatingPoint(
        *applied(card, clocks),
        caps,
        np.full(len(clocks), degrees),
        ~np.isnan(clocks[:, 1]),
    )


def applied(
    card: GpuCard, settings: Float[np.ndarray, "*setting 2"]
) -> tuple[Float[np.ndarray, "*setting"], Float[np.ndarray, "*setting"]]:
    """SM and memory clocks asked for, Hz: a clock left alone is the highest one."""
    highest = np.array([card.values["sm_clock_max"], card.values["mem_clock"]])
    clocks = np.where(np.isnan(settings), highest, settings)
    return clocks[..., 0], clocks[..., 1]


def _phases(
    workload: Workload, gpu: GpuSpec, point: OperatingPoint, corrections: Corrections
) -> PhaseEstimate:
    return estimate_once(workload, gpu, point, corrections).phases
