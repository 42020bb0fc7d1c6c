"""Derivatives of a training step's time and energy by clocks, links and hardware."""

from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ...compiling import compiler_options
from ...estimator import estimate
from ...hardware import FIELDS, GpuSpec, OperatingPoint
from ...plans import NETWORK_FIELD, TrainingStep

METRICS: Final = ("step_time_s", "energy_j")
_POINT: Final = {"sm_clock": "sm_clock", "power_limit": "power_cap"}


def check_fields(fields: Sequence[str]):
    """Raises `ValueError` for what cannot be differentiated by."""
    for name in fields:
        if name not in (NETWORK_FIELD, *_POINT, *FIELDS):
            raise ValueError(
                f"`sensitivity` has '{name}'; allowed are network (B/s of a GPU's "
                "network card), sm_clock, power_limit and fields of the GPU such as "
                "link_bandwidth (`diffenergy gpus show`)."
            )


def slopes(
    step: TrainingStep, gpu: GpuSpec, point: OperatingPoint, fields: Sequence[str]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Of each of `METRICS` by each field: `value` of the field, `per_unit` (metric's
    unit per SI unit), `per_percent` (% of the metric by one more % of the field).

    One forward derivative a field, all in one program; at a power limit that binds, or
    a clock that cannot be passed, it is that of the side on which the step is.
    """
    values = {name: jnp.asarray(_value(step, gpu, point, name)) for name in fields}

    def metrics(moved: dict[str, Array]) -> Array:
        board, at, work = gpu, point, step
        for name, x in moved.items():
            if name == NETWORK_FIELD:
                work = eqx.tree_at(lambda s: s.steps.network, work, x)
            elif name in _POINT:
                at = eqx.tree_at(lambda p, n=_POINT[name]: getattr(p, n), at, x)
            else:
                board = eqx.tree_at(lambda g, n=name: getattr(g, n), board, x)
        found = estimate(work, board, at)
        return jnp.stack([found.time, found.energy])

    def along(direction: dict[str, Array]) -> tuple[Array, Array]:
        return jax.jvp(metrics, (values,), (direction,))

    ones = jnp.eye(len(fields))
    directions = {name: ones[:, i] for i, name in enumerate(fields)}
    compiled = jax.jit(jax.vmap(along), compiler_options=compiler_options(once=True))
    at, table = jax.device_get(compiled(directions))
    return {
        metric: {
            name: _entry(float(values[name]), float(table[i, j]), float(at[i, j]))
            for i, name in enumerate(fields)
        }
        for j, metric in enumerate(METRICS)
    }


def _entry(value: float, slope: float, metric: float) -> dict[str, Any]:
    """What JSON has; a rate that is not there has no derivative."""
    if value == float("inf"):
        return {"value": None, "per_unit": None, "per_percent": None}
    return {"value": value, "per_unit": slope, "per_percent": slope * value / metric}


def _value(step: TrainingStep, gpu: GpuSpec, point: OperatingPoint, name: str) -> float:
    if name == NETWORK_FIELD:
        return float(step.steps.network)
    if name in _POINT:
        return float(getattr(point, _POINT[name]))
    return float(getattr(gpu, name))
