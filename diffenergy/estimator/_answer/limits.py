"""What limits a launch: a unit that works hard, launching, or too little work."""

from typing import Final

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from ...physics._demand import UNITS

LIMITS: Final = (*UNITS, "latency", "launch", "occupancy")
"""What can limit a launch: a unit, latency (too little work in flight, waves, critical
path), the launch itself, or occupancy (SMs without a CTA)."""
HALF: Final = 0.5
"""Share of a peak rate, of the time and of the SMs from which something limits."""


def limiter(
    used: Float[Array, "*k unit"],
    reached: Float[Array, "*k unit"],
    launch: Float[Array, "*k"],
    filled: Float[Array, "*k"],
) -> Int[Array, "*k"]:
    """Index in `LIMITS`, the first of these that holds:

    - launch, where it takes more than half of the time;
    - of the units at half of their peak rate or more (`used`), the one that is the
      nearest to the rate that it can reach (`reached`);
    - occupancy, where less than half of the SMs have a CTA;
    - latency.

    `launch`: share of the time; `filled`: CTAs an SM.

    >>> share = jnp.zeros(8).at[5].set(0.34)  # L2 behind ports that give no more
    >>> LIMITS[limiter(share, share / 0.4, jnp.asarray(0.1), jnp.asarray(3.0))]
    'latency'
    """
    units = jnp.where(used >= HALF, reached, 0.0)
    latency = jnp.full_like(launch, 0.1)
    launching = jnp.where(launch > HALF, jnp.inf, 0.0)
    empty = jnp.where(filled < HALF, 0.2, 0.0)
    others = jnp.stack([latency, launching, empty], -1)
    bound = lax.stop_gradient(jnp.concatenate([units, others], -1))
    return jnp.argmax(bound, -1).astype(jnp.int32)
