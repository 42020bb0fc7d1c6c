"""A workload over SM clocks and over power limits, in one call of the estimator."""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ...estimator import Setting, Task
from ...estimator._estimate import demands, estimate_once
from ...hardware import GpuSpec, OperatingPoint
from ...hardware import _clocks as clocks
from ...workload._workload import Workload

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
    steps = np.sort(clocks.sm_clocks(task.card))
    picked = steps[np.linspace(0, len(steps) - 1, num).round().astype(int)]
    low, high = values["power_limit_min"], values["power_limit_max"]
    limits = np.linspace(low, max(low, high), num)
    return [
        *(setting._replace(sm_clock=float(clock)) for clock in picked),
        *(setting._replace(power_limit=float(limit)) for limit in limits),
    ]
