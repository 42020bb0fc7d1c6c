"""Gradient descent on continuous clocks through the model.

An augmented Lagrangian keeps the limits, and several starts descend together, in one
compiled loop. `solve` rounds what they find to legal clocks.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .. import search
from ..compiling import call_compiled
from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint
from ..physics import phase_time
from ..workload import Workload
from ._costs import applied, row_costs
from ._modelled import Modelled
from ._plan import Objective
from ._problem import default_total

_ROUNDS: Final = 20
"""Updates of the multipliers."""
_STEPS: Final = 40
"""Steps of Adam between two updates."""
_RATE: Final = 0.1
"""Step of Adam, in units of the sigmoid's argument; falls by a hundred to the end."""
_STIFFNESS: Final = 30.0
"""Weight of half the square of what a limit is passed by."""
_SPREAD: Final = 1.5
"""Standard deviation of the starts."""


class _Task(NamedTuple):
    """Everything that a descent computes with, as arrays."""

    workload: Workload
    gpu: GpuSpec
    corrections: Corrections
    growth: Float[Array, " kernel"]  # of leakage
    low: Float[Array, " clock"]  # Hz; SM, memory
    high: Float[Array, " clock"]
    locked: Float[Array, ""]  # 1: the memory clock is locked
    member: Float[Array, "kernel stage"]
    host_time: Float[Array, " stage"]
    wait_power: Float[Array, " stage"]
    meter: Float[Array, "2"]  # W, and share of the board's energy, that count
    # limits, as 1 / limit: 0 where there is none
    stage_power: Float[Array, " stage"]  # 1/W
    own_time: Float[Array, " kernel"]  # 1/s
    time: Float[Array, ""]  # 1/s
    power: Float[Array, ""]  # 1/W
    default: Float[Array, "2"]  # energy, time
    powers: Float[Array, "2"]  # of energy and time, in the objective


def descend(
    modelled: Modelled,
    growth: Float[np.ndarray, " stage"],
    objective: Objective,
    local: bool = False,
    starts: int = 8,
    seed: int = 0,
) -> Float[np.ndarray, "start kernel 2"]:
    """SM and memory clock (Hz) of every kernel, from every start.

    Arguments:

    - `growth`: how far leakage has grown in each stage.
    - `local`: every kernel keeps the limit of slowdown by itself.
    - `starts`, `seed`: how many points to start from, and which.
    """
    task = _task(modelled, growth, objective, local)
    key = jax.random.key(seed)
    start = _SPREAD * jax.random.normal(key, (starts, len(modelled.labels), 2))
    start = start.at[0].set(2.0)  # near the highest clocks
    return np.asarray(call_compiled(_descents, (start, task)))


def _descents(
    starts: Float[Array, "start kernel 2"], task: _Task
) -> Float[Array, "start kernel 2"]:
    """Clocks that each start comes to."""
    return jax.vmap(_descent, in_axes=(0, None))(starts, task)


def _descent(start: Float[Array, "kernel 2"], task: _Task) -> Float[Array, "kernel 2"]:
    """Clocks that one start comes to."""

    def score(x: Array) -> tuple[Array, Array]:
        return _score(_clocks(x, task), task)

    def update(state: search.State, rates: Array) -> tuple[search.State, None]:
        state, _ = search.descend(score, state, rates, _STIFFNESS)
        _, excess = score(state.x)
        multipliers = search.raised(state.multipliers, excess, _STIFFNESS)
        return state._replace(multipliers=multipliers), None

    _, limits = score(start)
    begun = search.begin(start, jnp.zeros_like(limits))
    done = jnp.arange(_ROUNDS * _STEPS) / (_ROUNDS * _STEPS)
    rates = _RATE * 0.01 ** done.reshape(_ROUNDS, _STEPS)
    state, _ = lax.scan(update, begun, rates)
    return _clocks(state.x, task)


def _clocks(x: Float[Array, "kernel 2"], task: _Task) -> Float[Array, "kernel 2"]:
    """Clocks within what the GPU allows, Hz."""
    return task.low + (task.high - task.low) * jax.nn.sigmoid(x)


def _score(clocks: Float[Array, "kernel 2"], task: _Task) -> tuple[Array, Array]:
    """(ln of what is to be small, how far each limit is passed as a share of it)."""
    sm, mem = clocks.T
    # `row_costs` uses neither power cap nor temperature
    ones = jnp.ones_like(sm)
    point = OperatingPoint(sm, mem, ones, ones, task.locked * ones)
    costs = row_costs(task.workload, task.gpu, point, task.corrections)
    base, slope = task.meter
    static = costs.idle + costs.leakage * task.growth
    spent = slope * (costs.work + static * costs.time) + base * costs.time
    busy = jnp.asarray(costs.time) @ task.member
    spent = spent @ task.member
    time = phase_time(busy, task.host_time)
    spent = spent + task.wait_power * (time - busy)
    energy, total = jnp.sum(spent), jnp.sum(time)
    changes = jnp.log(jnp.stack([energy, total]) / task.default)
    excess = jnp.concatenate(
        [
            spent / time * task.stage_power - 1,
            costs.time * task.own_time - 1,
            jnp.stack([total * task.time - 1, energy / total * task.power - 1]),
        ]
    )
    return changes @ task.powers, excess


def _task(
    modelled: Modelled,
    growth: Float[np.ndarray, " stage"],
    objective: Objective,
    local: bool,
) -> _Task:
    problem = modelled.problem(growth)
    clocks = np.stack(applied(modelled.card, problem.settings))
    default = default_total(problem)
    slower = 1 + objective.max_slowdown / 100
    own = problem.count * problem.default_time * slower
    arrays = (
        growth[problem.stage],
        clocks.min(axis=1),
        clocks.max(axis=1),
        float(np.isfinite(problem.settings[:, 1]).any()),
        np.eye(len(problem.stages))[problem.stage],
        problem.host_time,
        problem.wait_power,
        np.array(modelled.meter),
        1 / problem.power_cap,
        local / own,
        (not local) / objective.most_time(default),
        1 / objective.power_cap,
        np.array([default.energy, default.time]),
        np.array(objective.powers, float),
    )
    return _Task(
        modelled.workload, modelled.card.spec, modelled.corrections,
        *map(jnp.asarray, arrays),
    )  # fmt: skip
