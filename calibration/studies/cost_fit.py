"""Fit of the constants of `physics.links` to measured times of collectives.

Maximum posterior by gradient: the log errors cost a pseudo-Huber loss, the constants a
normal prior in their logs. The choice among candidates is spread at first and sharpens
while the fit runs, so that candidates find their range of sizes; several starts, the
best one counts.
"""

import functools
from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from diffenergy.hardware import LinkCosts
from diffenergy.physics import _links as links
from diffenergy.physics._links import SLOTS
from diffenergy.records import Record, as_float, as_index

Constants = dict[str, Any]
"""Values by field of `LinkCosts` (without `switch`), in the space of the fit."""

PRIOR: Final[dict[str, tuple[tuple[float, ...], float]]] = {
    "floor": ((4e-6, 4e-6, 8e-6, 10e-6), 0.8),
    "step": ((1e-6, 1e-6, 3e-6, 3e-6), 1.0),
    "fill": ((3e-4, 3e-4, 6e-4, 6e-4), 1.0),
    "relative": ((0.4, 0.8, 1.0, 1.3), 0.4),
    "bias": ((0.0, 0.0, 0.0, 0.0), 0.4),
    "bias_ranks": ((0.0, 0.0, 0.0, 0.0), 0.3),
    "share": ((0.6, 0.6, 0.6), 0.8),
    "narrow": ((0.05,), 0.8),
}
"""Centre and spread (of the log, but for the biases) of each constant: guesses from
NCCL's tuner (LL sends half flags, LL128 one part in sixteen; hops of a microsecond)."""
_PLAIN: Final = ("bias", "bias_ranks")
_REFERENCE: Final = 2
"""Candidate whose rate and bias the others are relative to."""
_SIGMA: Final = 0.03
"""Scatter of ln t, from versions of a library and repeated runs."""
_OUTLIER: Final = 0.1
"""Error in ln t from which the loss is linear."""
_STEPS: Final = 2000
_STARTS: Final = 4
_FIRST_TAU: Final = 0.5


class Points(Record):
    """Measured collectives; `weight` 0 pads."""

    kind: Int[Array, "*b"] = eqx.field(converter=as_index)  # into `links.LINK_KINDS`
    size: Float[Array, "*b"] = eqx.field(converter=as_float)  # B
    ranks: Float[Array, "*b"] = eqx.field(converter=as_float)
    narrow: Float[Array, "*b"] = eqx.field(converter=as_float)
    rate: Float[Array, "*b"] = eqx.field(converter=as_float)  # B/s of a link
    switch: Float[Array, "*b"] = eqx.field(converter=as_float)
    time: Float[Array, "*b"] = eqx.field(converter=as_float)  # s
    weight: Float[Array, "*b"] = eqx.field(converter=as_float)


def stack(sets: Sequence[Points]) -> Points:
    """Sets of points as one batch, padded with copies of weight 0."""
    longest = max(len(points.size) for points in sets)

    def padded(points: Points) -> Points:
        extra = longest - len(points.size)
        filled: Points = jax.tree.map(
            lambda x: jnp.concatenate([x, jnp.repeat(x[:1], extra)]), points
        )
        return eqx.tree_at(
            lambda p: p.weight, filled, filled.weight.at[longest - extra :].set(0.0)
        )

    return jax.tree.map(lambda *x: jnp.stack(x), *(padded(points) for points in sets))


def centre() -> Constants:
    """Prior centres in the space of the fit."""
    return {
        name: jnp.asarray(mid if name in _PLAIN else np.log(mid))
        for name, (mid, _) in PRIOR.items()
    }


def link_costs(constants: Constants, switch: Float[Array, "*b"]) -> LinkCosts:
    """`LinkCosts` at the shape of `switch` (1 where switches reduce)."""
    reference = jnp.arange(SLOTS) == _REFERENCE
    values = {
        name: x if name in _PLAIN else jnp.exp(x) for name, x in constants.items()
    }
    values["relative"] = jnp.where(reference, 1.0, values["relative"])
    values["bias"] = jnp.where(reference, 0.0, values["bias"])
    values["bias_ranks"] = jnp.where(reference, 0.0, values["bias_ranks"])
    shape = jnp.shape(switch)
    spread = {
        name: jnp.broadcast_to(x, (*shape, x.shape[-1])) for name, x in values.items()
    }
    spread["narrow"] = spread["narrow"][..., 0]
    return LinkCosts(**spread, switch=switch)


def predicted(constants: Constants, points: Points, tau: Any = links.LINK_TAU) -> Array:
    """Time of each point under `constants`, s."""
    candidates = links.link_candidates(
        points.kind,
        points.size,
        points.ranks,
        points.narrow,
        points.rate,
        link_costs(constants, points.switch),
    )
    return links.expected_time(candidates, tau)


def loss(constants: Constants, points: Points, tau: Any) -> Array:
    """Negative log posterior."""
    error = jnp.log(predicted(constants, points, tau) / points.time)
    robust = _OUTLIER**2 * (jnp.sqrt(1 + (error / _OUTLIER) ** 2) - 1)
    middle = centre()
    prior = sum(
        jnp.sum(((x - middle[name]) / PRIOR[name][1]) ** 2)
        for name, x in constants.items()
    )
    return jnp.sum(points.weight * robust) / _SIGMA**2 + 0.5 * prior


@functools.partial(jax.jit, static_argnames=("steps",))
def _descend(start: Constants, points: Points, steps: int) -> tuple[Constants, Array]:
    """Best constants of one set of points from one start, and their loss."""
    rate = optax.cosine_decay_schedule(0.05, steps)
    rule = optax.adam(rate)

    def step(state: tuple, i: Array) -> tuple[tuple, None]:
        constants, memory = state
        part = jnp.minimum(i / (0.6 * steps), 1.0)
        tau = _FIRST_TAU * (links.LINK_TAU / _FIRST_TAU) ** part
        slope = jax.grad(loss)(constants, points, tau)
        change, memory = rule.update(slope, memory)
        return (optax.apply_updates(constants, change), memory), None

    state, _ = jax.lax.scan(step, (start, rule.init(start)), jnp.arange(steps))
    return state[0], loss(state[0], points, links.LINK_TAU)


_all_starts = jax.vmap(_descend, in_axes=(0, None, None))


def fit(points: Points, steps: int = _STEPS, starts: int = _STARTS) -> Constants:
    """Constants of every set of points; leaves have the axis of sets in front.

    `points`: sets on the first axis (`stack`). The same points give the same answer.
    """
    middle = centre()
    keys = jax.random.split(jax.random.key(0), len(middle))
    shaken = {
        name: x
        + 0.5
        * PRIOR[name][1]
        * jax.random.normal(key, (starts, *x.shape)).at[0].set(0.0)
        for key, (name, x) in zip(keys, middle.items(), strict=True)
    }
    ends, losses = jax.jit(
        jax.vmap(lambda p: _all_starts(shaken, p, steps)), static_argnames=()
    )(points)
    best = jnp.argmin(losses, axis=1)
    return {
        name: jnp.take_along_axis(x, best.reshape(-1, *([1] * (x.ndim - 1))), axis=1)[
            :, 0
        ]
        for name, x in ends.items()
    }
