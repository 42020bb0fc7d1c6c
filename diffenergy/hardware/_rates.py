"""Peak rates of the units of a GPU at its clocks: which unit follows which clock."""

from types import SimpleNamespace
from typing import NamedTuple

from jax import Array
from jaxtyping import Float

from ._spec import GpuSpec


class Rates(NamedTuple):
    """Peak rates of a whole GPU, shaped like the clocks (1/s)."""

    cycles: Float[Array, "*batch"]  # SM cycles/s of all SMs; x FLOP/cycle/SM: FLOP/s
    sfu: Float[Array, "*batch"]  # special functions/s
    issue: Float[Array, "*batch"]  # lane instructions/s
    smem: Float[Array, "*batch"]  # B/s
    l2: Float[Array, "*batch"]  # B/s that SMs read
    dram: Float[Array, "*batch"]  # B/s
    link: Float[Array, "*batch"]  # B/s, one direction
    memory: Float[Array, "*batch"]  # memory clock / the one of the data sheet


def unit_rates(
    gpu: GpuSpec | SimpleNamespace,
    clock: Float[Array, "..."] | float,
    mem_clock: Float[Array, "..."] | float,
) -> Rates:
    """Peak rate of each unit of `gpu` at the SM clock and the memory clock (Hz), whose
    shapes fit together.

        SMs  = rate per cycle x num_sms x clock
        l2   = l2_bytes_per_cycle x clock    (a measured rate of the whole GPU)
        dram = dram_bandwidth x mem_clock/(memory clock of the data sheet)

    L2 follows the SM clock, links follow none. Arithmetic alone: of floats it makes
    floats (`GpuCard.rates`), of arrays arrays.
    """
    cycles = gpu.num_sms * clock
    memory = mem_clock / gpu.mem_clock
    return Rates(
        cycles=cycles,
        sfu=gpu.sfu_ops_per_cycle * cycles,
        issue=gpu.issue_slots_per_cycle * cycles,
        smem=gpu.smem_bytes_per_cycle * cycles,
        l2=gpu.l2_bytes_per_cycle * clock,
        dram=gpu.dram_bandwidth * memory,
        link=gpu.link_bandwidth,
        memory=memory,
    )
