"""Cheapest settings along the launches when each must stay for a while.

Requests are sent ahead, so a change costs no time, but a setting holds for at least
the latency. A schedule is a row of segments; dynamic programming over their ends, with
prefix sums for what a segment costs.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from .positions import Positions
from .stall import Path, Prices, priced

_BLOCKED: Final = 1e6
"""Price of a launch at a setting where it cannot run, in prices of all launches."""


def dwell(places: Positions, latency: float) -> Int[np.ndarray, "end setting"]:
    """Latest start of a segment that ends behind each launch and lasts `latency` (s);
    -1: none."""
    time = np.where(np.isfinite(places.time), places.time, 0.0)
    clock = np.concatenate([np.zeros((1, time.shape[1])), np.cumsum(time, axis=0)])
    due = clock - latency * (1 - 1e-12)
    latest = [
        np.searchsorted(column, at, "right") - 1
        for column, at in zip(clock.T, due.T, strict=True)
    ]
    before = np.arange(len(clock))[:, None] - 1
    return np.minimum(np.stack(latest, axis=1), before)


def holds(
    places: Positions, settings: Int[np.ndarray, " position"], latency: float
) -> bool:
    """Whether every setting stays for `latency` (s); one setting for all may."""
    starts = np.flatnonzero(np.diff(settings, prepend=-1))
    if len(starts) == 1:
        return True
    time = places.count * places.problem.time[places.kernel, settings]
    return bool(np.add.reduceat(time, starts).min() >= latency * (1 - 1e-9))


def cheapest(
    places: Positions, latest: Int[np.ndarray, "end setting"], prices: Prices
) -> Path:
    """Settings with the least sum of priced energies and times, and that sum; `latest`
    as of `dwell`."""
    cost, change = priced(places, prices)
    blocked = np.isinf(cost)
    cost[blocked] = 0.0
    cost[blocked] = _BLOCKED * np.abs(cost).max(1).sum()
    sums = np.concatenate([np.zeros((1, cost.shape[1])), np.cumsum(cost, axis=0)])
    with jax.enable_x64(True):
        table = _table(jnp.asarray(sums), jnp.asarray(latest), jnp.append(change, 0.0))
        table = _Table(*(np.asarray(leaf) for leaf in table))
    alone = int(np.argmin(sums[-1]))
    if sums[-1, alone] <= table.least:
        return Path(np.full(len(cost), alone), float(sums[-1, alone]))
    return Path(_traced(table, latest), float(table.least))


class _Table(NamedTuple):
    """What the way back needs."""

    starts: Array | Int[np.ndarray, "end setting"]  # best start up to here
    last: Array | Int[np.ndarray, " end"]  # best setting of a segment that ends here
    least: Array | Float[np.ndarray, ""]


@jax.jit
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
