"""The clock that a power limit allows a composed step, and figures at that clock.

Between the clocks of the table the time of a step is linear in 1/f (exact for a kernel
that the core clock bounds, and for one that DRAM bounds) and ln P is linear in ln f, so
that the clock which meets a limit follows in closed form.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float


class Governed(NamedTuple):
    """A step at the clock that its power limit allows: `clock`, Hz; `weights` of the
    table's clocks for times; `power`, W; `lowest`: power at the lowest clock, W;
    `feasible`: whether the limit is kept."""

    clock: Float[Array, ""]
    weights: Float[Array, " k"]
    power: Float[Array, ""]
    lowest: Float[Array, ""]
    feasible: Bool[Array, ""]


def governed(
    clocks: Float[Array, " k"],
    time: Float[Array, " k"],
    energy: Float[Array, " k"],
    requested: Float[Array, ""],
    cap: Float[Array, ""],
) -> Governed:
    """The highest clock up to `requested` (Hz) at which a step of `time` s and `energy`
    J at `clocks` draws at most `cap` W; the lowest clock where none does."""
    x, log_power = jnp.log(clocks), jnp.log(energy / time)
    top, log_cap = jnp.log(requested), jnp.log(cap)
    before, share = _interval(x, top)
    free = log_power[before] + share * (log_power[before + 1] - log_power[before])
    over, feasible = free > log_cap, (free <= log_cap) | (log_power[0] <= log_cap)
    # the last interval in which power rises above the cap
    low = jnp.max(jnp.where(log_power[:-1] <= log_cap, jnp.arange(len(x) - 1), 0))
    rise = jnp.where(over, log_power[low + 1] - log_power[low], 1.0)
    # The branch that `where` discards is differentiated, too: a divisor of 0 there
    # would make the gradient NaN.
    rise = jnp.where(rise == 0, 1.0, rise)
    root = x[low] + (log_cap - log_power[low]) / rise * (x[low + 1] - x[low])
    root = jnp.where(root > top, top, root)
    root = jnp.where(feasible, root, x[0])
    clock = jnp.where(over, jnp.exp(root), requested)
    lowest = energy[0] / time[0]
    capped = jnp.where(feasible, cap, lowest)
    power = jnp.where(over, capped, jnp.exp(free))
    return Governed(clock, time_weights(clocks, clock), power, lowest, feasible)


def time_weights(clocks: Float[Array, " k"], clock: Array) -> Float[Array, " k"]:
    """Weights of the table's clocks for a time at `clock` (Hz): linear in 1/f between
    them, beyond them as in the interval next to it."""
    before, share = _interval(-1 / clocks, -1 / clock)
    place = jnp.arange(len(clocks)) - before
    return jnp.where(place == 0, 1 - share, jnp.where(place == 1, share, 0.0))


def power_at(
    clocks: Float[Array, " k"], power: Float[Array, " k"], clock: Array
) -> Array:
    """Power (W) at `clock` (Hz): ln P is linear in ln f."""
    before, share = _interval(jnp.log(clocks), jnp.log(clock))
    low, high = jnp.log(power[before]), jnp.log(power[before + 1])
    return jnp.exp(low + share * (high - low))


def _interval(knots: Float[Array, " k"], x: Array) -> tuple[Array, Array]:
    """(index of the knot before `x`, share of the interval behind it)."""
    place = jnp.searchsorted(knots, x, method="compare_all")  # compiled without a loop
    before = jnp.clip(place - 1, 0, len(knots) - 2)
    return before, (x - knots[before]) / (knots[before + 1] - knots[before])
