"""One server as a birth-death chain: requests come at random, and the more of them run
the longer a step takes.

Processor sharing whose speed depends on the number of requests does not depend on how
their lengths are distributed, only on the mean (Kelly, Reversibility and Stochastic
Networks, 1979, section 3.3), as long as none waits for a slot.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Balance(NamedTuple):
    """`weights[n]`: share of time with n = 0, 1, ... requests that run or wait (the
    last ones waiting not listed are in the rest); `running`: their mean; `flow`: tokens
    a second; `taken`: share of time with all slots taken; `waiting`: mean number that
    wait; `wait`: mean time until a request runs, s; `drain`: at which rate waiting
    ends, 1/s; `load`: rate / what all slots together serve, below 1."""

    weights: Array
    running: Array
    flow: Array
    taken: Array
    waiting: Array
    wait: Array
    drain: Array
    load: Array


def birth_death(rate: Array, flows: Array, length: Array, limit: Array) -> Balance:
    """Balance of a server whose n = 1, 2, ... running requests make `flows[n - 1]`
    tokens a second, each needing `length` of them, while `rate` come a second and at
    most `limit` run.

    p(n) ~ prod_{i <= n} rate length / flow(min(i, limit)), with a geometric tail behind
    the last flow; `flows` have to reach up to `limit`, and are the last ones beyond it.
    Where `load` is 1 or more there is no balance and numbers mean nothing.

    >>> step = lambda r: 0.010 + 1e-4 * r
    >>> r = jnp.minimum(jnp.arange(1.0, 65.0), 16)
    >>> result = birth_death(jnp.asarray(5.0), r / step(r), jnp.asarray(200.0), r[-1])
    >>> round(float(result.running), 3), round(float(result.taken), 3)
    (11.206, 0.146)
    """
    number = jnp.arange(1.0, flows.shape[-1] + 1.0)
    slots = jnp.minimum(number, limit)
    served = flows / length
    logs = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.log(rate / served))])
    load = rate / served[-1]
    # At load 1 the geometric sum diverges: numbers mean nothing there, but stay finite.
    ratio = jnp.minimum(load, 1 - 1e-9)
    # Products over thousands of states would overflow; only their ratios matter.
    logs = logs - jnp.max(logs)
    weights = jnp.exp(logs)
    tail = weights[-1] * ratio / (1 - ratio)  # all behind the last state
    weights = weights / (jnp.sum(weights) + tail)
    after = weights[-1] * ratio / (1 - ratio)
    beyond = jnp.maximum(number - limit, 0.0)
    running = jnp.sum(weights[1:] * slots) + after * slots[-1]
    flow = jnp.sum(weights[1:] * flows) + after * flows[-1]
    # `limit` may be fractional (memory over the mean request): a state across it counts
    # in part.
    full = jnp.clip(number - limit + 1, 0.0, 1.0)
    taken = jnp.sum(weights[1:] * full) + after
    # geometric: the mean number behind the last state is 1 / (1 - ratio)
    waiting = jnp.sum(weights[1:] * beyond) + after * (beyond[-1] + 1 / (1 - ratio))
    drain = served[-1]
    return Balance(weights, running, flow, taken, waiting, waiting / rate, drain, load)
