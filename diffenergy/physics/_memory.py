"""Caches: what of a launch's traffic reaches DRAM."""

import jax.numpy as jnp
from jax import Array

from .. import smooth


def wave_traffic(
    tiles_m: Array,
    tiles_n: Array,
    tile_m: Array,
    tile_n: Array,
    concurrent: Array,
    row_bytes_a: Array,
    row_bytes_b: Array,
) -> Array:
    """Operand bytes that the waves of one matrix product read, B.

    A wave of `concurrent` tiles covers a block of the output as square as it allows; it
    reads the block's rows of A and columns of B once. `row_bytes_*` are bytes of one
    output row of A (column of B) over the whole reduction.
    """
    rows, cols = tiles_m * tile_m, tiles_n * tile_n
    tiles = tiles_m * tiles_n
    block = jnp.minimum(concurrent, tiles) * tile_m * tile_n
    side = jnp.sqrt(block)
    height = jnp.minimum(jnp.maximum(side, block / cols), rows)
    width = block / height
    waves = tiles / jnp.minimum(concurrent, tiles)
    return waves * (height * row_bytes_a + width * row_bytes_b)


def excess(traffic: Array, compulsory: Array) -> Array:
    """Traffic beyond reading each datum once, B: a smooth max(traffic - once, 0)."""
    return smooth.softplus(traffic - compulsory, compulsory / 4 + 1.0)
