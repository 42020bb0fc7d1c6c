"""Every non-smooth step of the model and its backward rule.

| step | forward | backward |
|---|---|---|
| tiles, steps, rounds, CTAs, splits (`ceil`, `floor`) | exact | slope 1 |
| KV blocks of attention (`with_slope_of`) | exact sum | slope of the closed form |
| overlap (`pnorm`), cache misses (`miss`), excess | smooth | true |
| V(f), temperature | smooth | true |
| choice among candidates (`choice_weights`) | softmax of ln t | true |
| residuals of fits (`robust`) | pseudo-Huber | true |
| governor, `estimate` | root | implicit |
| governor, fits | four secant steps | implicit |
| max and min of geometry: `min(tile, m)`, `max(x, 1)` | exact | one-sided |
| look-ups: dtype, kinds, menus, alignment, host arithmetic | exact | none: enumerate |
| replays, samples of a sensor, blocks of a series | exact | none: facts |

One-sided is piecewise true; look-ups are those of alignment, s <= steps, head sizes and
the largest block count, too; facts are those of a campaign.

Straight-through for waves *and* residency matters: with a zero slope through waves,
tile searches end worse than random points (experiment of this project on the CLBlast
tile space).

`with relaxed():` traces the model with `ceil` and `floor` as identity and exact sums
replaced by their closed forms; the value then belongs to the gradient, so that finite
differences can check it and a search can descend. The steps of the table's last two
rows stay as they are. A relaxed result is not a prediction: legalise the choice and
evaluate again.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike
from jaxtyping import Float

_relaxed: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "relaxed", default=False
)


@contextlib.contextmanager
def relaxed(on: bool = True) -> Iterator[None]:
    """Trace with real-valued `ceil`, `floor` and sums instead of rounded ones."""
    token = _relaxed.set(on)
    try:
        yield
    finally:
        _relaxed.reset(token)


def is_relaxed() -> bool:
    """Whether tracing happens inside `relaxed()`."""
    return _relaxed.get()


def with_slope_of(exact: Array, smooth: Array) -> Array:
    """Value of `exact`, gradient of `smooth` (both are `smooth` inside `relaxed()`)."""
    if is_relaxed():
        return smooth
    return smooth + lax.stop_gradient(exact - smooth)


def ceil(x: Array) -> Array:
    """Ceiling with slope 1."""
    return with_slope_of(jnp.ceil(x), x)


def floor(x: Array) -> Array:
    """Floor with slope 1."""
    return with_slope_of(jnp.floor(x), x)


def at_least_one(x: Array) -> Array:
    """max(x, 1): part-filled tiles still take a whole one."""
    return jnp.maximum(x, 1.0)


_TINY = 1e-20
"""Added to ratios so that 0 ** p has a finite gradient; invisible in f32."""


def _power(x: Array, exponent: ArrayLike) -> Array:
    """x^exponent of positive x; exp and log are vectorised on CPUs, pow is not."""
    if isinstance(exponent, int):
        return jnp.power(x, exponent)
    return _real_power(x, jnp.asarray(exponent, x.dtype))


@jax.custom_jvp
def _real_power(x: Array, exponent: Array) -> Array:
    return jnp.exp(exponent * jnp.log(x))


@functools.partial(_real_power.defjvp, symbolic_zeros=True)
def _slope_of_power(
    primals: tuple[Array, Array], tangents: tuple[Any, Any]
) -> tuple[Array, Array]:
    """The slope is p x^(p-1), not p x^p / x, whose own slope divides by x^2: of a small
    x that is 0 in f32."""
    x, exponent = primals
    value = _real_power(x, exponent)
    factors = (exponent * _real_power(x, exponent - 1), value * jnp.log(x))
    parts = [
        factor * tangent
        for factor, tangent in zip(factors, tangents, strict=True)
        if not isinstance(tangent, SymbolicZero)
    ]
    return value, functools.reduce(jnp.add, parts, jnp.zeros_like(value))


def pnorm(values: Sequence[Array], sharpness: ArrayLike) -> Array:
    """(sum x^p)^(1/p) of non-negative arrays: -> max as `sharpness` p -> infinity.

    Normalised by the largest value (under stop-gradient; the result does not depend on
    it), so the overlap does not depend on the scale: plain log-sum-exp is 69 % off for
    microsecond kernels. A Python integer exponent costs no logarithm.
    """
    top = values[0]
    for value in values[1:]:
        top = jnp.maximum(top, value)
    scale = lax.stop_gradient(top) + 1e-30
    unit = jnp.where(scale > 1e-30, scale, 1.0)  # all are 0: derivatives divide by it
    powers = [_power(value / unit + _TINY, sharpness) for value in values]
    total = functools.reduce(jnp.add, powers)
    total = jnp.maximum(total, 0.5)  # below 1 only where all are 0: powers underflow
    return scale * jnp.exp(jnp.log(total) / sharpness)


def miss(distance: Array, capacity: Array, sharpness: ArrayLike) -> Array:
    """Share of accesses that miss a cache at reuse `distance` (B), 0-1.

    z^p / (1 + z^p) with z = distance / usable `capacity` (B).
    """
    return jax.nn.sigmoid(sharpness * jnp.log(distance / capacity + 1e-9))


def softplus(x: Array, width: ArrayLike = 1.0) -> Array:
    """max(x, 0), rounded over `width`."""
    return jnp.asarray(width * jax.nn.softplus(x / width))


HUBER: Final = 2.0
"""Residuals beyond this many sigma count linearly in fits."""


def robust(residual: Array) -> Array:
    """Pseudo-Huber: its square is quadratic below `HUBER` and linear above."""
    return residual * jnp.sqrt(2 / (1 + jnp.sqrt(1 + (residual / HUBER) ** 2)))


def choice_weights(
    time: Float[Array, "*k c"], choice: Float[Array, "*k c"], tau: Float[Array, "*k c"]
) -> Float[Array, "*k c"]:
    """Weights of candidates (last axis): softmax(-ln t/tau + choice).

    A library picks a tile among several. Candidates are evaluated side by side and
    mixed; time, work and energy are sums with the same weights, so the mixture never
    undercuts its best candidate, unlike a soft minimum. Illegal candidates carry a
    `time` x 1000. The form is fitted by this project.
    """
    return jax.nn.softmax(-jnp.log(time) / tau + choice, axis=-1)


def floor_sum(n: Array, slope: Array, offset: Array, divisor: Array) -> Array:
    """sum_{i=0}^{n-1} floor((slope i + offset)/divisor) of non-negative integers.

    Euclid's algorithm on (slope, divisor), 24 steps (enough up to 10^5). All arguments
    are integers held as floats; `n` may be 0. No gradient: pair with `with_slope_of`.
    """

    def step(_, state):
        total, n, a, b, m = state
        total = total + n * (n - 1) / 2 * jnp.floor(a / m) + n * jnp.floor(b / m)
        a, b = jnp.mod(a, m), jnp.mod(b, m)
        top = a * n + b
        live = top >= m  # lattice points left: count them along the other axis
        return (
            total,
            jnp.where(live, jnp.floor(top / m), 0.0),
            jnp.where(live, m, 0.0),
            jnp.where(live, jnp.mod(top, m), 0.0),
            jnp.where(live, a, 1.0),
        )

    shape = jnp.broadcast_shapes(*map(jnp.shape, (n, slope, offset, divisor)))
    start = (jnp.zeros_like(n), n, slope, offset, divisor)
    start = tuple(lax.stop_gradient(jnp.broadcast_to(x, shape)) for x in start)
    return lax.fori_loop(0, 24, step, start)[0]
