"""Derivatives of a server's means, per SI unit."""

from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ...compiling import compiler_options
from ...hardware import GpuSpec, OperatingPoint
from ...hardware._fields import FIELDS
from .._deployment import Deployment
from .._steady.server import Traffic

METRICS: Final = ("energy_j_per_output_token", "tpot_s", "ttft_s")
_LOAD: Final = ("rate", "concurrency")
_LENGTHS: Final = {"input_len": "prompt", "output_len": "output"}
_POINT: Final = {"sm_clock": "sm_clock", "power_limit": "power_cap"}


def check_fields(found: Deployment, fields: Sequence[str]):
    """Raises `ValueError` for what cannot be differentiated by."""
    for name in fields:
        if name in _LOAD:
            if getattr(found.load, name) is None:
                raise ValueError(
                    f"`sensitivity` has '{name}', but the load has none; leave it out."
                )
        elif name not in (*_LENGTHS, *_POINT, *FIELDS):
            raise ValueError(
                f"`sensitivity` has '{name}'; allowed are rate, concurrency, "
                "input_len, output_len, sm_clock, power_limit and fields of the GPU "
                "such as dram_bandwidth (`diffenergy gpus show`)."
            )


def sensitivities(
    found: Deployment, fields: Sequence[str]
) -> dict[str, dict[str, float]]:
    """d metric / d field for each of `METRICS`, of all GPUs: the metric's unit per SI
    unit (J a token by B/s, s by Hz, ...).

    One forward derivative a field, all in one program. Where a batch limit of 128 rows
    or a power limit switches, it is that of the side on which the load is.
    """
    load, gpu, point = found.load, found.gpu, found.point
    values = {name: jnp.asarray(_value(found, name)) for name in fields}

    def metrics(moved: dict[str, Array]) -> Array:
        own = _moved(gpu, point, found.traffic, moved)
        new_gpu, new_point, traffic = own
        costs = found.costs(new_gpu, new_point)
        given = {name: moved.get(name, getattr(load, name)) for name in _LOAD}
        figures = found.steady(costs, gpu=new_gpu, traffic=traffic, **given)
        energy = found.plan.tp * figures.energy
        return jnp.stack([energy, figures.tpot.mean, figures.ttft.mean])

    def along(direction: dict[str, Array]) -> Array:
        return jax.jvp(metrics, (values,), (direction,))[1]

    ones = jnp.eye(len(fields))
    directions = {name: ones[:, i] for i, name in enumerate(fields)}
    slopes = jax.jit(jax.vmap(along), compiler_options=compiler_options(True))
    table = jax.device_get(slopes(directions))
    return {
        metric: {name: float(table[i, j]) for i, name in enumerate(fields)}
        for j, metric in enumerate(METRICS)
    }


def _value(found: Deployment, name: str) -> float:
    if name in _LOAD:
        return float(getattr(found.load, name))
    if name in _LENGTHS:
        return float(getattr(found.traffic, _LENGTHS[name]))
    if name in _POINT:
        return float(getattr(found.point, _POINT[name]))
    return float(getattr(found.gpu, name))


def _moved(
    gpu: GpuSpec, point: OperatingPoint, traffic: Traffic, moved: dict[str, Array]
) -> tuple[GpuSpec, OperatingPoint, Traffic]:
    """With the values that a derivative moves."""

    def put(tree: Any, names: dict[str, str]) -> Any:
        for name, field in names.items():
            if name in moved:
                tree = eqx.tree_at(lambda x: getattr(x, field), tree, moved[name])  # noqa: B023
        return tree

    own = {name: name for name in moved if name in FIELDS and name not in _POINT}
    return put(gpu, own), put(point, _POINT), put(traffic, _LENGTHS)
