"""The least of a loss within limits: an augmented Lagrangian, descended by Adam.

With c_i(x) what limit i is passed by (at most 0 where it is kept), multipliers m_i and
stiffness k,

    L(x, m) = loss(x) + sum_i (max(m_i + k c_i(x), 0)^2 - m_i^2) / 2k.

Steps of Adam in x take turns with m_i <- max(m_i + k c_i(x), 0); where both come to
rest the conditions of Karush, Kuhn and Tucker hold (Rockafellar, J. Optim. Theory
Appl. 12, 1973; Nocedal and Wright, Numerical Optimization, 2006, section 17.3). A
nonconvex loss wants many starts: all here is for one, and `jax.vmap` makes it many.
"""

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Float, PyTree

Score = Callable[[Any], tuple[Array, Array]]
"""(loss, by how much each limit is passed) at x."""
_DECAY: Final = (0.9, 0.999)


class State(NamedTuple):
    """State of the descent from one start."""

    x: PyTree
    multipliers: Float[Array, "*batch limit"]
    memory: optax.OptState


class Last(NamedTuple):
    """Gradient and excess where the last step of Adam began."""

    slope: PyTree  # d L / d x
    excess: Float[Array, " limit"]  # by how much each limit is passed


def begin(x: PyTree, multipliers: Float[Array, " limit"]) -> State:
    """State at `x` with the multipliers so far (0 where there are none)."""
    return State(x, multipliers, optax.scale_by_adam().init(x))


def descend(
    score: Score,
    state: State,
    rates: Float[Array, " step"],
    stiffness: Float[Array, ""] | float,
    decay: tuple[float, float] = _DECAY,
    free: PyTree = 1.0,
) -> tuple[State, Last]:
    """Steps of Adam in x; the multipliers stay (`raised` moves them).

    Arguments:

    - `rates`: sizes of the steps; all 0: stay, for the slopes there.
    - `stiffness`: k, the weight of half the square of what a limit is passed by; 0
      leaves the limits out.
    - `decay`: of the means of slopes and of their squares that Adam keeps; short runs
      want short ones.
    - `free`: 1 where x moves, 0 where it stays and its slope alone is wanted; for all,
      or for every leaf of x.
    """
    adam = optax.scale_by_adam(*decay)

    def lagrangian(x: PyTree) -> tuple[Array, Array]:
        loss, excess = score(x)
        pushed = raised(state.multipliers, excess, stiffness)
        spring = jnp.where(stiffness > 0, stiffness, 1.0)
        penalty = jnp.sum(pushed**2 - state.multipliers**2) / (2 * spring)
        return loss + jnp.where(stiffness > 0, penalty, 0.0), excess

    def move(rate: Array, x: Array, change: Array, free: Array | float) -> Array:
        return x - rate * free * jnp.nan_to_num(change)

    def step(carry: tuple[PyTree, Any], rate: Array):
        x, memory = carry
        slope, excess = jax.grad(lagrangian, has_aux=True)(x)
        change, memory = adam.update(slope, memory)
        x = jax.tree.map(functools.partial(move, rate), x, change, free)
        return (x, memory), Last(slope, excess)

    (x, memory), steps = lax.scan(step, (state.x, state.memory), rates)
    last = jax.tree.map(lambda each: each[-1], steps)
    return State(x, state.multipliers, memory), last


def raised(
    multipliers: Float[Array, " limit"],
    excess: Float[Array, " limit"],
    stiffness: Float[Array, ""] | float,
) -> Float[Array, " limit"]:
    """Updated multipliers: max(m + k c, 0)."""
    return jnp.maximum(multipliers + stiffness * excess, 0.0)
