"""Fit of a clock law to more than readings at settings: extremes of kernels, and sums.

Of every kernel the least and greatest readings over all settings may be known; further
residuals (`Sums`) join kernels.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from diffenergy.compiling import compiler_options
from diffenergy.fitting import Readings
from diffenergy.fitting._clock_fit import LawProblem
from diffenergy.fitting._clock_law import (
    Cells,
    ClockLaw,
    Points,
    governed,
    highest_clock,
    log_costs,
)
from diffenergy.fitting._clock_model import (
    LATENTS,
    Base,
    Flat,
    Kind,
    kernel_rows,
    kernel_slopes,
    log_cells,
)
from diffenergy.records import as_float

_DRAWS: Final = 16
"""Random errors that least and greatest readings are repeated with."""
_SEED: Final = 0
_DESCENTS: Final = 12
_COLUMNS: Final = 16
"""Columns of the Jacobian of `Sums` at once."""


@dataclasses.dataclass(frozen=True)
class Extremes(Readings):
    """Readings at settings, and over all settings.

    `least`, `greatest`: (time, energy) of each kernel. A least or greatest energy is
    one of several near-equal readings: the one whose error `energy_noise` favours,
    which the fit repeats with random errors.
    """

    least: Float[np.ndarray, "kernel 2"] = dataclasses.field(kw_only=True)
    least_sd: Float[np.ndarray, "kernel 2"] = dataclasses.field(kw_only=True)
    greatest: Float[np.ndarray, "kernel 2"] = dataclasses.field(kw_only=True)
    greatest_sd: Float[np.ndarray, "kernel 2"] = dataclasses.field(kw_only=True)
    energy_noise: float = 0.0

    def rows(self) -> tuple[Float[np.ndarray, "kernel r"], np.ndarray]:
        """(ln readings, their errors), in the order of `log_extremes`."""
        values, sd = super().rows()
        return (
            np.concatenate([values, np.log(self.least), np.log(self.greatest)], 1),
            np.concatenate([sd, self.least_sd, self.greatest_sd], 1),
        )


def log_extremes(c: Cells, noise: Float[Array, "draw setting"]) -> Float[Array, " r"]:
    """ln of the readings and extremes of one kernel."""
    energy = jnp.log(c.energy) + noise
    ends = (
        jnp.log(jnp.min(c.time)),
        jnp.mean(jnp.min(energy, axis=1)),
        jnp.log(jnp.max(c.time)),
        jnp.mean(jnp.max(energy, axis=1)),
    )
    return jnp.concatenate([log_cells(c), jnp.stack(ends)])


@dataclasses.dataclass(frozen=True)
class Sums:
    """Further residuals, of all kernels together: `residuals(base, z, flat)` with the
    prior widths of further unknowns (centre 0)."""

    residuals: Callable[[Base, Array, Flat], Array]
    widths: np.ndarray


class JoinedProblem(LawProblem):
    """Residuals and Jacobian of readings, extremes, sums and priors.

    `progress` is called with the number of evaluations and the cost.
    """

    def __init__(
        self,
        base: Base,
        point: Points,
        readings: Extremes,
        kinds: Sequence[Kind],
        sums: Sums,
        progress: Callable[[int, float], None] | None = None,
    ):
        draws = _DRAWS if readings.energy_noise else 1
        kernels, settings = readings.time.shape
        errors = np.random.default_rng(_SEED).standard_normal(
            (kernels, draws, settings)
        )
        noise = as_float(readings.energy_noise * errors)
        super().__init__(base, point, readings, kinds, log_extremes, (noise,))
        self.width = np.concatenate([self.width, sums.widths])
        self.sums, self.progress, self.count = sums, progress, 0

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Residuals of readings, sums and priors."""
        own = super().residuals(z)
        joined = np.asarray(self._joined(self.base, as_float(z)))
        residual = np.concatenate([own[: -len(z)], joined, own[-len(z) :]])
        self.count += 1
        if self.progress is not None:
            self.progress(self.count, 0.5 * float(residual @ residual))
        return residual

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Jacobian of `residuals`."""
        own = super().jacobian(z)
        joined = np.asarray(self._joined_slopes(self.base, as_float(z)))
        return np.concatenate([own[: -len(z)], joined, own[-len(z) :]])

    def best_latents(self, z: np.ndarray, starts: Sequence[np.ndarray]) -> np.ndarray:
        """`z` with the latents of each kernel that fit its own readings best, of those
        in `z` and those found from each of `starts`."""
        own = self._latents(z)
        descents = [self._descend(z, start) for start in (own, *starts)]
        best = np.argmin([cost for _, cost in descents], axis=0)
        chosen = np.stack([latents for latents, _ in descents])
        return self._with_latents(z, chosen[best, np.arange(len(best))])

    def _latents(self, z: np.ndarray) -> np.ndarray:
        return z[sum(self.flat.shared) : self.flat.size].reshape(-1, LATENTS)

    def _with_latents(self, z: np.ndarray, latents: np.ndarray) -> np.ndarray:
        z = z.copy()
        z[sum(self.flat.shared) : self.flat.size] = latents.ravel()
        return z

    def _descend(
        self, z: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(latents, cost) of each kernel alone: Levenberg-Marquardt, all at once."""
        width = self._latents(self.width)

        def residuals(latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = kernel_rows(self.read)(*self.inputs(self._with_latents(z, latents)))
            rows = np.where(self.finite, np.asarray(rows), 0.0)
            rows = np.concatenate([rows, latents / width], axis=1)
            return rows, 0.5 * np.sum(rows**2, axis=1)

        latents, damping = start.copy(), np.full(len(start), 1e-2)
        rows, cost = residuals(latents)
        for _ in range(_DESCENTS):
            at = self._with_latents(z, latents)
            slopes = np.asarray(kernel_slopes(self.read)(*self.inputs(at))[1])
            slopes = np.where(self.finite[..., None], slopes, 0.0)
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

    def _sum_residuals(self, base: Base, z: Array) -> Array:
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


def together(law: ClockLaw, counts: Array, point: Points) -> Cells:
    """All kernels of a pass, `counts` launches of each, at every setting: the limiter
    holds their mean power with one clock. Axes of the result are settings."""

    def run(law):
        each = jax.vmap(log_costs, in_axes=(None, 0, None, None), out_axes=1)

        def at(x, p):
            time, power = jnp.exp(each(law, law.kernels, x, p))
            total = counts @ time
            return jnp.log(jnp.stack([total, counts @ (time * power) / total]))

        return lambda x: jax.vmap(at, out_axes=1)(x, point)

    still = run(jax.lax.stop_gradient(law))
    logs, clock = governed(run(law), still, law, highest_clock(law, point))
    return Cells(jnp.exp(logs[0]), jnp.exp(logs[0] + logs[1]), jnp.exp(clock))


def with_gpu(law: ClockLaw, **fields: Array) -> ClockLaw:
    """The law of the same kernels on another GPU."""
    return dataclasses.replace(law, gpu=dataclasses.replace(law.gpu, **fields))
