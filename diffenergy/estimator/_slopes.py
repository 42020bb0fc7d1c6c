"""Derivatives of figures by fields that have names: forward mode, one program."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..compiling import compiler_options
from ..hardware import FIELDS

FIELD_PLACES: Final = {
    "sm_clock": ("point", "sm_clock"),
    "power_limit": ("point", "power_cap"),
} | {name: ("gpu", name) for name in FIELDS}
"""Part and attribute that a caller's name of a clock, a limit or a field means."""


def slopes(
    figures: Callable[[dict[str, Any]], Float[Array, " metric"]],
    parts: Mapping[str, Any],
    places: Mapping[str, tuple[str, str]],
) -> tuple[Float[np.ndarray, " metric"], Float[np.ndarray, "metric field"]]:
    """(figures, their derivatives by each field, in their unit per SI unit).

    One forward derivative a field, all in one program; where a limit or a clock range
    switches, it is that of the side on which the figures are.

    Args:
        figures: of `parts`, as one array.
        parts: records, by name.
        places: of each field its part and the attribute there.
    """
    each = [float(getattr(parts[part], name)) for part, name in places.values()]
    values = jnp.array(each)

    def moved(numbers: Float[Array, " field"]) -> Float[Array, " metric"]:
        new = dict(parts)
        for (part, name), x in zip(places.values(), numbers, strict=True):
            new[part] = eqx.tree_at(lambda p, n=name: getattr(p, n), new[part], x)
        return figures(new)

    def along(direction: Float[Array, " field"]) -> tuple[Array, Array]:
        return jax.jvp(moved, (values,), (direction,))

    options = compiler_options(once=True)
    every = jax.jit(jax.vmap(along), compiler_options=options)
    at, table = jax.device_get(every(jnp.eye(len(places))))
    return at[0], table.T
