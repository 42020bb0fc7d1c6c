"""`Timeline`: a training step over time, what each stage of the pipeline runs when, and
how much power that takes. Pictures, pages and traces show it.
"""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._pipeline import FORWARD_PASS, Pipeline, instruction_ends
from ._steps import EXCHANGE_AXES, Steps, StepTime, dynamic_joules

EXCHANGE: Final = 3
"""Weights and gradients that replicas exchange when the pipeline has ended."""
OPTIMIZER: Final = 4
SLICE_KINDS: Final = ("forward", "backward", "weights", "exchange", "optimizer")
"""Words for the kinds of slices, in their order."""
_REPLICAS: Final = np.arange(len(EXCHANGE_AXES)) == EXCHANGE_AXES.index("dp")
"""The axis of what replicas exchange."""
_GOVERNED: Final = 0.1
"""s over which power limiters hold the mean, at most."""
_HALVINGS: Final = 20
_NOTHING: Final = 1e-9
"""Share of a step below which a slice is rounding."""


class Timeline(NamedTuple):
    """Slices of all stages, one GPU standing for those of its stage; between the
    slices of a stage it waits."""

    stage: Int[np.ndarray, " i"]
    kind: Int[np.ndarray, " i"]
    """Place in `SLICE_KINDS`."""
    chunk: Int[np.ndarray, " i"]
    """Which of its stage's virtual stages; 0 behind the pipeline."""
    batch: Int[np.ndarray, " i"]
    """Micro-batch; -1 behind the pipeline."""
    start: Float[np.ndarray, " i"]  # s
    end: Float[np.ndarray, " i"]  # s
    work: Float[np.ndarray, " i"]
    """s of computation; what follows until `end` are exchanges that nothing hides."""
    exposed: Float[np.ndarray, "i a"]
    """s of those, by axis (`EXCHANGE_AXES`)."""
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
    slower: float
    """Time of the step over that of its parts; slices are so much longer (those at
    their power limit first)."""

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
        rows = np.flatnonzero(self.stage == stage)
        return rows[np.argsort(self.start[rows], kind="stable")]

    def curve(
        self, stage: int | None = None
    ) -> tuple[Float[np.ndarray, " j"], Float[np.ndarray, " j"]]:
        """Where power changes, s, and W from there on: of all GPUs, or of one GPU of a
        stage."""
        rows = np.arange(len(self.stage)) if stage is None else self.of_stage(stage)
        over = self.power[rows] - self.waiting[self.stage[rows]]
        at = np.concatenate([[0.0], self.start[rows], self.end[rows], [self.time]])
        still = self.waiting.sum() if stage is None else self.waiting[stage]
        change = np.concatenate([[still], over, -over, [0.0]])
        # edges that are equal but for rounding are one
        near = np.round(at / self.time / _NOTHING) * _NOTHING * self.time
        edges, which = np.unique(near, return_inverse=True)
        changes = np.bincount(which, change, len(edges))
        real = np.abs(changes) > _NOTHING * still
        real[[0, -1]] = True
        watts = np.cumsum(changes)[real]
        return edges[real], watts * (self.abreast if stage is None else 1)


_Slices = dict[str, np.ndarray]
"""Columns of a `Timeline`, with `length` (s) and `joules` beyond static power."""


def build_timeline(
    order: Pipeline,
    kinds: list[int],
    steps: Steps,
    times: StepTime,
    dynamic: Float[np.ndarray, " n"],
    power: Float[np.ndarray, " s"],
    limit: float = np.inf,
) -> Timeline:
    """A step over time.

    Every instruction of the pipeline is its computation and the exchanges that nothing
    hides; then come what replicas exchange late and the optimizer. What replicas
    exchange once is drawn in the first micro-batch forward, in the last one backward
    (beside which they run) and in what of it is late, by their time. What a step takes
    beyond its parts (`plan_fixed`, `plan_straggle`) slows all of them alike: at its end
    GPUs would seem to idle, a fall in power that no meter shows. Work beside which
    replicas exchange would draw more than the `limit` that it has alone: what the
    governor then takes it slows, of the same time, before all parts alike.

    Args:
        order: of the pipeline.
        kinds: kind of each stage's GPUs in `steps`.
        steps: the one step.
        times: its time.
        dynamic: J of every phase beyond idle and leakage.
        power: mean W of a GPU of each kind (`StepEnergy.stage_power`).
        limit: W that a GPU may draw over `_GOVERNED` s.
    """
    rows, members = np.asarray(kinds), np.asarray(steps.members)
    at = np.asarray(steps.phase)
    parts = np.where(at >= 0, dynamic[at.clip(0)], 0.0)
    each, *once = dynamic_joules(parts, steps)
    exchange, update = ((members @ x)[rows] for x in once)
    pipeline = _pipeline(order, times, each)
    pipeline, rate = _with_exchange(pipeline, times, rows, exchange)
    time = float(times.time)
    drawn = np.bincount(pipeline["stage"], pipeline["joules"], len(rows))
    drawn += rate * np.asarray(times.late)[rows] + update
    room = limit - np.asarray(power)[rows] + drawn / time
    behind = sum(
        float(np.asarray(x)[rows].max()) for x in (times.late, times.optimizer)
    )
    pipeline = _within_limit(order, pipeline, room, time, behind)
    end = float((pipeline["start"] + pipeline["length"]).max())
    tail = _tail(times, rows, rate, update, end)
    columns = {name: np.concatenate([x, tail[name]]) for name, x in pipeline.items()}
    slower = time / float((columns["start"] + columns["length"]).max())
    for name in ("start", "length", "work", "exposed", "hidden"):
        columns[name] = columns[name] * slower
    drawn = np.bincount(columns["stage"], columns["joules"], len(rows))
    waiting = np.asarray(power)[rows] - drawn / time
    there = columns["length"] > _NOTHING * time
    columns = {name: x[there] for name, x in columns.items()}
    start, length, joules = (columns.pop(x) for x in ("start", "length", "joules"))
    return Timeline(
        # an end less a length may be below 0 by rounding
        start=np.maximum(start, 0.0),
        end=start + length,
        power=joules / length + waiting[columns["stage"]],
        waiting=waiting,
        abreast=round(float(np.asarray(steps.abreast))),
        pipeline=end * slower,
        time=time,
        slower=slower,
        **columns,
    )


def _pipeline(
    order: Pipeline, times: StepTime, joules: Float[np.ndarray, "k 2"]
) -> _Slices:
    """The instructions of all micro-batches, which take `joules` forward and backward
    in each kind of virtual stages."""
    program, micro = order.program, times.micro
    chunk, way, share = order.passes
    work = np.asarray(micro.work)[chunk, way] * share
    exposed = np.asarray(micro.exposed)[chunk, way] * share[:, None]
    moved = np.asarray(micro.moved)[chunk, way] * share[:, None]
    length = work + exposed.sum(axis=1)
    return dict(
        stage=program.stage,
        kind=program.kind,
        chunk=program.place // len(order.kinds[0]),
        batch=program.batch,
        start=instruction_ends(program, length) - length,
        length=length,
        work=work,
        exposed=exposed,
        hidden=np.maximum(moved - exposed, 0.0),
        joules=joules[chunk, way] * share,
    )


def _with_exchange(
    slices: _Slices,
    times: StepTime,
    rows: Int[np.ndarray, " s"],
    joules: Float[np.ndarray, " s"],
) -> tuple[_Slices, Float[np.ndarray, " s"]]:
    """(slices, W): with what replicas exchange once a step, beside the first
    micro-batch forward and the last one backward, which takes `joules` of a GPU of each
    stage; their power meanwhile, and in what of it is late."""
    late, once = np.asarray(times.late)[rows], np.asarray(times.once)[rows]
    stage, batch = slices["stage"], slices["batch"]
    beside = np.where(slices["kind"] == FORWARD_PASS, batch == 0, batch == batch.max())
    spent = slices["length"] * beside
    meanwhile = np.bincount(stage, spent, len(rows))
    rate = joules / (meanwhile + late)
    unseen = np.maximum(once - late, 0.0) / meanwhile
    hidden = slices["hidden"] + np.outer(unseen[stage] * spent, _REPLICAS)
    drawn = slices["joules"] + rate[stage] * spent
    return slices | {"hidden": hidden, "joules": drawn}, rate


def _within_limit(
    order: Pipeline,
    slices: _Slices,
    room: Float[np.ndarray, " s"],
    time: float,
    tail: float,
) -> _Slices:
    """The pipeline with slices that draw more than `room` W of each stage beyond what
    waiting takes, and last for longer than the governor averages, so much longer that
    they do not once all slices and the `tail` (s) behind them take `time` s; or as far
    as that allows."""
    length = slices["length"]
    governed, needed = length > _GOVERNED, slices["joules"] / room[slices["stage"]]

    def lengths(slower: float) -> np.ndarray:
        """Of slices before all become `slower`."""
        return np.where(governed, np.maximum(length, needed / slower), length)

    def end(lasting: np.ndarray) -> float:
        return float(instruction_ends(order.program, lasting).max())

    low, high = 1.0, time / (end(length) + tail)
    if (lengths(high) <= length).all():
        return slices
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle * (end(lengths(middle)) + tail) > time:
            high = middle
        else:
            low = middle
    lasting = lengths(low)
    if (after := end(lasting)) + tail > time:
        # too little time: the end is convex in the share, so it lies below the line
        before = end(length)
        share = max(0.0, time - tail - before) / (after - before)
        lasting = length + share * (lasting - length)
    return slices | {
        "length": lasting,
        "work": slices["work"] + lasting - length,
        "start": instruction_ends(order.program, lasting) - lasting,
    }


def _tail(
    times: StepTime,
    rows: Int[np.ndarray, " s"],
    rate: Float[np.ndarray, " s"],
    update: Float[np.ndarray, " s"],
    end: float,
) -> _Slices:
    """What follows the pipeline at its `end` (s): what replicas exchange late (at
    `rate` W), and the optimizer (`update` J)."""
    late, updating = (np.asarray(x)[rows] for x in (times.late, times.optimizer))
    then = end + late.max()
    stages = len(rows)
    kind = np.repeat([EXCHANGE, OPTIMIZER], stages)
    length = np.concatenate([late, updating])
    waited = np.outer(length * (kind == EXCHANGE), _REPLICAS)
    return dict(
        stage=np.tile(np.arange(stages), 2),
        kind=kind,
        chunk=np.zeros(2 * stages, int),
        batch=np.full(2 * stages, -1),
        start=np.repeat([end, then], stages),
        length=length,
        work=np.where(kind == OPTIMIZER, length, 0.0),
        exposed=waited,
        hidden=np.zeros_like(waited),
        joules=np.concatenate([rate * late, update]),
    )
