"""`Record`: the frozen struct of arrays that every number of the model lives in."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import jaxtyped


def as_float(x: ArrayLike | Sequence[int | float]) -> Array:
    """Floating array of the default width (f64 under x64, else f32), never weak.

    One converter for every numeric leaf, so that Python floats, NumPy scalars and
    JAX arrays all give the same trace.
    """
    return _converted(x, jnp.result_type(float))


def as_index(x: ArrayLike | Sequence[int]) -> Array:
    """Integer array for indices (dtype codes, phases); sizes are floats instead."""
    return _converted(x, np.dtype(np.int32))


def _converted(x: ArrayLike | Sequence[int | float], dtype: np.dtype) -> Array:
    if isinstance(x, np.ndarray):  # on the host: a program for every shape otherwise
        x = x.astype(dtype)
    return jnp.asarray(x, dtype=dtype)


class Record(eqx.Module):
    """A row, or a batch of rows: all leaves share their leading axes (`*batch`).

    Fields are annotated with jaxtyping shapes; construction checks that they bind to
    one `*batch` and raises `ValueError` naming the field that does not. The fields of a
    record inside a record have been checked already: its first one stands for all.
    """

    def __check_init__(self):
        with jaxtyped("context"):  # one scope, so that `*batch` binds across fields
            for field in dataclasses.fields(self):
                value, kind = getattr(self, field.name), field.type
                if isinstance(value, Record):
                    first = dataclasses.fields(value)[0]
                    value, kind = getattr(value, first.name), first.type
                if not isinstance(value, kind):  # pyright: ignore[reportArgumentType]
                    raise ValueError(
                        f"`{type(self).__name__}.{field.name}` has shape "
                        f"{jnp.shape(value)}, which does not fit the other fields."
                    )
