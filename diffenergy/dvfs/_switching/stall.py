"""Cheapest settings along the launch order when each change of setting has a price.

Dynamic programming over positions: a position stays at the setting before it, or pays
and takes the cheapest. Inside a loop the setting of its first position is part of the
state, since the end of a turn meets it again.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from .positions import Positions


class Prices(NamedTuple):
    """Stages cost `weight` x (energy + `time` x GPU time)."""

    time: Float[np.ndarray, " stage"]  # W
    weight: Float[np.ndarray, " stage"]


class Path(NamedTuple):
    """Setting of every position and what it costs at the prices asked for."""

    settings: Int[np.ndarray, " position"]
    value: float


def priced(
    places: Positions, prices: Prices
) -> tuple[Float[np.ndarray, "position setting"], Float[np.ndarray, " position"]]:
    """Costs of all launches at every setting, and of a change before a position."""
    time, weight = prices.time[places.stage], prices.weight[places.stage]
    usable = places.problem.usable[places.kernel]
    cost = places.energy + time[:, None] * np.where(usable, places.time, 0.0)
    change = places.change_energy + places.stall * time
    return weight[:, None] * cost, weight * change


class _Step(NamedTuple):
    """A position, or (leading axis) all: prices of settings and changes."""

    cost: Array
    change: Array  # of entering at another setting than the position before
    again: Array  # of the loop before, that it ends at another setting than its first
    starts: Array  # whether a loop starts here


class _Back(NamedTuple):
    """How the cheapest path came to a state (first, setting)."""

    stays: Array
    source: Array
    first: Array


def cheapest(places: Positions, prices: Prices) -> Path:
    """Settings with the least sum of priced energies and times, and that sum."""
    cost, change = priced(places, prices)
    again = places.again * change[places.first]
    starts = places.first == np.arange(len(places.first))  # of loops
    with jax.enable_x64(True):
        steps = _Step(
            jnp.asarray(cost),
            jnp.asarray(places.entered * change),
            jnp.asarray(np.concatenate([[0.0], again[:-1]])),
            jnp.asarray(starts),
        )
        looped = bool(places.again.any())
        settings, value = _path(steps, jnp.asarray(again[-1]), looped)
        return Path(np.asarray(settings, np.int64), float(value))


@functools.partial(jax.jit, static_argnames="looped")
def _path(steps: _Step, last_again: Array, looped: bool) -> tuple[Array, Array]:
    """Best path and its cost; `looped`: the state knows the first setting."""
    num = steps.cost.shape[1]
    own = jnp.eye(num, dtype=bool) if looped else jnp.ones((1, num), bool)
    begin = jnp.where(own, steps.cost[0], jnp.inf)
    rest = jax.tree.map(lambda leaf: leaf[1:], steps)

    def forward(state: Array, step: _Step) -> tuple[Array, _Back]:
        return lax.cond(step.starts, _enter, _go_on, own, state, step)

    state, back = lax.scan(forward, begin, rest)
    closed, first = _closed(own, state, last_again)
    end = jnp.argmin(closed)

    def backward(
        here: tuple[Array, Array], x: tuple[_Back, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        first, setting = here
        how, starts = x
        row = jnp.where(starts, 0, first)
        before = jnp.where(how.stays[row, setting], setting, how.source[row])
        return (jnp.where(starts, how.first[before], first), before), before

    _, settings = lax.scan(
        backward, (first[end], end), (back, rest.starts), reverse=True
    )
    return jnp.append(settings, end), closed[end]


def _go_on(own: Array, state: Array, step: _Step) -> tuple[Array, _Back]:
    """The next position of a body."""
    source = jnp.argmin(state, axis=1)
    least = jnp.min(state, axis=1, keepdims=True) + step.change
    stays = state <= least
    unused = jnp.zeros(own.shape[1], source.dtype)
    return jnp.minimum(state, least) + step.cost, _Back(stays, source, unused)


def _enter(own: Array, state: Array, step: _Step) -> tuple[Array, _Back]:
    """The first position of the next loop."""
    closed, first = _closed(own, state, step.again)
    source = jnp.argmin(closed)
    least = closed[source] + step.change
    value = jnp.minimum(closed, least) + step.cost
    return jnp.where(own, value, jnp.inf), _Back(
        jnp.broadcast_to(closed <= least, own.shape),
        jnp.broadcast_to(source, own.shape[:1]),
        first,
    )


def _closed(own: Array, state: Array, again: Array) -> tuple[Array, Array]:
    """Least cost of ending a loop at every setting, and its first setting."""
    value = state + jnp.where(own, 0.0, again)
    return jnp.min(value, axis=0), jnp.argmin(value, axis=0)
