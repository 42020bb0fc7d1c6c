"""Gradient descent of many starts at once, limits by an augmented Lagrangian.

Axes live on a sigmoid between the logarithms of their bounds. Waves, CTAs and resident
CTAs are rounded and pass their gradient straight through (`smooth`): a descent of the
relaxed model ends where rounding costs most. Nothing of it is reported: `legal` makes
exact designs of it.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ... import search
from ...hardware import FIELDS
from ...search import State
from .._space.task import Task, measured, values_at

STEPS: Final = 10
"""Steps of Adam between two updates of the multipliers: one compiled program."""
STIFFNESS: Final = 30.0
"""Weight of half the square of what a limit is passed by."""
_DECAY: Final = (0.8, 0.95)
"""Means of slopes and of their squares that Adam keeps; short runs want short ones."""


class Aim(NamedTuple):
    """Objective and limits of one start (a `Target` as arrays)."""

    powers: Float[Array, " metric"]
    inverse: Float[Array, " metric"]  # 1 / limit, 0 where there is none
    custom: Float[Array, ""]  # 1 / scale of the caller's own objective, else 0
    free: Float[Array, " axis"]  # 1 for axes that move, 0 for those that stay


class Slopes(NamedTuple):
    """d Lagrangian / d ln at the last step: of the axes and of every number of the
    GPU."""

    axes: Float[Array, " axis"]
    fields: Float[Array, " field"]


def begin(
    z: Float[np.ndarray, "start axis"], multipliers: Float[np.ndarray, "start limit"]
) -> State:
    """States of starts at `z`, with the multipliers known so far: x is the axes, and
    factors on every number of the GPU (in logarithms), which stay."""
    nudges = jnp.zeros((len(z), len(FIELDS)))
    return jax.vmap(search.begin)((jnp.asarray(z), nudges), jnp.asarray(multipliers))


def advance(
    task: Task,
    states: State,
    aims: Aim,
    rates: Float[Array, " step"],
    stiffness: Float[Array, " start"],
) -> tuple[State, Slopes]:
    """`STEPS` steps of every start (leading axis), then an update of the multipliers.

    `rates`: step sizes of Adam, in units of the sigmoid's argument; all 0: stay, for
    the slopes at a design.
    """
    return jax.vmap(_advance, in_axes=(None, 0, 0, None, 0))(
        task, states, aims, rates, stiffness
    )


def _advance(
    task: Task, state: State, aim: Aim, rates: Array, stiffness: Array
) -> tuple[State, Slopes]:
    def score(x: tuple[Array, Array]) -> tuple[Array, Array]:
        z, nudge = x
        return _score(task, values_at(task, z), nudge, aim)

    state, last = search.descend(
        score, state, rates, stiffness, _DECAY, (aim.free, 0.0)
    )
    multipliers = search.raised(state.multipliers, last.excess, stiffness)
    share = jax.nn.sigmoid(state.x[0])
    per_log = jnp.log(task.high / task.low) * share * (1 - share)
    of_z, of_field = last.slope
    slopes = Slopes(of_z / jnp.maximum(per_log, 1e-12), of_field)
    return state._replace(multipliers=multipliers), slopes


def _score(task: Task, values: Array, nudge: Array, aim: Aim) -> tuple[Array, Array]:
    """(ln of what is to be small, by how much each limit is passed)."""
    design = measured(task, values, nudge, exact=False)
    loss = aim.powers @ jnp.log(design.metrics) + aim.custom * design.custom
    passed = design.metrics * aim.inverse - 1
    return loss, jnp.concatenate([passed, design.crowding])


def start_points(
    base: Float[np.ndarray, " axis"], starts: int, rng: np.random.Generator
) -> Float[np.ndarray, "start axis"]:
    """Where the descents begin: at the base, then spread evenly over the box (one start
    in each of `starts` slices of every axis)."""
    if starts == 1:
        return base[None]
    cut = np.stack([rng.permutation(starts - 1) for _ in base], axis=-1)
    share = (cut + rng.uniform(size=cut.shape)) / (starts - 1)
    spread = np.clip(share, 0.03, 0.97)
    return np.concatenate([base[None], np.log(spread / (1 - spread))])
