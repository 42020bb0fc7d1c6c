"""Derivatives of a server's means, per SI unit."""

from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ...compiling import compiler_options
from ...hardware import FIELDS
from .._deployment import Deployment

METRICS: Final = ("energy_j_per_output_token", "tpot_s", "ttft_s")
_PLACES: Final = {
    "rate": ("load", "rate"),
    "concurrency": ("load", "concurrency"),
    "input_len": ("traffic", "prompt"),
    "output_len": ("traffic", "output"),
    "sm_clock": ("point", "sm_clock"),
    "power_limit": ("point", "power_cap"),
} | {name: ("gpu", name) for name in FIELDS}
"""What of a deployment each field is, and its name there."""


def check_fields(found: Deployment, fields: Sequence[str]):
    """Raises `ValueError` for what cannot be differentiated by."""
    for name in fields:
        if name not in _PLACES:
            raise ValueError(
                f"`sensitivity` has '{name}'; allowed are rate, concurrency, "
                "input_len, output_len, sm_clock, power_limit and fields of the GPU "
                "such as dram_bandwidth (`diffenergy gpus show`)."
            )
        of, field = _PLACES[name]
        if of == "load" and getattr(found.load, field) is None:
            raise ValueError(
                f"`sensitivity` has '{name}', but the load has none; leave it out."
            )


def sensitivities(
    found: Deployment, fields: Sequence[str]
) -> dict[str, dict[str, float]]:
    """d metric / d field for each of `METRICS`, of all GPUs: the metric's unit per SI
    unit (J a token by B/s, s by Hz, ...).

    One forward derivative a field, all in one program. Where a batch limit of 128 rows
    or a power limit switches, it is that of the side on which the load is.
    """
    places = {name: _PLACES[name] for name in fields}
    values = {
        name: jnp.asarray(float(getattr(getattr(found, of), field)))
        for name, (of, field) in places.items()
    }

    def metrics(moved: dict[str, Array]) -> Array:
        def new(whole: str) -> dict[str, Array]:
            return {x: moved[name] for name, (of, x) in places.items() if of == whole}

        def own(whole: str) -> Any:
            put = new(whole)
            return eqx.tree_at(
                lambda x: [getattr(x, field) for field in put],
                getattr(found, whole),
                list(put.values()),
            )

        gpu = own("gpu")
        point = own("point")
        figures = found.steady(
            found.costs(gpu, point),
            sm_clock=point.sm_clock,
            power_limit=point.power_cap,
            gpu=gpu,
            traffic=own("traffic"),
            **new("load"),
        )
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
