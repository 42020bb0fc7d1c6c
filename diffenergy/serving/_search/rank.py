"""Figures of all points of a candidate, by one program that candidates share.

A point is a clock, a batch limit and a number of replicas. The step is priced at some
numbers of running requests (`_KNOTS`) and linear between them. In an open loop a batch
limit m cuts the birth-death chain of `queue.birth_death` off: states up to m have the
weights of the chain without a limit, and those behind it are a geometric tail, so that
sums over states are products of matrices. The rest is as in `steady`.
"""

from typing import Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._steady.figures import QUANTILES, LoadArrays, steady
from .._steady.first_token import beside_others, first_token
from .._steady.server import Running, Server, running
from .._steady.skewed import Skewed

MOST_BATCH: Final = 1024
"""Largest batch limit of a search."""
FULLEST: Final = 0.95
"""Largest share of the saturation: beyond it the queue of hours decides."""
_MORE: Final = 4
"""Numbers of replicas of an open loop: the least one and those behind it."""
_LADDER: Final = [*range(1, 9), *(x * 2**i for i in range(7) for x in (10, 12, 14, 16))]
"""1, 2, ... 8 and steps of at most a quarter up to 1,024."""
# sampling changes its kind at 128 rows
_KNOTS: Final = np.unique([*_LADDER, 127])
_KNOTS_AT: Final = np.stack(
    [np.interp(np.arange(1, MOST_BATCH + 1), _KNOTS, x) for x in np.eye(len(_KNOTS))]
).T
"""Weights of the knots for every number of running requests [number, knot]."""
_P95: Final = QUANTILES.index(0.95)


class Points(eqx.Module):
    """What is evaluated of one candidate: its `server`; `load`: rate or clients of all
    replicas; `clocks` (Hz) and batch `limits`; `replicas` of a closed loop, of an open
    one the numbers beyond the least."""

    server: Server
    load: LoadArrays
    clocks: Float[Array, " clock"]
    limits: Float[Array, " limit"]
    replicas: Float[Array, " replica"]
    open: bool = eqx.field(static=True)


class Ranked(NamedTuple):
    """Figures of points [clock, limit, replica]: `replicas`; mean power of one GPU (W)
    and output tokens a second of one replica; 95th percentiles (s); `load`: rate over
    saturation; whether the power limit is kept."""

    replicas: Array
    power: Array
    flow: Array
    ttft: Array
    tpot: Array
    load: Array
    feasible: Array


def rank(points: Points) -> Ranked:
    """Figures of every point."""
    one = _open if points.open else _closed

    def at(clock: Array) -> Ranked:
        return one(points.server.at_clock(clock), points)

    return lax.map(at, points.clocks)


def _closed(server: Server, points: Points) -> Ranked:
    """Closed loops of all limits and numbers of replicas."""

    def one(limit: Array, replicas: Array) -> Ranked:
        clients = points.load.clients / replicas
        load = points.load._replace(slots=limit, clients=clients)
        x = steady(server.limited(limit), load, "closed")
        p95 = x.ttft.quantiles[_P95], x.tpot.quantiles[_P95]
        # the load of a closed loop is never beyond what is served
        return Ranked(replicas, x.power, x.flow, *p95, 0.0 * x.load, x.feasible)

    over = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
    return over(points.limits, points.replicas)


def _open(server: Server, points: Points) -> Ranked:
    """Open loops of all limits and numbers of replicas."""

    def at(limit: Array) -> Ranked:
        return _at_limit(server.limited(limit), points, limit)

    return jax.vmap(at)(points.limits)


def _at_limit(server: Server, points: Points, limit: Array) -> Ranked:
    """Open loops of all numbers of replicas."""
    rate, output = points.load.rate, server.traffic.output
    knots, at = jnp.asarray(_KNOTS, float), jnp.asarray(_KNOTS_AT)
    each = jax.vmap(lambda b: running(server, b))(knots)
    number = jnp.arange(1.0, MOST_BATCH + 1)
    token = at @ each.token
    flow = (at @ each.decoding) / token
    power = at @ (each.energy / each.step)
    served = flow / output
    logs, order = jnp.cumsum(jnp.log(served)), jnp.argsort(token)

    def one(more: Array) -> Ranked:
        last = limit.astype(int) - 1
        least = jnp.ceil(rate / (FULLEST * served[last]))
        replicas = jnp.maximum(least, 1.0) + more
        arriving = rate / replicas
        load = arriving / served[last]
        drain = served[last] * (1 - jnp.minimum(load, 1 - 1e-9))
        log_weights = jnp.where(
            number <= limit, number * jnp.log(arriving) - logs, -jnp.inf
        )
        top = jnp.maximum(jnp.max(log_weights), 0.0)
        weights = jnp.exp(log_weights - top)
        # all states behind the last one run as it does
        weights = weights.at[last].multiply(served[last] / drain)
        none = jnp.exp(-top)
        total = none + jnp.sum(weights)
        weights, none = weights / total, none / total
        states = weights @ at
        tokens = jnp.cumsum((weights * flow)[order])
        place = jnp.searchsorted(tokens, QUANTILES[_P95] * tokens[-1])
        busy = beside_others(server, arriving, each)
        first = first_token(server, arriving, busy, jnp.append(none, states))
        first = first._replace(mean=first.mean + server.engine.request)
        wait = server.traffic.spread / 2 / drain
        return Ranked(
            replicas,
            weights @ power + none * server.idle,
            weights @ flow,
            Skewed(first, weights[last], wait).quantiles()[_P95],
            token[order[jnp.minimum(place, MOST_BATCH - 1)]],
            load,
            _keeps(each, knots, limit),
        )

    return jax.vmap(one)(points.replicas)


def _keeps(each: Running, knots: Array, limit: Array) -> Array:
    """Whether the power limit is kept with up to `limit` requests."""
    return jnp.all(each.feasible | (knots > limit))


def replica_numbers(clients: float | None, most: float) -> np.ndarray:
    """Numbers of replicas: of an open loop those beyond the least, of a closed one with
    so many `clients` 1, 2, ... 8, and then steps of at most a quarter."""
    if clients is None:
        return np.arange(float(_MORE))
    top = max(min(clients, most), 1.0)
    # repeats fill up to one shape, so that candidates share a compiled program
    numbers = [x for x in _LADDER if x <= top]
    return np.resize(numbers, len(_LADDER)).astype(float)
