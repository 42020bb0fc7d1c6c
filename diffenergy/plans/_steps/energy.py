"""Energy of training steps: of all GPUs, and where along the pipeline it goes."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...records import Record
from .compose import StepTime
from .steps import AT, PARTS, Steps, of_gpus, of_parts


class StepEnergy(Record):
    """Energy of steps, J of all GPUs, and power, W of a GPU of each kind."""

    energy: Float[Array, "*r"]
    stage_power: Float[Array, "*r s"]
    busy: Float[Array, "*r s"]
    """Share of the step in which a GPU of each kind runs kernels or exchanges."""
    calls: Float[Array, "*r k p"]
    """How often a step runs each part (`PARTS`) of a virtual stage."""


def step_energy(
    times: Float[Array, " n"],
    dynamic: Float[Array, " n"],
    static: Float[Array, " n"],
    found: StepTime,
    steps: Steps,
) -> StepEnergy:
    """Energy of steps: what kernels draw beyond static power, however long they wait,
    and static power all along:

        E = sum of GPUs (E_dynamic + P_static T)

    Args:
        times: s of the phases.
        dynamic: J of the phases beyond static power.
        static: W of idling and leakage in the phases.
        found: time of the steps.
        steps: the steps.
    """
    calls = _calls(steps)
    own = jnp.sum(calls * of_parts(dynamic, steps), axis=-1)
    spent = calls * of_parts(times, steps)
    still = jnp.sum(spent * of_parts(static, steps), axis=-1)
    drawn, total = of_gpus(own, steps), of_gpus(jnp.sum(spent, axis=-1), steps)
    there, still = steps.count > 0, of_gpus(still, steps)
    waiting = jnp.where(there, still / jnp.where(there, total, 1.0), 0.0)
    power = drawn / found.time[..., None] + waiting
    work = steps.batches[..., None] * (found.forward + found.backward)
    busy = jnp.minimum((work + found.optimizer) / found.time[..., None], 1.0)
    energy = steps.abreast * found.time * jnp.sum(steps.count * power, axis=-1)
    return StepEnergy(energy, power, busy, calls)


def _calls(steps: Steps) -> Float[Array, "*r k p"]:
    """How often a step runs each part."""
    ones = jnp.ones_like(steps.far)
    m = steps.batches[..., None]
    gathers = jnp.maximum(steps.gathers[..., None] * m, 1.0)
    reduces = jnp.where(steps.reduces[..., None] > 0, m, 1.0)
    ones = ones.at[..., AT["gather"]].multiply(gathers)
    ones = ones.at[..., AT["reduce"]].multiply(reduces)
    return ones.at[..., AT["send"]].multiply(m * jnp.sum(steps.ways, axis=-1))


def dynamic_joules(
    found: Float[np.ndarray, "*r k p"], steps: Steps
) -> tuple[
    Float[np.ndarray, "*r k 2"], Float[np.ndarray, "*r k"], Float[np.ndarray, "*r k"]
]:
    """J of each kind of virtual stages from those of its parts (`of_parts`): of a
    micro-batch (forward, backward), of what replicas exchange once a step, of the
    optimizer."""
    part = {name: found[..., i] for i, name in enumerate(PARTS)}
    m, gathers = float(steps.batches), float(steps.gathers)
    ways = []
    for name in ("forward", "backward"):
        axes = (name, *(f"{name}_{axis}" for axis in ("tp", "cp", "ep")))
        there = np.asarray(steps.phase)[..., PARTS.index(name)] >= 0
        sent = part["send"] * there
        ways.append(sum(part[x] for x in axes) / m + sent)
    reduces = float(steps.reduces)
    ways[0] = ways[0] + min(gathers, 1.0) * part["gather"]
    ways[1] = ways[1] + max(gathers - 1.0, 0.0) * part["gather"]
    ways[1] = ways[1] + reduces * part["reduce"]
    once = (1 - min(gathers, 1.0)) * part["gather"] + (1 - reduces) * part["reduce"]
    return np.stack(ways, axis=-1), once, part["optimizer"]
