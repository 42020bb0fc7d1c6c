"""Measurement models: what a reading shows is not what the GPU did.

They belong to a campaign, never to a GPU, and are applied to a prediction only when it
is compared with a reading.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..records import Record, as_float


class Instrument(Record):
    """How runs were read, one row a run.

    The window of a run includes `startup_seconds` of the starting process at
    `startup_power` (W); it is divided over `iterations` (infinite: no start-up).
    """

    startup_seconds: Float[Array, "*r"] = eqx.field(converter=as_float)
    startup_power: Float[Array, "*r"] = eqx.field(converter=as_float)
    iterations: Float[Array, "*r"] = eqx.field(converter=as_float)


def reading(
    instrument: Instrument, time: Float[Array, "*r"], energy: Float[Array, "*r"]
) -> tuple[Float[Array, "*r"], Float[Array, "*r"]]:
    """(time, energy) per iteration as the campaign reads them, s and J.

    t_read = t + s0/n, e_read = e + s0 P_start/n (`energaizer/SOURCES.md`).
    """
    extra = jnp.where(
        jnp.isinf(instrument.iterations),
        0.0,
        instrument.startup_seconds / instrument.iterations,
    )
    return time + extra, energy + extra * instrument.startup_power
