"""`Demand`: what one launch asks of a GPU, free of kernel classes.

Axes are `*batch` = (kernel, candidate); candidates are tiles or splits among which a
library chooses, and most classes have one.
"""

import dataclasses
from typing import Any, Final

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..records import Record, as_float

UNITS: Final = ("tensor", "fma", "sfu", "issue", "smem", "l2", "dram", "link")
"""Modules that do work: matrix pipes, CUDA cores, special functions, instruction slots
of everything else, shared memory, L2, DRAM, links."""


def _leaf(default: float = 0.0):
    return eqx.field(converter=as_float, default=default)


class Demand(Record):
    """Work, geometry and critical path of a launch (SI; cycles are SM cycles)."""

    # work of the whole launch, padding and masked parts included
    tensor: Float[Array, "*batch"] = _leaf()  # FLOP
    fma: Float[Array, "*batch"] = _leaf()  # FLOP
    sfu: Float[Array, "*batch"] = _leaf()  # operations
    issue: Float[Array, "*batch"] = _leaf()  # lane instructions beside the math
    math_issue: Float[Array, "*batch"] = _leaf()  # those of the math, on the same slots
    smem: Float[Array, "*batch"] = _leaf()  # B
    l2: Float[Array, "*batch"] = _leaf()  # B asked of L2 by the main loop
    dram: Float[Array, "*batch"] = _leaf()  # B from DRAM in the main loop
    link: Float[Array, "*batch"] = _leaf()  # B
    store_l2: Float[Array, "*batch"] = _leaf()  # B written in the epilogue
    store_dram: Float[Array, "*batch"] = _leaf()  # B of these that reach DRAM
    # rates
    tensor_peak: Float[Array, "*batch"] = _leaf(1.0)  # FLOP/cycle/SM of the dtype
    tensor_efficiency: Float[Array, "*batch"] = _leaf(1.0)
    fma_peak: Float[Array, "*batch"] = _leaf(1.0)  # FLOP/cycle/SM
    fma_efficiency: Float[Array, "*batch"] = _leaf(1.0)
    sfu_efficiency: Float[Array, "*batch"] = _leaf(1.0)
    issue_efficiency: Float[Array, "*batch"] = _leaf(1.0)
    smem_efficiency: Float[Array, "*batch"] = _leaf(1.0)
    feed: Float[Array, "*batch"] = _leaf(1e9)  # B/cycle/SM from L2 into the SM
    flow: Float[Array, "*batch"] = _leaf(1e9)  # B/cycle/SM from DRAM (Little's law)
    flow_rise: Float[Array, "*batch"] = _leaf()  # power of the SM clock in `flow`
    l2_sharing: Float[Array, "*batch"] = _leaf(1.0)  # loads served per L2 read
    # launch geometry
    ctas: Float[Array, "*batch"] = _leaf(1.0)
    resident: Float[Array, "*batch"] = _leaf(1.0)  # CTAs an SM holds at once
    longest: Float[Array, "*batch"] = _leaf(1.0)  # longest CTA / mean CTA
    quantization: Float[Array, "*batch"] = _leaf(1.0)  # share of ceil(w) - w paid
    tail: Float[Array, "*batch"] = _leaf()  # list-schedule tail of unequal CTAs
    # critical path
    own_cycles: Float[Array, "*batch"] = _leaf()  # fill and epilogue of a CTA
    path_cycles: Float[Array, "*batch"] = _leaf()  # main loop of a CTA alone
    path_seconds: Float[Array, "*batch"] = _leaf()  # the same part that no clock moves
    fixed_cycles: Float[Array, "*batch"] = _leaf()  # once per launch
    fixed_seconds: Float[Array, "*batch"] = _leaf()
    launches: Float[Array, "*batch"] = _leaf(1.0)
    # overlap
    sharpness: Float[Array, "*batch"] = _leaf(6.0)  # of units inside an SM
    sharpness_issue: Float[Array, "*batch"] = _leaf(12.0)  # of math and the rest
    sharpness_memory: Float[Array, "*batch"] = _leaf(6.0)  # of SM side, L2 and DRAM
    store_exposed: Float[Array, "*batch"] = _leaf(1.0)
    training: Float[Array, "*batch"] = _leaf(1.0)  # time in training programs / here
    aging: Float[Array, "*batch"] = _leaf()  # ln of it more, a year of older software
    # energy
    tensor_energy: Float[Array, "*batch"] = _leaf()  # J/FLOP at V0
    other_energy: Float[Array, "*batch"] = _leaf()  # J at V0 that no unit explains
    activity: Float[Array, "*batch"] = _leaf(1.0)  # switching relative to random data
    math_activity: Float[Array, "*batch"] = _leaf(1.0)  # that of the math beyond it
    # choice
    choice: Float[Array, "*batch"] = _leaf()  # log prior of the candidate
    illegal: Float[Array, "*batch"] = _leaf()  # 1 where the candidate cannot run
    tau: Float[Array, "*batch"] = _leaf(0.05)  # spread of the choice in ln t

    @property
    def work(self) -> Float[Array, " unit *batch"]:
        """Work of each unit in the order of `UNITS`, that of the epilogue included."""
        l2, dram = self.l2 + self.store_l2, self.dram + self.store_dram
        sm = (self.tensor, self.fma, self.sfu, self.issue, self.smem)
        return jnp.stack([*sm, l2, dram, self.link])


def make_demand(**fields: ArrayLike) -> Demand:
    """`Demand` of fields of shapes that fit together; the rest at defaults."""
    defaults = {x.name: x.default for x in dataclasses.fields(Demand)}
    filled: dict[str, Any] = {**defaults, **fields}
    arrays = jnp.broadcast_arrays(*map(as_float, filled.values()))
    return Demand(*arrays)
