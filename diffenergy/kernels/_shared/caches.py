"""What L2 does not hold of data that are used again."""

from jax import Array

from ... import smooth
from ...corrections import Corrections
from ...hardware import GpuSpec


def missed(distance: Array, gpu: GpuSpec, c: Corrections) -> Array:
    """Share of data that miss L2, `distance` B after their last use."""
    return smooth.miss(distance, c.l2_share * gpu.l2_capacity, c.l2_sharpness)


def missed_when_new(size: Array, gpu: GpuSpec, c: Corrections) -> Array:
    """The same of `size` B that the kernel before has just made."""
    return smooth.miss(size, c.l2_producer_share * gpu.l2_capacity, c.l2_sharpness)
