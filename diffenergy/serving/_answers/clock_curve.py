"""A figure over the SM clock, from values and slopes at a few clocks."""

import numpy as np
from jaxtyping import Float


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
