"""Fit constants to measured rows: robust log residuals, priors, least squares."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters import partial_eval
from jaxtyping import Float

from ..compiling import call_compiled
from ..corrections import (
    ACTIVITY_CONSTANTS,
    ANY_ROWS,
    CONSTANTS,
    TILED_RECORDS,
    Constant,
    Corrections,
    constants_of,
)
from ..measurements import MeasurementTable
from ..physics import TimeEnergy
from ..records import Record, as_float
from ..smooth import robust
from ._batches import Batch
from ._least_squares import LeastSquares
from ._parameters import SENSOR, Parameters, Serving
from ._predict import batch_reading, compiled_reading

_COLUMNS: Final = 16
"""Columns of the Jacobian of one call: few, so that both workers have some, and always
as many, so that they share a compilation."""
_MANY_LAUNCHES: Final = 1000
"""Launches of a batch from which its slopes take longer to run than to compile: passes,
whose calls last 4.2 s without LLVM's optimisation and 1.9 s with it."""
_LEAST_SD: Final = 0.01
"""Least expected error of a logarithm: readings repeat no better."""
_WORKERS: Final = 2
"""Calls that are compiled and evaluated at once."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Measured times (s) and powers (W) of a batch; NaN where missing.

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


class _Data(eqx.Module):
    """One target as arrays: targets of one shape share their compilation."""

    serving: Serving
    sensing: Serving
    inputs: tuple[Any, ...]  # of `batch_reading`
    measured: tuple[Array, Array]  # time, power
    sd: tuple[Array, Array]
    capped: bool = eqx.field(static=True)

    @classmethod
    def of(cls, parameters: Parameters, item: Target) -> "_Data":
        batch = item.batch
        return cls(
            parameters.serving(batch.card.tags, batch.card),
            parameters.sensing(sensor_tag(batch), batch.meter),
            batch.inputs,
            (as_float(item.time), as_float(item.power)),
            (as_float(item.time_sd), as_float(item.power_sd)),
            batch.capped,
        )

    def reading(
        self, predicted: Callable[..., TimeEnergy], z: Float[Array, " p"]
    ) -> TimeEnergy:
        """Readings by `predicted`, a form of `batch_reading`, at the numbers z."""
        return predicted(self.inputs, self.serving(z), self.sensing(z), self.capped)


def sensor_tag(batch: Batch) -> str:
    """Tag of the meter's constants: the campaign of the batch on its GPU."""
    return f"{SENSOR}{batch.campaign}:{batch.kind}@{batch.card.name}"


def _movers(parameters: Parameters, item: Target) -> list[int]:
    """Indices of the free numbers that can move the rows of a target."""
    gpu_tag = item.batch.card.tags[-1]
    if item.batch.kind == "activity":  # moves factors of its GPU alone
        return [
            i
            for i, p in enumerate(parameters.free)
            if p.tag == gpu_tag
            and p.constant in (*ACTIVITY_CONSTANTS, "dynamic_energy")
        ]
    batch = item.batch
    names = ("global", *batch.card.tags, sensor_tag(batch))
    powered = bool(batch.capped or np.isfinite(item.power).any())
    records = batch.records if batch.kind != "workload" else set()
    records = records & set(TILED_RECORDS) if len(records) == 1 else set()
    acting = acting_constants(batch)
    return [
        i
        for i, p in enumerate(parameters.free)
        if p.tag in names
        and p.constant in acting
        and _moves(p.row, batch, records, powered)
    ]


def _moves(row: Constant, batch: Batch, records: set[str], powered: bool) -> bool:
    """Whether rows of a batch may move a constant that acts on them.

    `powered`: readings depend on power. `records`: the only shape record of the rows,
    if it has given tiles.
    """
    if row.power and not powered:
        return False
    if row.rows != ANY_ROWS and not batch.kinds & set(row.rows):
        return False
    return not records or row.power or bool(records & set(row.tiles))


def acting_constants(batch: Batch) -> set[str]:
    """Constants of the model and of the meter on which the times or powers of a batch
    depend: what is left of its program once each step that leads to neither is gone.

    No number is computed, so that a term that is zero at one point counts, too.
    """
    leaves, tree = jax.tree.flatten(batch.inputs)
    kinds = tuple((x.shape, x.dtype.name) for x in leaves)
    acting = _acting(tree, kinds, batch.meter, batch.capped)
    names = (*CONSTANTS, *constants_of(batch.meter))  # in the order of the fields
    return {name for name, acts in zip(names, acting, strict=True) if acts}


@functools.lru_cache(maxsize=256)
def _acting(
    tree: Any, kinds: tuple[tuple[Any, str], ...], meter: type[Record], capped: bool
) -> tuple[bool, ...]:
    """Whether each constant acts on the batches of one structure."""
    inputs = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*kind) for kind in kinds])
    constants = Corrections(), meter()

    def read(numbers: tuple[Corrections, Record], inputs: Any) -> tuple[Array, Array]:
        predicted = batch_reading(inputs, *numbers, capped)
        return predicted.time, predicted.energy

    program = jax.make_jaxpr(read)(constants, inputs).jaxpr
    _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    return tuple(used[: len(jax.tree.leaves(constants))])


def _bases(parameters: Parameters, item: Target) -> list[np.ndarray]:
    """Unit vectors of the free numbers that can move the rows, padded with zeros."""
    movers = _movers(parameters, item)
    parts = [movers[i : i + _COLUMNS] for i in range(0, len(movers), _COLUMNS)]
    bases = np.zeros((len(parts), _COLUMNS, len(parameters.free)))
    for basis, part in zip(bases, parts, strict=True):
        basis[np.arange(len(part)), part] = 1.0
    return list(bases)


def _residuals(
    z: Float[Array, " p"],
    d: _Data,
    predicted: Callable[..., TimeEnergy] = batch_reading,
) -> Float[Array, " r"]:
    """Robust residuals of time, then of power."""
    predicted_run = d.reading(predicted, z)
    values = predicted_run.time, predicted_run.energy / predicted_run.time
    parts = []
    for x, measured, sd in zip(values, d.measured, d.sd, strict=True):
        known = jnp.isfinite(measured) & (measured > 0)
        ratio = jnp.log(x / jnp.where(known, measured, 1.0)) / sd
        parts.append(jnp.where(known, robust(ratio), 0.0))
    return jnp.concatenate(parts)


def _values(z: Float[Array, " p"], d: _Data) -> Float[Array, " r"]:
    """Residuals by the compiled program that `predict` also uses."""
    return _residuals(z, d, compiled_reading)


def residual_slopes(
    z: Float[Array, " p"], data: _Data, basis: Float[Array, "b p"]
) -> Float[Array, "b r"]:
    """Rows of the transposed Jacobian along `basis`, by forward mode."""

    def column(v: Array) -> Array:
        return jax.jvp(lambda x: _residuals(x, data), (z,), (v,))[1]

    return jax.lax.map(column, basis)  # one by one: twice as fast as four at once


def _slopes(z: Float[Array, " p"], data: _Data, basis: Float[Array, "b p"]) -> Array:
    """`residual_slopes` by a program that is kept: it takes longer than to run, but for
    batches of many launches, where optimised ones pay."""
    launches = max(len(x) for x in jax.tree.leaves(data.inputs) if x.ndim)
    once = launches < _MANY_LAUNCHES
    return call_compiled(residual_slopes, (z, data, basis), once=once)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Result of a fit: free numbers z in fitted space, covariance, cost, evaluations.

    `interrupted`: Ctrl-C ended the fit; `z` is the best point so far.
    """

    parameters: Parameters
    z: np.ndarray
    covariance: np.ndarray
    cost: float
    evaluations: int
    interrupted: bool

    @property
    def sd(self) -> np.ndarray:
        """Posterior sd of each free number, in fitted space."""
        return np.sqrt(np.diag(self.covariance))


class _Problem(LeastSquares):
    """Residuals and Jacobian of all targets and the priors."""

    def __init__(self, parameters: Parameters, targets: Sequence[Target]):
        self.centre, self.width = parameters.centre(), parameters.sd()
        self.data = [_Data.of(parameters, item) for item in targets]
        self.bases = [_bases(parameters, item) for item in targets]

    def _each(self, function: Callable, z: np.ndarray, *of: Any) -> list[np.ndarray]:
        """Values of `function` at z for each entry of `of`, computed in threads."""
        x = as_float(z)
        with ThreadPoolExecutor(_WORKERS) as pool:
            return list(pool.map(lambda *part: np.asarray(function(x, *part)), *of))

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Residuals of all rows, then of the priors."""
        parts = self._each(_values, z, self.data)
        return np.concatenate([*parts, (z - self.centre) / self.width])

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Jacobian of `residuals`."""
        calls = [
            (d, as_float(basis))
            for d, bases in zip(self.data, self.bases, strict=True)
            for basis in bases
        ]
        parts = iter(self._each(_slopes, z, *zip(*calls, strict=True)))
        full = [sum(next(parts).T @ basis for basis in bases) for bases in self.bases]
        return np.concatenate([*full, np.diag(1 / self.width)])


def sharpened(
    parameters: Parameters, item: Target, z: Float[np.ndarray, " p"]
) -> Target:
    """A target with its expected errors lowered to the residuals at `z`.

    Half of normal errors lie below 0.67 std. Never below `_LEAST_SD`, never raised.
    """
    sizes = np.abs(np.asarray(_values(as_float(z), _Data.of(parameters, item))))
    halves = np.split(sizes, 2)
    left = []
    for size, read, sd in zip(
        halves, (item.time, item.power), (item.time_sd, item.power_sd), strict=True
    ):
        known = size[np.isfinite(read)]
        middle = sd * float(np.median(known)) / 0.6745 if len(known) else sd
        left.append(min(max(middle, _LEAST_SD), sd))
    return dataclasses.replace(item, time_sd=left[0], power_sd=left[1])


def fit(
    parameters: Parameters,
    targets: Sequence[Target],
    begin: Float[np.ndarray, " p"] | None = None,
    max_steps: int = 30,
    progress: Callable[[int, float], None] | None = None,
) -> Fit:
    """Fits the free parameters by least squares from `begin` (the prior centres).

    Residuals are robust log ratios over their expected errors, and the distance of each
    constant from its prior centre over its sd. `progress` is called with the number of
    evaluations and the cost. An interrupt (Ctrl-C) gives the best point so far.
    """
    problem = _Problem(parameters, targets)
    begin = problem.centre if begin is None else begin
    minimum = problem.minimise(begin, max_steps, 3e-4, 1e-4, progress)
    return Fit(
        parameters,
        minimum.z,
        np.linalg.inv(minimum.information),
        minimum.cost,
        minimum.evaluations,
        minimum.interrupted,
    )
