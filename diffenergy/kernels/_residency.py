"""Occupancy: CTAs of an SM, operands of a wave of CTAs, data in L2."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .. import smooth
from ..corrections import Corrections
from ..hardware import GpuSpec
from ..units import KiB


def resident_ctas(
    gpu: GpuSpec,
    threads: Array,
    registers: Array,
    smem: Array,
    reserved: ArrayLike = KiB,
) -> Array:
    """CTAs that an SM holds: registers, threads, shared memory (`reserved` B of it are
    lost to each CTA) and the CTA limit."""
    by_registers = gpu.registers_per_sm / (registers * threads)
    by_threads = gpu.max_threads_per_sm / threads
    by_smem = gpu.smem_per_sm / (smem + reserved)
    least = jnp.minimum(jnp.minimum(by_registers, by_threads), by_smem)
    return smooth.at_least_one(smooth.floor(jnp.minimum(least, gpu.max_ctas_per_sm)))


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


def missed(distance: Array, gpu: GpuSpec, c: Corrections) -> Array:
    """Share of data that miss L2, `distance` B after their last use."""
    return smooth.miss(distance, c.l2_share * gpu.l2_capacity, c.l2_sharpness)


def missed_when_new(size: Array, gpu: GpuSpec, c: Corrections) -> Array:
    """Share of `size` B that miss L2 though the kernel before has just written them."""
    return smooth.miss(size, c.l2_producer_share * gpu.l2_capacity, c.l2_sharpness)
