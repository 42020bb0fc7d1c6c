"""Fit of a `ClockLaw` to times and energies of kernels at several clocks.

Readings at a setting, and the least and greatest readings over all settings, can be
given, and further residuals that join kernels (`Sums`). A kernel's readings depend on
its own three numbers and the shared ones, so its part of the Jacobian is a few columns.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.optimize import OptimizeResult, least_squares

from ...compiling import compiler_options
from ...corrections import Corrections
from ...hardware._spec import GpuSpec
from ...records import as_float
from .clock_law import ClockLaw, Points, points
from .clock_model import (
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
    law_of,
    plain_priors,
)

_DRAWS: Final = 16
"""Random errors that least and greatest readings are repeated with."""
_SEED: Final = 0
_DESCENTS: Final = 12
_TOLERANCE: Final = 1e-4
_FULL_RATE: Final = 0.4
"""SM clock / the highest one from which DRAM is at its full rate, a prior."""
_COLUMNS: Final = 16
"""Columns of the Jacobian of `Sums` at once."""


@dataclasses.dataclass(frozen=True)
class Sums:
    """Further residuals, of all kernels together: `residuals(base, z, flat)` with the
    prior widths of further unknowns (centre 0)."""

    residuals: Callable[[Base, Array, Flat], Array]
    widths: np.ndarray


@dataclasses.dataclass(frozen=True)
class ClockFit:
    """Result: unknowns, cost, and the law."""

    base: Base
    flat: Flat
    z: np.ndarray
    cost: float
    covariance: np.ndarray

    @property
    def law(self) -> ClockLaw:
        """The law at the unknowns found."""
        shared, latents, _ = self.flat.split(as_float(self.z))
        return law_of(self.base, shared, latents, jnp.arange(self.flat.kernels))


class _Problem:
    """Residuals and Jacobian of readings, sums and priors."""

    def __init__(
        self,
        base: Base,
        point: Points,
        readings: Readings,
        kinds: Sequence[Kind],
        sums: Sums | None,
    ):
        self.base, self.point, self.sums = base, point, sums
        values, sd = readings.rows()
        self.known = np.isfinite(values)
        self.values = as_float(np.where(self.known, values, 0.0))
        self.sd = as_float(sd)
        draws = _DRAWS if readings.energy_noise else 1
        shape = (len(values), draws, readings.time.shape[1])
        errors = np.random.default_rng(_SEED).standard_normal(shape)
        self.noise = as_float(readings.energy_noise * errors)
        others = np.zeros(0) if sums is None else sums.widths
        sizes = (len(GPU_WIDTHS), len(LAW_WIDTHS), len(kinds) * (LATENTS + 1))
        self.flat = Flat(sizes, len(values), len(others))
        centres = [(*kind.centre, kind.sharpness_width) for kind in kinds]
        own = [kinds[i].own for i in np.asarray(base.kind)]
        shared = [*GPU_WIDTHS.values(), *LAW_WIDTHS.values()]
        self.width = np.concatenate([shared, np.ravel(centres), np.ravel(own), others])

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Of readings, sums and priors."""
        parts = [np.asarray(kernel_rows()(*self._inputs(z)))[self.known]]
        if self.sums is not None:
            parts.append(np.asarray(self._joined(self.base, as_float(z))))
        return np.concatenate([*parts, z / self.width])

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Of `residuals`; kernels' own columns are blocks."""
        shared, own = (np.asarray(x) for x in kernel_slopes()(*self._inputs(z)))
        first = shared.shape[-1]
        rows = np.zeros((*self.known.shape, self.flat.size))
        rows[..., :first] = shared
        for k in range(self.flat.kernels):
            start = first + LATENTS * k
            rows[k, :, start : start + LATENTS] = own[k]
        parts = [rows[self.known]]
        if self.sums is not None:
            parts.append(np.asarray(self._joined_slopes(self.base, as_float(z))))
        return np.concatenate([*parts, np.diag(1 / self.width)])

    def best_latents(self, z: np.ndarray, starts: Sequence[np.ndarray]) -> np.ndarray:
        """`z` with the latents of each kernel that fit its own readings best, of those
        in `z` and those found from each of `starts`."""
        own = self._latents(z)
        found = [self._descend(z, start) for start in (own, *starts)]
        best = np.argmin([cost for _, cost in found], axis=0)
        chosen = np.stack([latents for latents, _ in found])
        return self._with_latents(z, chosen[best, np.arange(len(best))])

    def _latents(self, z: np.ndarray) -> np.ndarray:
        first = sum(self.flat.shared)
        last = first + self.flat.kernels * LATENTS
        return z[first:last].reshape(-1, LATENTS)

    def _with_latents(self, z: np.ndarray, latents: np.ndarray) -> np.ndarray:
        first = sum(self.flat.shared)
        z = z.copy()
        z[first : first + latents.size] = latents.ravel()
        return z

    def _descend(
        self, z: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(latents, cost) of each kernel alone: Levenberg-Marquardt, all at once."""
        width = self._latents(self.width)

        def residuals(latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = kernel_rows()(*self._inputs(self._with_latents(z, latents)))
            rows = np.where(self.known, np.asarray(rows), 0.0)
            rows = np.concatenate([rows, latents / width], axis=1)
            return rows, 0.5 * np.sum(rows**2, axis=1)

        latents, damping = start.copy(), np.full(len(start), 1e-2)
        rows, cost = residuals(latents)
        for _ in range(_DESCENTS):
            at = self._with_latents(z, latents)
            slopes = np.asarray(kernel_slopes()(*self._inputs(at))[1])
            slopes = np.where(self.known[..., None], slopes, 0.0)
            prior = np.eye(LATENTS) / width[:, None, :]
            slopes = np.concatenate([slopes, prior], axis=1)
            normal = np.einsum("kri,krj->kij", slopes, slopes)
            scale = np.einsum("kii->ki", normal) * damping[:, None]
            right = np.einsum("kri,kr->ki", slopes, rows)
            damped = normal + scale[..., None] * np.eye(LATENTS)
            step = np.linalg.solve(damped, right[..., None])[..., 0]
            trial = latents - np.clip(step, -1.0, 1.0)
            new_rows, new_cost = residuals(trial)
            better = new_cost < cost
            latents = np.where(better[:, None], trial, latents)
            rows = np.where(better[:, None], new_rows, rows)
            cost = np.where(better, new_cost, cost)
            damping = np.clip(np.where(better, damping / 4, damping * 6), 1e-8, 1e6)
        return latents, cost

    def _inputs(self, z: np.ndarray) -> tuple[Any, ...]:
        shared, latents, _ = self.flat.split(as_float(z))
        return self.base, shared, latents, self.point, self.noise, self.values, self.sd

    def _sum_residuals(self, base: Base, z: Array) -> Array:
        assert self.sums is not None
        return self.sums.residuals(base, z, self.flat)

    @functools.cached_property
    def _joined(self) -> Callable[[Base, Array], Array]:
        options = compiler_options(True)
        return jax.jit(self._sum_residuals, compiler_options=options)

    @functools.cached_property
    def _joined_slopes(self) -> Callable[[Base, Array], Array]:
        def slopes(base: Base, z: Array) -> Array:
            def column(v: Array) -> Array:
                return jax.jvp(lambda x: self._sum_residuals(base, x), (z,), (v,))[1]

            return jax.lax.map(column, jnp.eye(z.size), batch_size=_COLUMNS).T

        return jax.jit(slopes, compiler_options=compiler_options(True))


def fit_table(
    gpu: GpuSpec,
    corrections: Corrections,
    settings: Float[np.ndarray, "setting 2"],
    readings: Readings,
    power_cap: float,
    core_limit: Float[np.ndarray, " setting"] | None = None,
) -> ClockFit:
    """Law of kernels that were read at `settings` (SM clock, memory clock; Hz, NaN:
    left alone), nothing else being known of them. `power_cap`: power limit of the
    readings, W; `corrections`: those of the GPU, for what DRAM delivers and draws.

    The smooth version of a measured table: `clock_law.table(fit.law, settings)`.
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
    return fit_law(base, points(gpu, settings, core_limit), readings, priors.kinds)


def fit_law(
    base: Base,
    point: Points,
    readings: Readings,
    kinds: Sequence[Kind],
    sums: Sums | None = None,
    begin: np.ndarray | None = None,
    starts: Sequence[np.ndarray] = (),
    max_steps: int = 40,
    tolerance: float = _TOLERANCE,
    progress: Callable[[int, float], None] | None = None,
) -> ClockFit:
    """Least squares from `begin` (the prior centres).

    The three numbers of a kernel can have several local optima (as few bytes as a
    kernel needs, or as many as its time at a low memory clock allows). After a first
    fit every kernel tries the latents in `starts`, and a second one follows.
    `tolerance`: relative change of cost or unknowns at which a descent ends.
    `progress` is called with the number of evaluations and the cost.
    """
    problem = _Problem(base, point, readings, kinds, sums)
    count = 0

    def residuals(z: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        r = problem.residuals(z)
        if progress is not None:
            progress(count, 0.5 * float(r @ r))
        return r

    def descend(z: np.ndarray) -> OptimizeResult:
        return least_squares(
            residuals,
            z,
            jac=problem.jacobian,  # pyright: ignore[reportArgumentType]
            x_scale=problem.width,
            max_nfev=max_steps,
            ftol=tolerance,
            xtol=tolerance,
        )

    result = descend(np.zeros(problem.flat.size) if begin is None else begin)
    if starts:
        result = descend(problem.best_latents(result.x, starts))
    covariance = np.linalg.inv(result.jac.T @ result.jac)
    return ClockFit(base, problem.flat, result.x, float(result.cost), covariance)
