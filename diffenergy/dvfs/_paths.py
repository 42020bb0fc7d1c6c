"""Cheapest settings along the launch order, by dynamic programming.

When each change of setting has a price (`cheapest`): over positions, each of which
stays at the setting before it, or pays and takes the cheapest. Inside a loop the
setting of its first position is part of the state, since the end of a turn meets it
again.

When each setting must stay for a while (`cheapest_ahead`): requests are sent ahead, so
a change costs no time, but a setting holds for at least the latency. A schedule is a
row of segments; over their ends, with prefix sums for what a segment costs.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ..compiling import call_compiled
from ._positions import Positions

_BLOCKED: Final = 1e6
"""Price of a launch at a setting where it cannot run, in prices of all launches."""


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
    """Predecessor on the cheapest path of each state (first, setting)."""

    stays: Array
    source: Array
    first: Array


def cheapest(places: Positions, prices: Prices) -> Path:
    """Settings with the least sum of priced energies and times, and that sum."""
    cost, change = priced(places, prices)
    again = places.again * change[places.first]
    starts = places.first == np.arange(len(places.first))  # of loops
    again_before = np.concatenate([[0.0], again[:-1]])
    with jax.enable_x64(True):
        columns = cost, places.entered * change, again_before, starts
        steps = _Step(*map(jnp.asarray, columns))
        looped = bool(places.again.any())
        arguments = steps, jnp.asarray(again[-1])
        settings, value = call_compiled(_path, arguments, False, looped=looped)
        return Path(np.asarray(settings, np.int64), float(value))


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


# --- settings that must stay


def dwell(places: Positions, latency: float) -> Int[np.ndarray, "end setting"]:
    """Latest start of a segment that ends behind each launch and lasts `latency` (s);
    -1: none."""
    time = np.where(np.isfinite(places.time), places.time, 0.0)
    clock = np.concatenate([np.zeros((1, time.shape[1])), np.cumsum(time, axis=0)])
    # rounding must not forbid a segment of exactly the latency
    due = clock - latency * (1 - 1e-12)
    latest = [
        np.searchsorted(column, at, "right") - 1
        for column, at in zip(clock.T, due.T, strict=True)
    ]
    before = np.arange(len(clock))[:, None] - 1
    return np.minimum(np.stack(latest, axis=1), before)


def lasting(
    places: Positions, settings: Int[np.ndarray, " position"], latency: float
) -> bool:
    """Whether every setting stays for `latency` (s); one setting for all may."""
    starts = np.flatnonzero(np.diff(settings, prepend=-1))
    if len(starts) == 1:
        return True
    time = places.count * places.problem.time[places.kernel, settings]
    return bool(np.add.reduceat(time, starts).min() >= latency * (1 - 1e-9))


def cheapest_ahead(
    places: Positions, latest: Int[np.ndarray, "end setting"], prices: Prices
) -> Path:
    """Settings with the least sum of priced energies and times, and that sum; `latest`
    as of `dwell`."""
    cost, change = priced(places, prices)
    blocked = np.isinf(cost)
    cost[blocked] = 0.0
    # no infinity: differences of the sums behind it would be NaN
    cost[blocked] = _BLOCKED * np.abs(cost).max(1).sum()
    sums = np.concatenate([np.zeros((1, cost.shape[1])), np.cumsum(cost, axis=0)])
    with jax.enable_x64(True):
        arguments = sums, latest, np.append(change, 0.0)
        table = call_compiled(_table, arguments, once=False)
        table = _Table(*(np.asarray(leaf) for leaf in table))
    alone = int(np.argmin(sums[-1]))
    if sums[-1, alone] <= table.least:
        return Path(np.full(len(cost), alone), float(sums[-1, alone]))
    return Path(_traced(table, latest), float(table.least))


class _Table(NamedTuple):
    """Best starts and settings of segments, for tracing the path back."""

    starts: Array | Int[np.ndarray, "end setting"]  # best start up to here
    last: Array | Int[np.ndarray, " end"]  # best setting of a segment that ends here
    least: Array | Float[np.ndarray, ""]


def _table(sums: Array, latest: Array, change: Array) -> _Table:
    """Least costs of all beginnings of the launches."""
    ends, settings = sums.shape
    column = jnp.arange(settings)

    def step(state, x):
        rests, rest, start = state
        here, total, latest, change = x
        ended = rests[jnp.maximum(latest, 0), column] + total
        ended = jnp.where(latest < 0, jnp.inf, ended)
        last = jnp.argmin(ended)
        begin = jnp.where(here == 0, 0.0, ended[last] + change) - total
        start = jnp.where(begin < rest, here, start)
        rest = jnp.minimum(begin, rest)
        rests = lax.dynamic_update_index_in_dim(rests, rest, here, 0)
        return (rests, rest, start), (start, last, ended[last])

    state = (
        jnp.full((ends, settings), jnp.inf),
        jnp.full(settings, jnp.inf),
        jnp.zeros(settings, jnp.int32),
    )
    here = jnp.arange(ends, dtype=jnp.int32)
    _, (starts, last, least) = lax.scan(step, state, (here, sums, latest, change))
    return _Table(starts, last, least[-1])


def _traced(
    table: _Table, latest: Int[np.ndarray, "end setting"]
) -> Int[np.ndarray, " position"]:
    """Settings of the best path, from its end."""
    end = len(latest) - 1
    settings = np.empty(end, np.int64)
    while end > 0:
        setting = int(table.last[end])
        start = int(table.starts[latest[end, setting], setting])
        settings[start:end] = setting
        end = start
    return settings
