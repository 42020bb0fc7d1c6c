"""`Timeline`: a training step over time, what each stage of the pipeline runs when, and
how much power that takes. Pictures, pages and traces show it.
"""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._pipeline import BACKWARD, FORWARD, instructions, plain_ends
from ._steps import AXES, PARTS, Pipeline, Steps, StepTime

EXCHANGE: Final = 3
"""Weights and gradients that replicas exchange when the pipeline has ended."""
OPTIMIZER: Final = 4
REST: Final = 5
"""What a step takes beyond its parts (`plan_fixed`, `plan_straggle`)."""
KINDS: Final = ("forward", "backward", "weights", "exchange", "optimizer", "rest")
"""Words for the kinds of slices, in their order."""
_NOTHING: Final = 1e-9
"""Share of a step below which a slice is rounding."""


class Timeline(NamedTuple):
    """Slices of all stages, one GPU standing for those of its stage; between the
    slices of a stage it waits."""

    stage: Int[np.ndarray, " i"]
    kind: Int[np.ndarray, " i"]
    """Place in `KINDS`."""
    chunk: Int[np.ndarray, " i"]
    """Which of its stage's virtual stages; 0 behind the pipeline."""
    batch: Int[np.ndarray, " i"]
    """Micro-batch; -1 behind the pipeline."""
    start: Float[np.ndarray, " i"]  # s
    end: Float[np.ndarray, " i"]  # s
    work: Float[np.ndarray, " i"]
    """s of computation; what follows until `end` are exchanges that nothing hides."""
    exposed: Float[np.ndarray, "i a"]
    """s of those, by axis (`AXES`)."""
    hidden: Float[np.ndarray, "i a"]
    """s of exchanges beside computation."""
    power: Float[np.ndarray, " i"]
    """W of a GPU, idle and leakage included."""
    waiting: Float[np.ndarray, " s"]
    """W of a GPU of each stage while it waits."""
    abreast: int
    """GPUs of a stage."""
    pipeline: float
    """s until the last micro-batch is done."""
    time: float
    """s of the step."""

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.waiting)

    @property
    def energy(self) -> float:
        """J of all GPUs."""
        over = (self.power - self.waiting[self.stage]) * (self.end - self.start)
        return self.abreast * float(over.sum() + self.time * self.waiting.sum())

    @property
    def peak(self) -> float:
        """Most W of all GPUs, which feeds and breakers see."""
        return float(self.curve()[1].max())

    def of_stage(self, stage: int) -> Int[np.ndarray, " j"]:
        """The slices of one stage, in the order of their start."""
        own = np.flatnonzero(self.stage == stage)
        return own[np.argsort(self.start[own], kind="stable")]

    def curve(
        self, stage: int | None = None
    ) -> tuple[Float[np.ndarray, " j"], Float[np.ndarray, " j"]]:
        """Where power changes, s, and W from there on: of all GPUs, or of one GPU of a
        stage."""
        own = np.arange(len(self.stage)) if stage is None else self.of_stage(stage)
        over = self.power[own] - self.waiting[self.stage[own]]
        at = np.concatenate([[0.0], self.start[own], self.end[own], [self.time]])
        still = self.waiting.sum() if stage is None else self.waiting[stage]
        change = np.concatenate([[still], over, -over, [0.0]])
        # edges that are equal but for rounding are one
        near = np.round(at / self.time / _NOTHING) * _NOTHING * self.time
        edges, which = np.unique(near, return_inverse=True)
        changes = np.bincount(which, change, len(edges))
        kept = np.abs(changes) > _NOTHING * still
        kept[[0, -1]] = True
        watts = np.cumsum(changes)[kept]
        return edges[kept], watts * (self.abreast if stage is None else 1)


def timeline(
    order: Pipeline,
    kinds: list[int],
    steps: Steps,
    times: StepTime,
    dynamic: Float[np.ndarray, " n"],
    power: Float[np.ndarray, " s"],
) -> Timeline:
    """A step over time.

    Every instruction of the pipeline is its computation and the exchanges that nothing
    hides; then come what replicas exchange late, the optimizer, and what a step takes
    beyond them, so that the last slice ends with the step. What replicas exchange
    once is drawn in the first micro-batch forward, in the last one backward (beside
    which they run) and in what of it is late, by their time.

    Args:
        order: of the pipeline.
        kinds: kind of each stage's GPUs in `steps`.
        steps: the one step.
        times: its time.
        dynamic: J of every phase beyond idle and leakage.
        power: mean W of a GPU of each kind (`StepEnergy.stage_power`).
    """
    kinds_of = np.array(order.kinds).ravel()
    stages, batches, half = len(order.kinds[0]), order.batches, 1.0
    if order.schedule == "zb-h1":
        half = 0.5
    program = instructions(order.schedule, stages, batches, len(order.kinds))
    chunk, way = kinds_of[program.place], np.minimum(program.kind, BACKWARD)
    share = np.where(program.kind == FORWARD, 1.0, half)[:, None]
    micro = times.micro
    work = np.asarray(micro.work)[chunk, way] * share[:, 0]
    exposed = np.asarray(micro.exposed)[chunk, way] * share
    moved = np.asarray(micro.moved)[chunk, way] * share
    length = work + exposed.sum(axis=1)
    end = plain_ends(program, length)

    at = np.asarray(steps.phase)
    found = np.where(at >= 0, dynamic[at.clip(0)], 0.0)
    each, once, update = dynamic_joules(found, steps)
    joules = each[chunk, way] * share[:, 0]
    members, rows = np.asarray(steps.members), np.asarray(kinds)
    replicas = np.arange(len(AXES)) == AXES.index("dp")
    late = np.asarray(times.late)[rows]
    first = (program.kind == FORWARD) & (program.batch == 0)
    beside = first | ((program.kind != FORWARD) & (program.batch == batches - 1))
    meanwhile = np.bincount(program.stage, length * beside, stages)
    rate = (members @ once)[rows] / (meanwhile + late)
    hidden = np.maximum(moved - exposed, 0.0)
    unseen = np.maximum(np.asarray(times.once)[rows] - late, 0.0) / meanwhile
    hidden = hidden + np.outer(unseen[program.stage] * length * beside, replicas)
    joules = joules + rate[program.stage] * length * beside

    whole, time = float(times.pipeline), float(times.time)
    then = whole + late.max()
    updating = np.asarray(times.optimizer)[rows]
    after = then + updating.max()
    nothing = np.zeros(stages)
    tail = (
        (EXCHANGE, np.full(stages, whole), late, rate * late),
        (OPTIMIZER, np.full(stages, then), updating, (members @ update)[rows]),
        (REST, np.full(stages, after), np.full(stages, time - after), nothing),
    )
    number = len(program.stage)
    start_, length_, joules_ = (
        np.concatenate([first_, *(row[i] for row in tail)])
        for i, first_ in ((1, end - length), (2, length), (3, joules))
    )
    kind_ = np.concatenate([program.kind, *(np.full(stages, x[0]) for x in tail)])
    stage_ = np.concatenate([program.stage, np.tile(np.arange(stages), len(tail))])
    drawn = np.bincount(stage_, joules_, stages)
    waiting = np.asarray(power)[rows] - drawn / time
    kept = length_ > _NOTHING * time
    watts = joules_ / np.where(kept, length_, 1.0) + waiting[stage_]

    def filled(values: np.ndarray, rest: int | float) -> np.ndarray:
        shape = (len(stage_) - number, *values.shape[1:])
        blank = np.full(shape, rest, values.dtype)
        return np.concatenate([values, blank])[kept]

    waited = np.outer(length_ * (kind_ == EXCHANGE), replicas)[number:]
    working = np.concatenate(
        [work, np.where(kind_ == OPTIMIZER, length_, 0.0)[number:]]
    )
    return Timeline(
        stage=stage_[kept],
        kind=kind_[kept],
        chunk=filled(program.place // stages, 0),
        batch=filled(program.batch, -1),
        start=np.maximum(start_, 0.0)[kept],
        end=(start_ + length_)[kept],
        work=working[kept],
        exposed=np.concatenate([exposed, waited])[kept],
        hidden=filled(hidden, 0.0),
        power=watts[kept],
        waiting=waiting,
        abreast=round(float(np.asarray(steps.abreast))),
        pipeline=whole,
        time=time,
    )


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
