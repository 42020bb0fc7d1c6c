"""What every listing row costs at clocks of its own, from the model."""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...corrections import Corrections
from ...estimator._estimate import runs
from ...hardware._spec import GpuSpec, OperatingPoint
from ...physics._power import LEAKAGE_REFERENCE, static_power, with_corrections
from ...workload._workload import Group, Phases, Workload


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
    power cap and temperature are not used). Pure, differentiable; `jax.vmap` over
    clocks. Rows have no host, and the power limiter stays
    out: what a stage may draw is a limit of the whole schedule.
    """
    ones = jnp.ones_like(clocks.sm_clock)
    warm = LEAKAGE_REFERENCE + corrections.leakage_efold * math.log(2)  # growth 1
    applied = jnp.minimum(clocks.sm_clock, gpu.sm_clock_applied_max)
    point = dataclasses.replace(
        clocks, sm_clock=applied, power_cap=ones, temperature=warm * ones
    )
    run, _ = runs(_by_row(workload), gpu, point, corrections, False, False)
    board = with_corrections(gpu, corrections)
    idle, leakage = static_power(board, corrections, applied, 0 * ones, point)
    work = run.energy - (idle + leakage) * run.time
    return Costs(run.time, work, idle, leakage)


def _by_row(workload: Workload) -> Workload:
    """The same launches with every listing row as a phase of its own, without host."""
    zeros = jnp.zeros(workload.num_rows)
    owner = zeros.astype(jnp.int32)
    for group in workload.groups:
        owner = owner.at[group.row].set(group.phase)
    groups = tuple(Group(g.count, g.row, g.row) for g in workload.groups)
    activity = workload.phases.data_activity[owner]
    phases = Phases(zeros, zeros, zeros, zeros, zeros, zeros, activity)
    names = ("",) * workload.num_rows
    return Workload(workload.shapes, groups, phases, workload.num_rows, names)
