"""`finish_time` of an order in JAX: differentiable in every rate and latency.

A max-plus expression: the finish is the length of the longest path through the waits
of `order_of`, each linear in latencies and 1 / rates, so its derivative is that of the
sum along the path; where two paths tie it is the derivative of one of them. Agrees
with `simulate.retime` at the rates and latencies of the topology.
"""

from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from .order import Order
from .simulate import order_of

__all__ = ["Order", "finish_time", "order_of"]

_NEAR: Final = 64
"""Units of rounding of a start below which it is not later."""


def finish_time(
    order: Order, rates: Float[Array, " link"], latencies: Float[Array, " link"]
) -> Float[Array, ""]:
    """Finish in s with the given rates (B/s) and latencies (s): differentiable in both,
    fit for `vmap` and `jit` (close over `order`). Infinite where the order cannot be
    kept at these rates: switches would have to hold data."""
    groups, latencies = order.groups, jnp.asarray(latencies)
    spell = jnp.asarray(groups.bytes) / jnp.asarray(rates)[groups.link]
    gaps = jnp.append(
        order.forward.gaps(spell, latencies[groups.link]),
        order.back.gaps(spell, latencies[groups.link]),
    )
    last = jnp.asarray(groups.until) * spell[groups.group] + latencies[order.send_link]
    walk = _longest(order, lax.stop_gradient(gaps), lax.stop_gradient(last))
    length = (walk.times * gaps).sum() + last[walk.end]
    return jnp.where(walk.ends, length, jnp.inf)


class _Walk(NamedTuple):
    """The longest path: how often it takes each wait, the send that ends it, and
    whether there is one (groups do not wait in a circle)."""

    times: Int[Array, " wait"]
    end: Int[Array, ""]
    ends: Array


def _longest(
    order: Order, gaps: Float[Array, " wait"], last: Float[Array, " send"]
) -> _Walk:
    """The path to the last end; starts as in `simulate`, by levels and then back."""
    before = np.append(order.forward.before, order.back.before)
    after = np.append(order.forward.after, order.back.after)
    count, total = len(order.groups.link), len(before)
    pieces = jnp.asarray(_pieces(order.level, total))
    behind = jnp.arange(len(order.forward), total)
    head, tail = jnp.append(before, 0), jnp.append(after, count)
    weight = jnp.append(gaps, -jnp.inf)
    near = _NEAR * jnp.finfo(gaps.dtype).eps

    def relax(
        state: tuple[Array, Array], rows: Array
    ) -> tuple[tuple[Array, Array], None]:
        start, cause = state
        reach = start[head[rows]] + weight[rows]
        fresh = start.at[tail[rows]].max(reach)
        fresh = jnp.where(fresh > start * (1 + near), fresh, start)
        moved = (reach > start[tail[rows]]) & (reach >= fresh[tail[rows]])
        cause = cause.at[jnp.where(moved, tail[rows], count)].set(rows)
        return (fresh, cause), None

    def sweep(state: tuple[Array, Array, Array, Array]) -> tuple:
        start, cause, _, turn = state
        (start, cause), _ = lax.scan(relax, (start, cause), pieces)
        (later, cause), _ = relax((start, cause), behind)
        return later, cause, (later > start).any(), turn + 1

    limit = len(order.back) + 1
    begin = jnp.zeros(count + 1), jnp.full(count + 1, -1)
    start, cause, moving, _ = lax.while_loop(
        lambda state: state[2] & (state[3] < limit),
        sweep,
        (*begin, jnp.array(True), jnp.array(0)),
    )
    end = jnp.argmax(start[order.groups.group] + last)
    group = jnp.asarray(order.groups.group)[end]

    def step(state: tuple[Array, Array, Array]) -> tuple:
        group, times, left = state
        edge = cause[group]
        return head[edge], times.at[edge].add(1), left - 1

    _, times, _ = lax.while_loop(
        lambda state: (cause[state[0]] >= 0) & (state[2] > 0),
        step,
        (group, jnp.zeros(total + 1, int), jnp.array(count)),
    )
    return _Walk(times[:total], end, ~moving)


def _pieces(
    level: Int[np.ndarray, " forward"], filler: int
) -> Int[np.ndarray, "level wait"]:
    """Numbers of the waits of each level, filled up with `filler`."""
    if not len(level):
        return np.full((1, 1), filler)
    level = level - level.min()
    count = np.bincount(level)
    place = np.arange(len(level)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((len(count), count.max()), filler)
    table[level, place] = np.arange(len(level))
    return table
