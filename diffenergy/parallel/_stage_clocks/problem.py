"""`Problem`: the instructions of a pipeline with the time and energy of each at every
clock, and what a choice of clocks costs."""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from ...estimator import (
    Estimate,
    StepEstimate,
    Task,
    from_phases,
    least_power,
    step_of,
    too_low,
)
from ...hardware import GpuSpec
from ...plans import (
    FORWARD_PASS,
    Instructions,
    Plan,
    Training,
    dynamic_joules,
    fastest_split,
    instruction_ends,
)
from ...results import Infeasible
from .hulls import pareto

KINDS = ("forward", "backward", "weights")
"""Words for the kinds of instructions, in their order."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """The pipeline of a replica's GPUs, alike within a stage.

    Instructions are of types: a virtual stage and a kind. A GPU of stage s takes

        E_s = sum of its instructions (D + P t) + W_s (T - sum t) + F_s

    J of a step of T s: D dynamic energy and P static power of an instruction of t s at
    its clock, W power while it waits, F all beside the pipeline.
    """

    program: Instructions
    type: Int[np.ndarray, " i"]
    """Type of every instruction."""
    stage: Int[np.ndarray, " t"]
    """Stage of every type."""
    kind: Int[np.ndarray, " t"]
    """Place in `KINDS` of every type."""
    clocks: Float[np.ndarray, " c"]
    """Hz, falling; the first one is the usual."""
    time: Float[np.ndarray, "c t"]  # s
    dynamic: Float[np.ndarray, "c t"]  # J
    static: Float[np.ndarray, "c s"]  # W
    wait: Float[np.ndarray, " s"]  # W
    fixed: Float[np.ndarray, " s"]  # J
    after: float
    """s of a step behind its pipeline."""
    stretch: float
    """Step / (pipeline + `after`)."""
    abreast: float
    """GPUs of a stage."""

    @property
    def energy(self) -> Float[np.ndarray, "c t"]:
        """J of a GPU in one instruction."""
        return self.dynamic + self.static[:, self.stage] * self.time

    @property
    def cost(self) -> Float[np.ndarray, "c t"]:
        """Energy of an instruction beyond that of waiting as long (J of a GPU)."""
        return self.energy - self.wait[self.stage] * self.time

    @functools.cached_property
    def options(self) -> list[Int[np.ndarray, " k"]]:
        """Clocks of every type worth choosing, the fastest first."""
        cost = self.cost
        return [pareto(self.time[:, t], cost[:, t]) for t in range(len(self.stage))]

    @property
    def cheapest(self) -> Int[np.ndarray, " i"]:
        """Every instruction at the clock of least cost."""
        return np.array([rows[-1] for rows in self.options])[self.type]

    @property
    def stage_of(self) -> Int[np.ndarray, " i"]:
        """Stage of every instruction."""
        return self.stage[self.type]

    @property
    def usual(self) -> Int[np.ndarray, " i"]:
        """Every instruction at the usual clock."""
        return np.zeros(len(self.type), int)

    def durations(self, choice: Int[np.ndarray, "*q i"]) -> Float[np.ndarray, "*q i"]:
        """s of every instruction at its clock."""
        return self.time[choice, self.type]

    def pipeline(self, choice: Int[np.ndarray, "*q i"]) -> Float[np.ndarray, "*q"]:
        """s until the last instruction ends."""
        ends = instruction_ends(self.program, self.durations(choice))
        return np.asarray(ends.max(axis=-1))

    def time_of(self, choice: Int[np.ndarray, " i"]) -> float:
        """s of a step that waits for no others."""
        return self.step_time(float(self.pipeline(choice)))

    def step_time(self, pipeline: float) -> float:
        """s of a step by that of its pipeline."""
        return (pipeline + self.after) * self.stretch

    def deadline(self, step_time: float) -> float:
        """s of the pipeline in a step."""
        return step_time / self.stretch - self.after

    def stage_energy(
        self, choice: Int[np.ndarray, " i"], step_time: float
    ) -> Float[np.ndarray, " s"]:
        """J of a GPU of every stage in a step."""
        over = self.cost[choice, self.type]
        total = np.bincount(self.stage_of, over, len(self.wait))
        return total + self.fixed + self.wait * step_time

    def step_energy(self, choice: Int[np.ndarray, " i"], step_time: float) -> float:
        """J of all GPUs in a step."""
        return self.abreast * float(self.stage_energy(choice, step_time).sum())

    def slowed(self, stage: int, share: float) -> "Problem":
        """With GPUs of a stage that take `share` longer, at the same work."""
        factor = np.where(self.stage == stage, 1 + share, 1.0)
        return dataclasses.replace(self, time=self.time * factor)


def latest(
    program: Instructions, durations: Float[np.ndarray, " i"], deadline: float
) -> Float[np.ndarray, " i"]:
    """When each instruction has to end, s, for all to be done at `deadline`."""
    ends = [deadline] * (len(durations) + 1)
    rows = list(zip(program.before.tolist(), program.needs.tolist(), strict=True))
    lasting = durations.tolist()
    for i in range(len(rows) - 1, -1, -1):
        start = ends[i] - lasting[i]
        for other in rows[i]:
            if other >= 0:
                ends[other] = min(ends[other], start)
    return np.array(ends[:-1])


# --- From a training task to the `Problem` of its clocks: one call of the estimator.

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
    estimate = _limited_alike(task.estimates(gpu), clocks)
    least = least_power(jax.tree.map(lambda x: x[0], estimate))
    if least is not None:
        raise Infeasible(too_low(least, task.card))
    estimates = jax.device_get(_composed()(estimate, work.steps, gpu.corrections))
    return _problem(task, estimates, clocks)


def _limited_alike(estimate: Estimate, clocks: Float[np.ndarray, " c"]) -> Estimate:
    """Phases at every clock; where the power limit lowers it, exactly as at the first
    one, which it lowers as far."""
    estimates = jax.tree.map(lambda x: np.asarray(x)[: len(clocks)], estimate)
    limited = estimates.phases.sm_clock < _LOWERED * clocks[:, None]

    def alike(x: np.ndarray) -> np.ndarray:
        mask = limited.reshape(limited.shape + (1,) * (x.ndim - 2))
        return np.where(mask, x[:1], x)

    phases = jax.tree.map(alike, estimates.phases)
    return eqx.tree_at(lambda e: e.phases, estimates, phases)


def _problem(
    task: Task, estimates: StepEstimate, clocks: Float[np.ndarray, " c"]
) -> Problem:
    work = task.step
    assert work is not None and work.placed.program is not None
    order, steps, times = work.placed.program, work.steps, estimates.times
    micro, p = times.micro, estimates.phases.phases
    length = np.asarray(micro.work) + np.asarray(micro.exposed).sum(axis=-1)
    beyond = np.asarray(p.energy - p.static_energy)
    rows = np.asarray(steps.phase)
    parts = np.where(rows >= 0, beyond[:, np.maximum(rows, 0)], 0.0)
    each, once, update = dynamic_joules(parts, steps)
    batches = order.batches
    members = np.asarray(steps.members)
    whole = batches * each.sum(axis=-1) + once + update
    step = np.asarray(times.time)
    static = (
        np.asarray(estimates.stages.stage_power) - whole @ members.T / step[:, None]
    )

    of_place = np.array(order.kinds).ravel()
    program, stages = order.program, len(order.kinds[0])
    halves = order.schedule == "zb-h1"
    ways = 3 if halves else 2
    place, kind = (x.ravel() for x in np.indices((len(of_place), ways)))
    # ZB-H1 halves a backward pass: gradients of inputs, and of weights (`passes`).
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
    members = np.zeros((int(host.max()) + 1, plan.pp))
    np.add.at(members, (host, stage), 1.0)
    return np.unique(members, axis=0)


# --- Layers of the stages of a pipeline so that the slowest is fastest.


def balanced(task: Task) -> tuple[int, ...] | None:
    """Layers of every virtual stage of a training task, the embedding and the head
    counted by their time at the clock asked for; None of one stage. Layers of several
    kinds count as their mean."""
    assert task.step is not None
    placed = task.step.placed
    plan, layers = placed.plan, len(placed.model.stack())
    places = plan.pp * plan.vp
    if places == 1:
        return None
    apart = Training(
        placed.model,
        # three stages: the embedding, all layers and the head, each timed by itself
        dataclasses.replace(plan, pp=3, vp=1, schedule="1f1b"),
        # three stages may need more GPUs than the topology has
        dataclasses.replace(
            placed.host, hosts=None, network=placed.host.network or math.inf
        ),
        placed.sequences,
        (0, layers, 0),
    )
    listings, steps = apart.work(task.step.request)
    alone = dataclasses.replace(task.step, steps=steps, placed=apart)
    parts = dataclasses.replace(task, listings=[*listings], step=alone)
    micro = step_of(parts, parts.estimates()).result.times.micro
    spent = np.asarray(micro.work) + np.asarray(micro.exposed).sum(axis=-1)
    first, each, last = spent.sum(axis=-1)
    return fastest_split(each / layers, (first, last), layers, places)
