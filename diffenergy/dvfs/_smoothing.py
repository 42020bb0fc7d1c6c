"""Measured tables without the winner's curse: the true costs behind noisy readings.

Whoever takes the least of many noisy readings promises too much. Here ln time and ln
energy of a kernel are a law fitted to the readings and a part that is smooth in the
clocks: a Gaussian process, whose scales and noise make the readings of all kernels most
likely. A schedule is planned on the posterior mean, and a parametric bootstrap says how
far such a promise is off.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float
from scipy.optimize import minimize

from ..results import Infeasible
from ._plan import Plan
from ._problem import Problem, default_total, total

_SCALES: Final = {
    "linear": 0.5,  # slope against ln of the SM clock
    "sm": 0.3,  # part that follows the SM clock
    "mem": 0.3,  # part that follows the memory clock
    "both": 0.1,  # part that follows both
    "sm_scale": 0.5,  # of ln of the SM clock
    "mem_scale": 0.5,  # of ln of the memory clock
    "sm_auto": 0.1,  # how unlike the highest clock one left alone is
    "mem_auto": 0.1,
    "noise": 0.02,  # sd of ln of a reading
}
"""Where the search for the scales of the smooth part starts."""
_LEVEL: Final = 1.0
"""Prior sd of ln of a kernel's level."""
_RANGE: Final = 4.6
"""Range of ln of every scale: a factor of 100 either way."""
_MISSING: Final = 1e6
"""Variance of a reading that is not there."""
_LEAST_NOISE: Final = 1e-4
DRAWS: Final = 80
"""Tables of the bootstrap, half of them as smooth as the posterior mean."""


class Smoother(NamedTuple):
    """Linear map from readings to posterior means."""

    law: Float[np.ndarray, "kernel setting"]  # ln
    level: Float[np.ndarray, "kernel 1"]
    weights: Float[np.ndarray, "kernel setting setting"]
    there: Bool[np.ndarray, "kernel setting"]
    root: Float[np.ndarray, "kernel setting setting"]
    """Square root of the posterior covariance."""
    noise: float  # sd of ln of a reading

    def mean(
        self, logs: Float[np.ndarray, "kernel setting"]
    ) -> Float[np.ndarray, "kernel setting"]:
        """Posterior mean of the true logarithms, given readings of them."""
        centred = np.where(self.there, logs - self.law - self.level, 0.0)
        return self.law + self.level + np.einsum("kst,kt->ks", self.weights, centred)


@dataclasses.dataclass(frozen=True)
class Smoothed:
    """A table as a problem of its smooth means, and how it was smoothed."""

    problem: Problem
    time: Smoother
    energy: Smoother


def smoothed(
    problem: Problem,
    law: tuple[
        Float[np.ndarray, "kernel setting"], Float[np.ndarray, "kernel setting"]
    ],
) -> Smoothed:
    """`problem` of a measured table with its readings smoothed.

    `law`: time (s) and energy (J) of every cell as a law fitted to them says
    (`fitting.clock_fit.fit_table`), from which the readings may depart smoothly. A cell
    that was not measured stays unusable. The first setting is the default.
    """
    time, energy = (
        _smoother(problem, np.log(x), np.log(base))
        for x, base in zip((problem.time, problem.energy), law, strict=True)
    )
    return Smoothed(_means(problem, time, energy), time, energy)


def promise(
    fitted: Smoothed,
    plan: Plan,
    planner: Callable[[Problem], Plan],
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda done, cost: None,
) -> float:
    """Upper 95 % bound of the slowdown of `plan` against default clocks, %: what
    re-measuring it stays below in 19 of 20 cases, its own noise aside.

    Parametric bootstrap: true tables are the posterior mean, or are drawn from the
    posterior; noise is added, the result smoothed and planned by `planner`. What such
    plans take beyond their promise, in whichever of both is worse, is added to this
    one's; NaN if no draw keeps the limits. `tell` hears of every draw.
    """
    random = np.random.default_rng(seed)
    bounds = []
    for rough in (False, True):
        errors = []
        for draw in range(DRAWS // 2):
            truth, noisy = _drawn(fitted, random, rough)
            again = _means(noisy, fitted.time, fitted.energy)
            tell(draw + 1 + rough * DRAWS // 2, float("nan"))
            try:
                chosen = planner(again)
            except Infeasible:  # the limit was only just within reach
                continue
            errors.append(_slowdown(truth, chosen) - _slowdown(again, chosen))
        if errors:
            bounds.append(float(np.quantile(errors, 0.95)))
    return max(bounds, default=math.nan) + _slowdown(fitted.problem, plan)


def _drawn(
    fitted: Smoothed, random: np.random.Generator, rough: bool
) -> tuple[Problem, Problem]:
    """A true table, as smooth as the posterior mean or as `rough` as the posterior
    thinks possible, and noisy readings of it."""
    truths, readings = [], []
    pairs = (fitted.problem.time, fitted.time), (fitted.problem.energy, fitted.energy)
    for x, smoother in pairs:
        normal = rough * random.standard_normal(x.shape)
        truths.append(x * np.exp(np.einsum("kst,kt->ks", smoother.root, normal)))
        noise = smoother.noise * random.standard_normal(x.shape)
        readings.append(truths[-1] * np.exp(noise))
    return _replaced(fitted.problem, *truths), _replaced(fitted.problem, *readings)


def _replaced(problem: Problem, time: np.ndarray, energy: np.ndarray) -> Problem:
    return dataclasses.replace(
        problem,
        time=time,
        energy=energy,
        default_time=time[:, 0],
        default_energy=energy[:, 0],
    )


def _slowdown(problem: Problem, plan: Plan) -> float:
    """Change of time of a plan against default clocks, %."""
    took = total(problem, plan.spent(problem))
    return 100 * float(took.time / default_total(problem).time - 1)


def _means(problem: Problem, time: Smoother, energy: Smoother) -> Problem:
    smooth = [
        np.where(problem.usable, np.exp(smoother.mean(np.log(x))), np.inf)
        for x, smoother in ((problem.time, time), (problem.energy, energy))
    ]
    return _replaced(problem, *smooth)


class _Features(NamedTuple):
    """Clocks as ln of their share of the highest, and which are left alone."""

    sm: Float[Array, " setting"]
    mem: Float[Array, " setting"]
    sm_auto: Bool[Array, " setting"]
    mem_auto: Bool[Array, " setting"]


def _features(problem: Problem) -> _Features:
    auto = np.isnan(problem.settings)
    top = [np.nanmax(x) if not np.isnan(x).all() else 1.0 for x in problem.settings.T]
    shares = np.log(np.where(auto, top, problem.settings) / top)
    return _Features(*map(jnp.asarray, (*shares.T, *auto.T)))


def _smoother(
    problem: Problem,
    readings: Float[np.ndarray, "kernel setting"],
    law: Float[np.ndarray, "kernel setting"],
) -> Smoother:
    """Smoother of logarithms whose curves make its readings most likely."""
    there, features = problem.usable, _features(problem)
    logs = readings - law
    level = np.where(there, logs, 0.0).sum(axis=1, keepdims=True)
    level = level / there.sum(axis=1, keepdims=True)
    centred = np.where(there, logs - level, 0.0)
    start = np.log(np.array(list(_SCALES.values())))

    def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _likelihood(jnp.asarray(x), features, centred, there)
        return float(value), np.asarray(slope)

    bounds = [(x - _RANGE, x + _RANGE) for x in start]
    optimum = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds)
    weights, rest, noise = _weights(jnp.asarray(optimum.x), features, there)
    size, vectors = np.linalg.eigh(rest)
    root = vectors * np.sqrt(np.maximum(size, 0.0))[:, None]
    return Smoother(law, level, np.asarray(weights), there, root, float(noise))


def _prior(scales: Array, f: _Features) -> tuple[Array, Array]:
    """(covariance of the true values of a kernel, variance of a reading)."""
    scale = dict(zip(_SCALES, jnp.exp(scales), strict=True))
    sm = _alike(f.sm, scale["sm_scale"], f.sm_auto, scale["sm_auto"])
    mem = _alike(f.mem, scale["mem_scale"], f.mem_auto, scale["mem_auto"])
    covariance = (
        _LEVEL**2
        + scale["linear"] ** 2 * jnp.outer(f.sm, f.sm)
        + scale["sm"] ** 2 * sm
        + scale["mem"] ** 2 * mem
        + scale["both"] ** 2 * sm * mem
    )
    return covariance, scale["noise"] ** 2 + _LEAST_NOISE**2


def _alike(x: Array, scale: Array, auto: Array, unlike: Array) -> Array:
    """Matern correlation (3/2: knees are allowed) of settings along one clock."""
    far = jnp.sqrt(3.0) * jnp.abs(x[:, None] - x) / scale
    other = 1.0 * (auto[:, None] != auto)
    return (1 + far) * jnp.exp(-far - unlike * other)


def _root(scales: Array, f: _Features, there: Array) -> tuple[Array, Array, Array]:
    """(prior covariance, Cholesky factor of each kernel's readings, their noise)."""
    covariance, noise = _prior(scales, f)
    diagonal = jnp.where(there, noise, _MISSING)
    return (
        covariance,
        jnp.linalg.cholesky(covariance + jax.vmap(jnp.diag)(diagonal)),
        noise,
    )


@jax.jit
@jax.value_and_grad
def _likelihood(scales: Array, f: _Features, y: Array, there: Array) -> Array:
    """-ln likelihood of all readings, with its slope."""
    _, root, _ = _root(scales, f, there)
    white = jax.scipy.linalg.solve_triangular(root, y[..., None], lower=True)
    volume = jnp.sum(jnp.log(jax.vmap(jnp.diag)(root)))
    return 0.5 * jnp.sum(white**2) + volume


@jax.jit
def _weights(scales: Array, f: _Features, there: Array) -> tuple[Array, Array, Array]:
    """Posterior mean of each kernel as a matrix, its covariance, and the sd of a
    reading."""
    prior, root, noise = _root(scales, f, there)

    def one(factor: Array) -> Array:
        return jax.scipy.linalg.cho_solve((factor, True), prior).T

    weights = jax.vmap(one)(root)
    return weights, prior - weights @ prior, jnp.sqrt(noise)
