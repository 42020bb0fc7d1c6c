"""Fit of a `ClockLaw` to times and energies of kernels at several clocks.

A kernel's readings depend on its own three numbers and the shared ones, so its part of
the Jacobian is a few columns.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from jax import Array
from jaxtyping import Float

from ..corrections import Corrections
from ..hardware import GpuSpec
from ..records import as_float
from ._clock_law import ClockLaw, Points, points
from ._clock_model import (
    GPU_WIDTHS,
    LATENTS,
    LAW_WIDTHS,
    Base,
    Flat,
    Kind,
    Readings,
    base_of,
    kernel_rows,
    kernel_slopes,
    law_of_all,
    log_cells,
    plain_priors,
)
from ._least_squares import LeastSquares

_FULL_RATE: Final = 0.4
"""SM clock / the highest one from which DRAM is at its full rate, a prior."""


@dataclasses.dataclass(frozen=True)
class ClockFit:
    """Result of a clock-law fit: unknowns and cost."""

    base: Base
    flat: Flat
    z: np.ndarray
    cost: float

    @property
    def law(self) -> ClockLaw:
        """The clock law at the fitted unknowns."""
        shared, latents, _ = self.flat.split(as_float(self.z))
        return law_of_all(self.base, shared, latents)


class LawProblem(LeastSquares):
    """Residuals and Jacobian of readings and priors.

    A study that knows more than readings at settings extends it: `read` takes the rows
    of `readings` from the cells of a kernel and the kernel's part of every array in
    `given`, which all start with the axis of kernels.
    """

    def __init__(
        self,
        base: Base,
        point: Points,
        readings: Readings,
        kinds: Sequence[Kind],
        read: Callable[..., Array] = log_cells,
        extra: tuple[Array, ...] = (),
    ):
        self.base, self.point, self.read = base, point, read
        values, sd = readings.rows()
        self.finite = np.isfinite(values)
        self.extra = as_float(np.where(self.finite, values, 0.0)), as_float(sd), *extra
        sizes = (len(GPU_WIDTHS), len(LAW_WIDTHS), len(kinds) * (LATENTS + 1))
        self.flat = Flat(sizes, len(values))
        centres = [(*kind.centre, kind.sharpness_width) for kind in kinds]
        latent_widths = [kinds[i].own for i in np.asarray(base.kind)]
        shared = [*GPU_WIDTHS.values(), *LAW_WIDTHS.values()]
        self.width = np.concatenate(
            [shared, np.ravel(centres), np.ravel(latent_widths)]
        )

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Residuals of the readings, then of the priors."""
        rows = np.asarray(kernel_rows(self.read)(*self.inputs(z)))
        return np.concatenate([rows[self.finite], z / self.width])

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Jacobian of `residuals`; a kernel's latents act on its own rows alone."""
        shared, latent = map(np.asarray, kernel_slopes(self.read)(*self.inputs(z)))
        first = shared.shape[-1]
        rows = np.zeros((*self.finite.shape, len(z)))
        rows[..., :first] = shared
        for k in range(self.flat.kernels):
            start = first + LATENTS * k
            rows[k, :, start : start + LATENTS] = latent[k]
        return np.concatenate([rows[self.finite], np.diag(1 / self.width)])

    def inputs(self, z: np.ndarray) -> tuple[Any, ...]:
        """Arguments of `kernel_rows` and `kernel_slopes` at the unknowns `z`."""
        shared, latents, _ = self.flat.split(as_float(z))
        return self.base, shared, latents, self.point, *self.extra


def fit_table(
    gpu: GpuSpec,
    corrections: Corrections,
    settings: Float[np.ndarray, "setting 2"],
    readings: Readings,
    power_cap: float,
) -> ClockFit:
    """Law of kernels that were read at `settings` (SM clock, memory clock; Hz, NaN:
    left alone) on a `gpu`, nothing else being known of them: `readings` of time (s) and
    energy (J), `power_cap` their power limit (W). `corrections`: those of the GPU, for
    what DRAM delivers and draws. Raises `ValueError` for a kernel without a reading.

    The smooth version of a measured table: `law_table(fit.law, settings)`.
    """
    near_top = np.nanmin(readings.time, axis=1)
    if not (np.isfinite(near_top) & (near_top > 0)).all():
        kernel = int(np.argmin(np.isfinite(near_top) & (near_top > 0)))
        raise ValueError(
            f"`time` of kernel {kernel} holds no positive number; give its readings "
            f"or leave it out."
        )
    priors = plain_priors(gpu, near_top)
    flow = float(gpu.dram_bandwidth / (gpu.num_sms * gpu.sm_clock_applied_max))
    base = base_of(gpu, corrections, priors, power_cap, flow / _FULL_RATE)
    return fit_law(LawProblem(base, points(gpu, settings), readings, priors.kinds))


def fit_law(
    problem: LawProblem,
    begin: np.ndarray | None = None,
    max_steps: int = 40,
    tolerance: float = 1e-4,
) -> ClockFit:
    """Fits a clock law by least squares from `begin` (the prior centres).

    `tolerance`: relative change of cost or unknowns at which the descent ends.
    """
    begin = np.zeros(problem.width.size) if begin is None else begin
    minimum = problem.minimise(begin, max_steps, tolerance, tolerance)
    if minimum.interrupted:  # half a fit is no law
        raise KeyboardInterrupt
    return ClockFit(problem.base, problem.flat, minimum.z, minimum.cost)
