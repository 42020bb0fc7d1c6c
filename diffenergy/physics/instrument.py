"""Measurement models: what a reading shows is not what the GPU did.

They belong to a campaign, never to a GPU, and are applied to a prediction only when it
is compared with a reading.
"""

from typing import Final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..records import Record, as_float


class Instrument(Record):
    """How runs were read, one row a run.

    The window of a run includes `startup_seconds` of the starting process at
    `startup_power` (W); it is divided over `iterations` (infinite: no start-up). A run
    of `burst` kernels (infinite: sustained) that is short against `GOVERNOR_TIME` is
    over before the power limiter acts.
    """

    startup_seconds: Float[Array, "*r"] = eqx.field(converter=as_float)
    startup_power: Float[Array, "*r"] = eqx.field(converter=as_float)
    iterations: Float[Array, "*r"] = eqx.field(converter=as_float)
    burst: Float[Array, "*r"] = eqx.field(converter=as_float)


GOVERNOR_TIME: Final = 20e-3
"""Time that the power limiter needs to act, s (`docs/physics.md`, Instruments)."""


class Run(NamedTuple):
    """Time (s) and energy (J) of each run."""

    time: Array
    energy: Array


def reading(instrument: Instrument, free: Run, governed: Run) -> Run:
    """What the campaign reads, per iteration, of runs that would be `free` of the power
    limit or `governed` by it.

    The governed share of a burst is x/(1 + x), x = its length / `GOVERNOR_TIME`; then
    t_read = t + s0/n, e_read = e + s0 P_start/n.
    """
    length = jnp.minimum(instrument.burst, 1e9) * free.time / GOVERNOR_TIME
    share = length / (1 + length)
    time = free.time + share * (governed.time - free.time)
    energy = free.energy + share * (governed.energy - free.energy)
    extra = jnp.where(
        jnp.isinf(instrument.iterations),
        0.0,
        instrument.startup_seconds / instrument.iterations,
    )
    return Run(time + extra, energy + extra * instrument.startup_power)
