"""`Launches`: columns of one shape record, as a kernel class lowers them."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jaxtyping import Float

from ..records import Record, as_float

Fields = Mapping[str, np.ndarray]
"""An op's fields as NumPy columns, by name; dtypes are codes."""
Host = Literal["stream", "matrix", "none"]
"""What the host spends on a launch: a streaming operator, a matrix operator, nothing
(it is part of another operator's call)."""


@dataclasses.dataclass(frozen=True)
class Context:
    """Per row: what a kernel's surroundings say about it (NumPy columns)."""

    pass_bytes: np.ndarray
    """1 where a weight's reuse distance is what the whole pass touches (the builder
    multiplies by these bytes once it knows them)."""
    eager: np.ndarray
    """1 in eager passes, else 0."""


@dataclasses.dataclass(frozen=True)
class Launches:
    """One launch for each of some rows of an op.

    `shape` is the record that the columns fill; `rows` indexes the op's rows (None: all
    of them). Rows whose `key` columns are all positive are grouped apart, with `given`.
    """

    shape: type[Any]
    columns: dict[str, np.ndarray]
    bytes: np.ndarray
    """Bytes that a launch touches, each once."""
    host: Host
    key: tuple[str, ...] = ()
    rows: np.ndarray | None = None


class Product(Record):
    """Shapes of matrix products C[m, n] += A[m, k] B[k, n], `batch` of them, with their
    tiles (0: not given)."""

    batch: Float[Array, "*k"] = eqx.field(converter=as_float)
    m: Float[Array, "*k"] = eqx.field(converter=as_float)
    n: Float[Array, "*k"] = eqx.field(converter=as_float)
    k: Float[Array, "*k"] = eqx.field(converter=as_float)
    zero_share: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_m: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_n: Float[Array, "*k"] = eqx.field(converter=as_float)
    tile_k: Float[Array, "*k"] = eqx.field(converter=as_float)


Shape = TypeVar("Shape", bound=Record)


def with_candidates(shape: Shape) -> Shape:
    """The record with a candidate axis of one behind every column."""
    return jax.tree.map(lambda x: x[..., None], shape)


def as_floats(x: Any) -> np.ndarray:
    """Column as float64 (booleans become 0 and 1)."""
    return np.asarray(x, dtype=float)


def take_rows(
    columns: dict[str, np.ndarray], rows: np.ndarray
) -> dict[str, np.ndarray]:
    """The given rows of every column."""
    return {name: column[rows] for name, column in columns.items()}
