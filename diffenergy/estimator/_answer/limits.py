"""How hard launches use the units of a GPU, and what limits them: a unit that works
hard, launching, or too little work."""

from typing import Final

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from ...physics import UNITS, unit_seconds
from .._running import Running, State

LIMITS: Final = (*UNITS, "latency", "launch", "occupancy")
"""What can limit a launch: a unit, latency (too little work in flight, waves, critical
path), the launch itself, or occupancy (SMs without a CTA)."""
HALF: Final = 0.5
"""Share of a peak rate, of the time and of the SMs from which something limits."""


def use_of(
    model: Running, s: State
) -> tuple[Float[Array, "k unit"], Int[Array, " k"], Float[Array, " k"]]:
    """(utilization of each unit, limiter, launch latency in s) of every launch."""
    many, gpu, c = model.launches, model.gpu, model.c
    d, time, clock = many.demand, s.kernel_time, s.clock[many.phase]
    clocks = many.per_candidate(s.clock), many.per_candidate(model.point.mem_clock)
    units = jnp.concatenate(unit_seconds(d, gpu, c, *clocks))
    # of kernels that stream the first load and the last store are part of what fits
    # call launching; others have a critical path of their own
    path = d.path_cycles + d.own_cycles + d.fixed_cycles + d.path_seconds
    others = jnp.stack([s.launch, d.ctas, d.launches, jnp.where(path > 0, 1.0, 0.0)])
    means = many.mean(s.weights, jnp.concatenate([units, others]))
    at_peak, reached, others = jnp.split(means, (len(UNITS), 2 * len(UNITS)))
    launch, ctas, launches, has_path = others
    share, near = jnp.minimum(at_peak / time, 1.0).T, (reached / time).T
    # transfers over links need few CTAs
    link = at_peak[UNITS.index("link")]
    filled = jnp.where(link > 0, jnp.inf, ctas / gpu.num_sms)
    latency = launches * (c.launch_seconds + has_path * c.launch_cycles / clock)
    latency -= (
        launches * (1 - has_path) * jnp.minimum(2 * gpu.dram_latency, c.launch_seconds)
    )
    return share, limiter(share, near, launch / time, filled), latency


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
