"""From a training task to the `Problem` of its clocks: one call of the estimator."""

import functools

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ...estimator import Estimate, StepEstimate, Task, from_phases, least_power, too_low
from ...hardware import GpuSpec
from ...plans import FORWARD_PASS, Plan, dynamic_joules
from ...results import Infeasible
from .problem import Problem

_LOWERED = 1 - 1e-6
"""Clock after the governor / clock asked for, below which the power limit acted."""


@functools.cache
def _composed():
    return jax.jit(jax.vmap(from_phases, (0, None, None)))


def problem_of(task: Task, gpu: GpuSpec | None = None) -> Problem:
    """The pipeline of a task at every one of its settings, which differ by clock and
    begin with the usual one; `gpu`: its numbers where they are others than the task's.

    Raises `Infeasible` if no clock keeps the power limit.
    """
    work, gpu = task.step, task.gpu if gpu is None else gpu
    assert work is not None
    clocks = np.array([x.sm_clock for x in task.settings])
    estimate = _kept(task.estimates(gpu), clocks)
    least = least_power(jax.tree.map(lambda x: x[0], estimate))
    if least is not None:
        raise Infeasible(too_low(least, task.card))
    found = jax.device_get(_composed()(estimate, work.steps, gpu.corrections))
    return _problem(task, found, clocks)


def _kept(estimate: Estimate, clocks: Float[np.ndarray, " c"]) -> Estimate:
    """Phases at every clock; where the power limit lowers it, exactly as at the first
    one, which it lowers as far."""
    found = jax.tree.map(lambda x: np.asarray(x)[: len(clocks)], estimate)
    limited = found.phases.sm_clock < _LOWERED * clocks[:, None]

    def alike(x: np.ndarray) -> np.ndarray:
        mask = limited.reshape(limited.shape + (1,) * (x.ndim - 2))
        return np.where(mask, x[:1], x)

    phases = jax.tree.map(alike, found.phases)
    return eqx.tree_at(lambda e: e.phases, found, phases)


def _problem(
    task: Task, found: StepEstimate, clocks: Float[np.ndarray, " c"]
) -> Problem:
    work = task.step
    assert work is not None and work.placed.program is not None
    order, steps, times = work.placed.program, work.steps, found.times
    micro, p = times.micro, found.phases.phases
    length = np.asarray(micro.work) + np.asarray(micro.exposed).sum(axis=-1)
    beyond = np.asarray(p.energy - p.static_energy)
    rows = np.asarray(steps.phase)
    parts = np.where(rows >= 0, beyond[:, np.maximum(rows, 0)], 0.0)
    each, once, update = dynamic_joules(parts, steps)
    batches = order.batches
    members = np.asarray(steps.members)
    whole = batches * each.sum(axis=-1) + once + update
    step = np.asarray(times.time)
    static = np.asarray(found.stages.stage_power) - whole @ members.T / step[:, None]

    of_place = np.array(order.kinds).ravel()
    program, stages = order.program, len(order.kinds[0])
    halves = order.schedule == "zb-h1"
    ways = 3 if halves else 2
    place, kind = (x.ravel() for x in np.indices((len(of_place), ways)))
    share = np.where(halves & (kind != FORWARD_PASS), 0.5, 1.0)
    column = (slice(None), of_place[place], np.minimum(kind, 1))
    kinds = np.asarray(work.placed.kinds)
    late, updating = np.asarray(times.late)[0], np.asarray(times.optimizer)[0]
    after = float(late[kinds].max() + updating[kinds].max())
    return Problem(
        program=program,
        type=ways * program.place + program.kind,
        stage=place % stages,
        kind=kind,
        clocks=clocks,
        time=length[column] * share,
        dynamic=each[column] * share,
        static=static[:, kinds],
        wait=static[0, kinds],
        fixed=((once + update)[0] @ members.T)[kinds],
        after=after,
        stretch=float(step[0] / (np.asarray(times.pipeline)[0] + after)),
        abreast=float(steps.abreast),
    )


def hosts(plan: Plan, size: int) -> Float[np.ndarray, "h s"]:
    """GPUs of each stage in hosts of `size`, one row for hosts that are alike: GPUs are
    numbered stage by stage (`plans._machine.exchange`)."""
    abreast = plan.tp * plan.cp * plan.dp
    stage = np.arange(plan.gpus) // abreast
    host = np.arange(plan.gpus) // size
    found = np.zeros((int(host.max()) + 1, plan.pp))
    np.add.at(found, (host, stage), 1.0)
    return np.unique(found, axis=0)
