"""Power limits: the highest clock whose mean power stays under the cap.

The sustained clock of a phase is the highest f <= request with
P(f) <= `power_cap` x `cap_fraction` (power held / limit set, per GPU; 1.004 on an
A100-PCIe, from throttled passes of EnergAIzer). One clock per phase: the limiter is far
slower than a kernel. If the lowest clock is over the cap it is returned with `feasible`
false. There are two solvers, both by secants in ln P over x = ln f, with leakage and
temperature at each clock.
"""

from collections.abc import Callable
from typing import Final

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

_STEPS: Final = 16
"""Most steps of `capped_clock`: halvings alone would leave 1e-5 of the bracket."""
_SECANTS: Final = 6
"""Evaluations of `secant_clock`: four to find the clock, two for the slopes there."""
_NUDGE: Final = 1e-3
"""Step in ln f for the slopes."""


def capped_clock(
    power: Callable[[Float[Array, "*p"]], Float[Array, "*p"]],
    requested: Float[Array, "*p"],
    lowest: Float[Array, "*p"],
    cap: Float[Array, "*p"],
    differentiable: bool = True,
) -> tuple[Float[Array, "*p"], Bool[Array, "*p"]]:
    """(clock, feasible): highest clock up to `requested` (Hz) under the `cap` (W).

    `power` (W) grows with the clock and acts elementwise. Secant steps in ln P over
    ln f inside a bracket, only while some element is over its cap; the derivative is
    implicit (that of the root of P(f) = cap), and left out if not `differentiable`,
    which saves a third of the tracing. Where even `lowest` is over the cap it is
    returned, infeasible.
    """
    root, over, feasible = _search(power, requested, lowest, cap)
    if not differentiable:
        return root, feasible

    def residual(f: Array) -> Array:
        bound = jnp.where(feasible, power(f) - cap, f - lowest)
        return jnp.where(over, bound, f - requested)

    def tangent_solve(linear: Callable[[Array], Array], y: Array) -> Array:
        return y / linear(jnp.ones_like(y))  # each power depends on its own clock only

    return lax.custom_root(residual, root, lambda _, f: f, tangent_solve), feasible


def _search(
    power: Callable[[Array], Array], requested: Array, lowest: Array, cap: Array
) -> tuple[Array, Array, Array]:
    """(root, over the cap at the requested clock, feasible), without a gradient."""
    requested, lowest, cap = map(lax.stop_gradient, (requested, lowest, cap))
    top, bottom = jnp.log(requested), jnp.log(lowest)
    tolerance = 1e-10 if requested.dtype == jnp.float64 else 1e-5

    def unfinished(state):
        step, *_, error, _ = state
        return (step == 0) | ((step < _STEPS) & jnp.any(jnp.abs(error) > tolerance))

    def refine(state):
        """One evaluation at the current guess x = ln f, then the next guess."""
        step, low, high, x, last_x, last_error, _, over = state
        error = jnp.log(lax.stop_gradient(power(jnp.exp(x))) / cap)
        over = jnp.where(step == 0, error > 0, over)
        low = jnp.where(error <= 0, jnp.maximum(low, x), low)
        high = jnp.where(error > 0, jnp.minimum(high, x), high)
        slope = (error - last_error) / jnp.where(x == last_x, 1.0, x - last_x)
        slope = jnp.where(step > 0, slope, 2.0)
        rising = slope > 1e-5
        guess = x - error / jnp.where(rising, slope, 1.0)
        slow = (step > 0) & (jnp.abs(error) > 0.7 * jnp.abs(last_error))
        inside = rising & ~slow & (guess >= low) & (guess <= high)
        # a root that seems to lie below the lowest clock: see whether that one will do
        beyond = rising & (guess < bottom) & (low <= bottom)
        otherwise = jnp.where(beyond, bottom, 0.5 * (low + high))
        guess = jnp.where(inside, guess, otherwise)
        # at the lowest clock, or under the cap at the requested one: nothing to search
        done = ~over | ((x <= bottom) & (error > 0)) | (jnp.abs(error) <= tolerance)
        return (
            step + 1,
            low,
            high,
            jnp.where(done, x, guess),
            jnp.where(done, last_x, x),
            jnp.where(done, last_error, error),
            jnp.where(done, 0.0, error),
            over,
        )

    zero = jnp.zeros_like(top)
    start = (jnp.zeros((), jnp.int32), bottom, top, top, top, zero, zero + 1, zero > 0)
    _, low, _, x, _, _, error, over = lax.while_loop(unfinished, refine, start)
    feasible = ~over | (low > bottom) | ((error == 0) & (x > bottom))
    found = jnp.exp(jnp.where(error == 0, x, low))  # else the best clock under the cap
    held = jnp.where(feasible, found, lowest)
    return jnp.where(over, held, requested), over, feasible


def secant_clock(
    log_run: Callable[[Float[Array, " p"]], Float[Array, "2 p"]],
    top: Float[Array, " p"],
    lowest: Float[Array, " p"],
    cap: Float[Array, " p"],
) -> tuple[Float[Array, " p"], Float[Array, "2 p"]]:
    """(x, slopes): ln of the highest clock up to `top` whose power keeps `cap`, by a
    fixed number of secant steps, and d(ln time, ln power)/dx there.

    `log_run` gives (ln time, ln power) at ln clocks; `top`, `lowest`, `cap` are
    logarithms too. Four evaluations from the requested clock on give x, one there and
    one at x - 1e-3 give the slopes of ln t and ln P. Time and power are those at x,
    with the implicit derivative (|x: at a fixed clock; where lowest < x < request)

        d ln t = d ln t|x + (d ln t/dx) dx      dx = -(d ln P|x - d ln cap)/(d ln P/dx)

    No loop waits for the data, so that one program serves all rows and forward mode
    stays cheap. `capped_clock` agrees within 3e-4 in ln time on 512 H200 rows.
    """

    def step(state, last):
        x, old_x, old = state
        values = log_run(x)
        error = values[1] - cap
        slope = (error - (old[1] - cap)) / jnp.where(x == old_x, 1.0, x - old_x)
        slope = jnp.where((x != old_x) & (slope > 0.2), slope, 1.5)
        guess = jnp.clip(x - error / slope, lowest, top)
        target = jnp.where(last, x - _NUDGE, guess)
        return (target, x, values), (x, values)

    start = (top, top, jnp.zeros((2, *top.shape), top.dtype))
    last = jnp.arange(_SECANTS) == _SECANTS - 2
    _, (clocks, values) = lax.scan(step, start, last)
    return clocks[-2], (values[-2] - values[-1]) / _NUDGE
