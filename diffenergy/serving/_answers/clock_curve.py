"""A figure over the SM clock, from values and slopes at a few clocks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...compiling import compiler_options
from ...hardware import GpuCard
from ...hardware._clocks import sm_clocks


def steps_of(card: GpuCard) -> Float[np.ndarray, " step"]:
    """SM clocks that a board has, rising, Hz."""
    return np.sort(np.asarray(sm_clocks(card), float))


def spread(steps: Float[np.ndarray, " step"], number: int) -> Float[np.ndarray, " _"]:
    """At most so many of the steps, evenly spread over them."""
    return steps[np.unique(np.linspace(0, len(steps) - 1, number).round().astype(int))]


def looker(
    figures: Callable[[Array], tuple[Any, Any]], size: int
) -> Callable[[np.ndarray], tuple[Any, Any, Any]]:
    """What looks at clocks, at most `size` of them, all by one program: values and
    slopes of the first of `figures`, and the second as it is; the clock leads."""

    def at(clock: Array) -> tuple[Any, Any, Any]:
        return jax.jvp(figures, (clock,), (jnp.ones_like(clock),), has_aux=True)

    options = compiler_options(once=True)
    run = jax.jit(lambda x: jax.lax.map(at, x), compiler_options=options)

    def look(clocks: np.ndarray) -> tuple[Any, Any, Any]:
        found = jax.device_get(run(jnp.asarray(np.resize(clocks, size))))
        return jax.tree.map(lambda x: np.array(x[: len(clocks)]), found)

    return look


def between(
    clocks: Float[np.ndarray, " tried"],
    values: Float[np.ndarray, " tried *figure"],
    slopes: Float[np.ndarray, " tried *figure"],
    at: Float[np.ndarray, " clock"],
) -> Float[np.ndarray, " clock *figure"]:
    """Figures at clocks between those tried (rising), by the cubic that has their
    values and slopes at both ends of each interval (Hermite); at the ends beyond them.

    Where a figure is not finite at an end of the interval it is not finite within.
    """
    if len(clocks) == 1:
        return np.broadcast_to(values, (len(at), *values.shape[1:])).copy()
    left = np.clip(np.searchsorted(clocks, at, side="right") - 1, 0, len(clocks) - 2)
    shape = (len(at), *(1,) * (values.ndim - 1))
    wide = (clocks[left + 1] - clocks[left]).reshape(shape)
    x = np.clip((at - clocks[left]).reshape(shape) / wide, 0.0, 1.0)
    low, high = values[left], values[left + 1]
    rise, fall = slopes[left] * wide, slopes[left + 1] * wide
    return (
        low * (1 + 2 * x) * (1 - x) ** 2
        + high * x**2 * (3 - 2 * x)
        + rise * x * (1 - x) ** 2
        - fall * x**2 * (1 - x)
    )
