"""`Record`: the frozen struct of arrays that every number of the model lives in."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
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
    if isinstance(x, np.ndarray | np.generic | float | int):
        x = np.asarray(x, dtype)  # by NumPy: JAX compiles a program for every shape
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


@dataclasses.dataclass(frozen=True)
class Keyed:
    """An argument of a cache: equal to others where its `key` is. By `id` of the value,
    which stays alive here, it is equal to itself alone."""

    key: Any
    value: Any = dataclasses.field(compare=False)


_MOST: Final = 12
"""Entries of a gradient that its `repr` shows."""
Step = tuple[float, str, float]
"""What is added at once: number, unit, and in SI."""


def is_concrete(tree: Any) -> bool:
    """Whether all leaves are arrays with numbers in them."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: x is None)
    arrays = all(isinstance(x, Array | np.ndarray) for x in leaves)
    return arrays and not any(isinstance(x, Tracer) for x in leaves)


def gradient_table(kind: str, slopes: Any, steps: Mapping[str, Step]) -> str:
    """The largest entries of a gradient by a record `kind`, as lines of text.

    `slopes`: by name, per SI unit (of a batch the largest); `steps`: what entries are
    made comparable by, `slope x step`. What has no step is left out.
    """
    entries = []
    for name, (number, unit, si) in steps.items():
        values = np.ravel(np.asarray(slopes[name], float))
        slope = float(values[np.argmax(np.abs(values))])
        if slope:  # NaN too
            entries.append((name, slope, f"{number:+g} {unit}", slope * si))
    entries.sort(key=lambda x: -np.nan_to_num(abs(x[-1]), nan=np.inf))
    rows = [("d/d", "per SI unit", "one step", "changes by")]
    rows += [(a, f"{b:.4g}", c, f"{d:+.3g}") for a, b, c, d in entries[:_MOST]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"  {row[0]:<{widths[0]}}"
        + "".join(f"  {x:>{w}}" for x, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    more = max(len(entries) - _MOST, 0)
    return "\n".join([f"<gradient by {kind}, {more} smaller entries left out>", *lines])
