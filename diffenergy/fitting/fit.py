"""Fit constants to measured rows: robust log residuals, priors, least squares."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.optimize import least_squares

from ..corrections import tags
from ..estimator import compiler_options
from ..hardware.spec import GpuSpec, OperatingPoint
from ..measurements import MeasurementTable
from ..physics.instrument import Instrument
from ..records import as_float
from ..workload.workload import Workload
from .batches import Batch
from .parameters import Parameters, Serving
from .predict import batch_reading

HUBER: Final = 2.0
"""Residuals beyond this many sigma count linearly."""
_SMALL: Final = 256
"""Phases up to which compiling takes longer than all evaluations."""
_PADDING: Final = 16
"""Columns of the Jacobian come in multiples of this, to share compilations."""
_CLASSES: Final = {
    "context_attention": "prefill_",
    "generation_attention": "decode_",
    "moe": "moe_",
}
"""Prefix of the constants that belong to one op."""
_TANGENTS: Final = 4
"""Columns of the Jacobian computed at once."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Rows of a batch with what was read; NaN where nothing was.

    `time_sd`, `power_sd`: expected error of the logarithms.
    """

    batch: Batch
    time: np.ndarray
    power: np.ndarray
    time_sd: float
    power_sd: float


def target(
    table: MeasurementTable, batch: Batch, time_sd: float, power_sd: float
) -> Target:
    """Target of a batch of `table`; every phase must be a row of its own."""
    real = batch.rows >= 0
    pick = np.where(real, batch.rows, 0)
    return Target(
        batch,
        np.where(real, table.time_s[pick], np.nan),
        np.where(real, table.avg_power_w[pick], np.nan),
        time_sd,
        power_sd,
    )


def _soft(r: Array) -> Array:
    """Pseudo-Huber: its square is quadratic below `HUBER` and linear above."""
    root = jnp.sqrt(1 + (r / HUBER) ** 2)
    return r * jnp.sqrt(2 / (1 + root))


def _log_ratio(predicted: Array, measured: Array, sd: Array) -> Array:
    known = jnp.isfinite(measured) & (measured > 0)
    ratio = jnp.log(predicted / jnp.where(known, measured, 1.0)) / sd
    return jnp.where(known, _soft(ratio), 0.0)


class _Data(eqx.Module):
    """One target as arrays: targets of one shape share their compilation."""

    serving: Serving
    workload: Workload
    spec: GpuSpec
    point: OperatingPoint
    instrument: Instrument
    time: Array
    power: Array
    time_sd: Array
    power_sd: Array
    basis: Array
    """Unit vectors of the free numbers that can move these rows, padded with zeros."""
    bursts: bool = eqx.field(static=True)

    @classmethod
    def of(cls, parameters: Parameters, item: Target) -> "_Data":
        batch = item.batch
        return cls(
            parameters.serving(tags(batch.card)),
            batch.workload,
            batch.card.spec,
            batch.point,
            batch.instrument,
            as_float(item.time),
            as_float(item.power),
            as_float(item.time_sd),
            as_float(item.power_sd),
            as_float(_basis(parameters, item)),
            batch.bursts,
        )


def _movers(parameters: Parameters, item: Target) -> list[int]:
    """Free numbers that can move the rows of a target."""
    names = tags(item.batch.card)
    foreign = {
        prefix
        for kind, prefix in _CLASSES.items()
        if item.batch.kind not in ("workload", kind)
        or (item.batch.kind == "workload" and not item.batch.holds(kind))
    }
    return [
        i
        for i, p in enumerate(parameters.free)
        if p.tag in ("global", *names) and not p.constant.startswith(tuple(foreign))
    ]


def _basis(parameters: Parameters, item: Target) -> np.ndarray:
    movers = _movers(parameters, item)
    rows = -(-len(movers) // _PADDING) * _PADDING
    basis = np.zeros((rows, len(parameters.free)))
    basis[np.arange(len(movers)), movers] = 1.0
    return basis


def _residuals(z: Float[Array, " p"], data: _Data) -> Float[Array, " r"]:
    """Robust residuals of time, then of power."""
    d = data
    read = batch_reading(
        d.workload, d.spec, d.point, d.instrument, d.serving(z), d.bursts
    )
    power = read.energy / read.time
    return jnp.concatenate(
        [
            _log_ratio(read.time, d.time, d.time_sd),
            _log_ratio(power, d.power, d.power_sd),
        ]
    )


def _jacobian(z: Float[Array, " p"], data: _Data) -> Float[Array, "b r"]:
    """Rows of the transposed Jacobian along `data.basis`, by forward mode."""

    def column(v: Array) -> Array:
        return jax.jvp(lambda x: _residuals(x, data), (z,), (v,))[1]

    return jax.lax.map(column, data.basis, batch_size=_TANGENTS)


@functools.cache
def _compiled(once: bool) -> tuple[Callable, Callable]:
    """(residuals, transposed Jacobian), jitted; `once`: quick to compile."""
    options = compiler_options(once)
    return (
        jax.jit(_residuals, compiler_options=options),
        jax.jit(_jacobian, compiler_options=options),
    )


@dataclasses.dataclass(frozen=True)
class Fit:
    """Result: constants in fitted space, their posterior sd, cost over steps."""

    parameters: Parameters
    z: np.ndarray
    sd: np.ndarray
    cost: float
    evaluations: int


def fit(
    parameters: Parameters,
    targets: Sequence[Target],
    *,
    max_steps: int = 30,
    progress: Callable[[int, float], None] | None = None,
) -> Fit:
    """Least squares from the prior centres (Gauss-Newton with a trust region).

    Residuals are robust log ratios over their expected errors, and the distance of each
    constant from its prior centre over its sd. `progress` is called with the number of
    evaluations and the cost.
    """
    centre, width = parameters.centre(), parameters.sd()
    data = [_Data.of(parameters, item) for item in targets]
    functions = [_compiled(item.batch.num_phases <= _SMALL) for item in targets]
    seen = [0]

    def values(z: np.ndarray) -> np.ndarray:
        parts = [np.asarray(f(z, d)) for (f, _), d in zip(functions, data, strict=True)]
        everything = np.concatenate([*parts, (z - centre) / width])
        seen[0] += 1
        if progress is not None:
            progress(seen[0], 0.5 * float(everything @ everything))
        return everything

    def slopes(z: np.ndarray) -> np.ndarray:
        parts = [
            np.asarray(j(z, d)).T @ np.asarray(d.basis)
            for (_, j), d in zip(functions, data, strict=True)
        ]
        return np.concatenate([*parts, np.diag(1 / width)])

    result = least_squares(
        values,
        centre,
        jac=slopes,  # pyright: ignore[reportArgumentType]
        method="trf",
        x_scale=width,
        max_nfev=max_steps,
        ftol=1e-5,
        xtol=1e-5,
    )
    covariance = np.linalg.inv(result.jac.T @ result.jac)
    return Fit(parameters, result.x, np.sqrt(np.diag(covariance)), result.cost, seen[0])
