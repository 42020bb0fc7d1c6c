"""How many CTAs an SM holds at once."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ... import smooth
from ...hardware._spec import GpuSpec
from ...units import KiB


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
