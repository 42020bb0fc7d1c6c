"""`Gemm`: products by a library, whose tile is given or chosen."""

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ...dtypes import BYTES
from ...records import as_float, as_index
from .._launch import Fields, Launches, Product


class Gemm(Product):
    """Products by a library; tiles that are not given are chosen from its menu."""

    dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    out_dtype: Int[Array, "*k"] = eqx.field(converter=as_index)
    tensor_core: Float[Array, "*k"] = eqx.field(converter=as_float)  # 1 or 0
    linear: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 for `nn.Linear` layouts (both operands along k): selects the CUDA-core menu."""
    a_bytes: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes of A in memory (0: m k elements; an image for implicit GEMM)."""
    a_stored: Float[Array, "*k"] = eqx.field(converter=as_float)
    b_stored: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes of an element of an operand that is a weight, as stored, else 0."""
    a_distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    b_distance: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Bytes touched between two uses of an operand that is a weight, else 0."""
    gathered: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Padded channels / channels of convolutions whose patches do not overlap, else
    0."""
    k_beside: Float[Array, "*k"] = eqx.field(converter=as_float)
    """Elements of k that lie side by side, where that is not all of it, else 0."""
    eager: Float[Array, "*k"] = eqx.field(converter=as_float)
    """1 in eager passes, where a library GEMM costs more than in a loop of its own."""
    stages: Float[Array, "*k"] = eqx.field(converter=as_float)
    split_k: Float[Array, "*k"] = eqx.field(converter=as_float)
    threads: Float[Array, "*k"] = eqx.field(converter=as_float)
    fixed_tile: bool = eqx.field(static=True, default=False)
    """Whether every row carries its tile: then there is one candidate."""


def product_launches(fields: Fields, columns: dict[str, np.ndarray]) -> Launches:
    """`Gemm` launches from shape columns, with the tile of the listing's fields."""
    names = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "threads", "zero_share")
    columns = {name: fields[name] for name in names} | columns
    columns["threads"] = np.where(
        columns["threads"] > 0, columns["threads"], 32.0 * fields["warps"]
    )
    for name in ("a_bytes", "a_stored", "b_stored", "gathered", "k_beside"):
        columns.setdefault(name, np.zeros_like(columns["m"]))
    size = np.asarray(BYTES)
    batch, m, n, k = (columns[name] for name in ("batch", "m", "n", "k"))
    e = size[columns["dtype"]]
    a, b = (np.where(columns[x] > 0, columns[x], e) for x in ("a_stored", "b_stored"))
    touched = batch * (m * a + n * b) * k
    touched = touched + batch * m * n * size[columns["out_dtype"]]
    return Launches(Gemm, columns, touched, host="matrix", key=("tile_m", "tile_n"))
