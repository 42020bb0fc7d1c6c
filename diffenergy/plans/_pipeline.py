"""Pipelines: the order in which stages run micro-batches, and when the last one ends.

Instructions of a stage run one after the other; each also waits for what it needs from
another stage and for its way here (a max-plus recursion):

    end(i) = max(end(before i on its stage), end(what i needs) + send) + duration(i)

Orders: GPipe (arXiv 1811.06965), 1F1B (arXiv 2006.09503), interleaved 1F1B
(arXiv 2104.04473), ZB-H1 (arXiv 2401.10241).
"""

import dataclasses
import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ._plan import Schedule

FORWARD_PASS: Final = 0
BACKWARD: Final = 1
WEIGHTS: Final = 2
"""Gradients of weights alone, where a schedule takes them apart (ZB-H1)."""


class Instruction(NamedTuple):
    """`kind` of work (forward, backward, weights) of micro-batch `batch` in the virtual
    stage `chunk` of a stage (chunk c of stage s is place c p + s of all)."""

    kind: int
    chunk: int
    batch: int


class Instructions(NamedTuple):
    """All instructions, each behind those that it waits for; -1: waits for none."""

    stage: Int[np.ndarray, " i"]
    kind: Int[np.ndarray, " i"]
    place: Int[np.ndarray, " i"]
    """Virtual stage."""
    batch: Int[np.ndarray, " i"]
    before: Int[np.ndarray, " i"]
    """The one before it on its stage."""
    needs: Int[np.ndarray, " i"]
    """The one of another place (or kind) whose result it needs."""


def order(
    schedule: Schedule, stages: int, batches: int, virtual: int = 1
) -> list[list[Instruction]]:
    """What each stage runs, in its order.

    Raises `ValueError` if an interleaved pipeline has micro-batches that the stages do
    not divide.

    >>> [x.kind for x in order("1f1b", 2, 2)[0]]
    [0, 0, 1, 1]
    """
    if schedule == "interleaved" and virtual > 1 and batches % stages:
        raise ValueError(
            f"`plan` has pp={stages} and vp={virtual}, but {batches} micro-batches of "
            "a replica; an interleaved schedule needs a multiple of pp."
        )
    count = batches * virtual
    forward, backward = (
        [_nth(kind, i, stages, virtual) for i in range(count)]
        for kind in (FORWARD_PASS, BACKWARD)
    )
    instructions = []
    for stage in range(stages):
        after = stages - 1 - stage
        warm = min(after, count)
        if schedule == "gpipe":
            warm = count
        elif schedule == "interleaved" and virtual > 1:
            warm = min(2 * after + (virtual - 1) * stages, count)
        if schedule == "zb-h1":
            instructions.append(_zero_bubble(forward, backward, warm, stage))
            continue
        pairs = zip(forward[warm:], backward, strict=False)
        steady = [x for pair in pairs for x in pair]
        instructions.append([*forward[:warm], *steady, *backward[count - warm :]])
    return instructions


def _nth(kind: int, index: int, stages: int, virtual: int) -> Instruction:
    """The `index`th micro-batch that a stage runs forward or backward: groups of
    `stages` micro-batches go through one virtual stage after the other."""
    group, inside = divmod(index, stages * virtual)
    chunk, batch = divmod(inside, stages)
    if kind == BACKWARD:
        chunk = virtual - 1 - chunk
    return Instruction(kind, chunk, group * stages + batch)


def _zero_bubble(
    forward: list[Instruction], backward: list[Instruction], warm: int, stage: int
) -> list[Instruction]:
    """1F1B whose gradients of weights follow `stage` micro-batches later, so that the
    early ones fill what was idle (as many activations are kept as in 1F1B)."""
    done = [*forward[:warm]]
    weights = [Instruction(WEIGHTS, 0, x.batch) for x in backward]
    for i, back in enumerate(backward):
        if warm + i < len(forward):
            done.append(forward[warm + i])
        done.append(back)
        if i >= stage:
            done.append(weights[i - stage])
    return [*done, *weights[max(len(backward) - stage, 0) :]]


@functools.lru_cache(maxsize=32)
def instructions(
    schedule: Schedule, stages: int, batches: int, virtual: int = 1
) -> Instructions:
    """The instructions of all stages, sorted so that each follows what it waits for."""
    orders = order(schedule, stages, batches, virtual)
    places = stages * virtual
    number: dict[tuple[int, int, int], int] = {}
    rows: list[tuple[int, ...]] = []
    reached = [0] * stages
    last = [-1] * stages
    total = sum(map(len, orders))
    while len(rows) < total:
        moved = False
        for stage, own in enumerate(orders):
            while reached[stage] < len(own):
                kind, chunk, batch = own[reached[stage]]
                place = chunk * stages + stage
                need = _need(kind, place, batch, places)
                if need is not None and need not in number:
                    break
                at = number[need] if need else -1
                rows.append((stage, kind, place, batch, last[stage], at))
                last[stage] = number[kind, place, batch] = len(rows) - 1
                reached[stage] += 1
                moved = True
        if not moved:
            raise AssertionError(f"the order of {schedule} waits for itself")
    return Instructions(*np.array(rows, int).T)


def _need(
    kind: int, place: int, batch: int, places: int
) -> tuple[int, int, int] | None:
    """What an instruction needs; None: nothing but its input."""
    if kind == FORWARD_PASS:
        return (FORWARD_PASS, place - 1, batch) if place else None
    if kind == WEIGHTS:
        return (BACKWARD, place, batch)
    last = place == places - 1
    return (FORWARD_PASS, place, batch) if last else (BACKWARD, place + 1, batch)


def ends(
    program: Instructions,
    durations: Float[Array, " i"],
    send: Float[Array, ""] | float = 0.0,
    tau: float = 0.0,
) -> Float[Array, " i"]:
    """When each instruction ends, s.

    Args:
        program: `instructions`.
        durations: s of each.
        send: s from a stage to the next.
        tau: s over which the maxima are smoothed, tau logaddexp(./tau); 0: none.
    """
    far = (program.needs >= 0) & (program.stage[program.needs] != program.stage)

    def later(a: Array, b: Array) -> Array:
        return tau * jnp.logaddexp(a / tau, b / tau) if tau else jnp.maximum(a, b)

    def step(done: Array, row: tuple[Array, ...]) -> tuple[Array, None]:
        i, before, needs, sent, duration = row
        alone, needing = done[before], done[needs] + sent
        start = jnp.where(needs < 0, alone, later(alone, needing))
        start = jnp.where(before < 0, needing, start)
        return done.at[i].set(start + duration), None

    number = len(program.stage)
    columns = (np.arange(number), program.before, program.needs, far * send)
    rows = (*map(jnp.asarray, columns), durations)
    done, _ = lax.scan(step, jnp.zeros(number + 1), rows)
    return done[:-1]  # the last place stands for -1


def instruction_ends(
    program: Instructions, durations: Float[np.ndarray, "*q i"]
) -> Float[np.ndarray, "*q i"]:
    """`ends` of many durations at once, without a program to compile."""
    several = durations.ndim > 1
    later = np.maximum if several else max
    lasting = [*np.moveaxis(durations, -1, 0)] if several else durations.tolist()
    done: list[Any] = [0.0] * (len(lasting) + 1)  # the last place stands for -1
    rows = zip(program.before.tolist(), program.needs.tolist(), lasting, strict=True)
    for i, (before, needs, time) in enumerate(rows):
        done[i] = later(done[before], done[needs]) + time
    return np.moveaxis(np.array(done[:-1]), 0, -1)


def closed_form_makespan(
    stage: Float[Array, "*r s"],
    count: Float[Array, "*r s"],
    batches: Float[Array, "*r"],
    virtual: Float[Array, "*r"],
    early: Float[Array, "*r s"] | float = 0.0,
) -> Float[Array, "*r"]:
    """The same for stages that are nearly equal:

        T = m M + (sum of stages - M)/v - (p - 1 + min(p, m) - 1) w,
        M that of the slowest stage

    (arXiv 2104.04473, section 2.2: m x + (p - 1) x/v for equal ones; arXiv 2401.10241).

    Args:
        stage: s of one micro-batch, forward and backward, in each kind of stage.
        count: stages of each kind.
        batches: micro-batches m.
        virtual: virtual stages v of a GPU.
        early: s of the gradients of weights w that fill the bubble (ZB-H1), else 0.
    """
    present = jnp.where(count > 0, stage, 0.0)
    # The maximum, no smooth norm: kinds that are equally long (first, middle, last)
    # would count several times, which made pipelines up to 5.3 % too slow.
    slowest = jnp.max(present, axis=-1)
    number = jnp.sum(count, axis=-1)
    mean = jnp.sum(count * present, axis=-1) / number
    filled = jnp.sum(count * early, axis=-1) / number
    rest = jnp.maximum(number * mean - slowest, 0.0)
    shown = jnp.minimum(number, batches) - 1  # micro-batches behind the first
    return batches * slowest + rest / virtual - (number - 1 + shown) * filled


def both_ways_makespan(
    stage: Float[Array, "*r s"],
    backward: Float[Array, "*r s"],
    count: Float[Array, "*r s"],
    batches: Float[Array, "*r"],
) -> Float[Array, "*r"]:
    """Time of all micro-batches that enter the pipeline at both ends (DualPipe):

        T = m x + (p/2 - 1) (x + b - 3 w),  w = b/2

    (arXiv 2412.19437, table 2), x of the slowest GPU, b of the mean one.

    Args:
        stage: s of one micro-batch, forward and backward, in each kind of GPU.
        backward: the backward part of it.
        count: GPUs of each kind.
        batches: micro-batches m.
    """
    present = count > 0
    slowest = jnp.max(jnp.where(present, stage, 0.0), axis=-1)
    number = jnp.sum(count, axis=-1)
    mean = jnp.sum(jnp.where(present, count * backward, 0.0), axis=-1) / number
    return batches * slowest + (number / 2 - 1) * (slowest - mean / 2)


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Order of one step: kind of virtual stage at every place (row c, column s)."""

    schedule: Schedule
    batches: int
    kinds: tuple[tuple[int, ...], ...]

    @property
    def program(self) -> Instructions:
        """All instructions."""
        virtual, stages = len(self.kinds), len(self.kinds[0])
        return instructions(self.schedule, stages, self.batches, virtual)

    @property
    def passes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every instruction: the kind of its virtual stage, whether that runs
        forward (0) or backward (1), and its share of this pass: ZB-H1 takes one half
        for gradients of inputs, one for those of weights."""
        program, half = self.program, 0.5 if self.schedule == "zb-h1" else 1.0
        kind = np.array(self.kinds).ravel()[program.place]
        share = np.where(program.kind == FORWARD_PASS, 1.0, half)
        return kind, np.minimum(program.kind, BACKWARD), share

    @functools.partial(jax.jit, static_argnames=("self", "tau"))
    def span(
        self,
        forward: Float[Array, " k"],
        backward: Float[Array, " k"],
        send: Float[Array, ""] | float = 0.0,
        tau: float = 0.0,
    ) -> Float[Array, ""]:
        """Time of all micro-batches, each `forward` and `backward` (s) in a virtual
        stage of each kind; `send` and `tau` as of `ends`."""
        kind, way, share = self.passes
        durations = jnp.stack([forward, backward])[way, kind] * share
        done = ends(self.program, durations, send, tau)
        if not tau:
            return jnp.max(done)
        stages = self.program.stage
        # The last instruction of each stage alone: a smoothed maximum grows with the
        # number of values that it covers.
        lasts = [np.flatnonzero(stages == x)[-1] for x in np.unique(stages)]
        return tau * jax.nn.logsumexp(done[np.array(lasts)] / tau)


def makespan(
    forward: Float[Array, " v p"],
    backward: Float[Array, " v p"],
    batches: int,
    schedule: Schedule = "1f1b",
    send: Float[Array, ""] | float = 0.0,
    tau: float = 0.0,
) -> Float[Array, ""]:
    """Time of all micro-batches of a step by the recursion, s.

    Args:
        forward: s of one micro-batch in each virtual stage (place c p + s in row c).
        backward: the same; ZB-H1 takes one half for inputs, one for weights.
        batches: micro-batches.
        schedule: the order.
        send: s from a stage to the next.
        tau: s over which the maxima are smoothed; 0: none.

    The derivative by a duration is how often it lies on the critical path.

    >>> float(makespan(jnp.ones((1, 4)), 2 * jnp.ones((1, 4)), 8))
    33.0
    """
    forward, backward = (
        jnp.atleast_2d(jnp.asarray(x, float)) for x in (forward, backward)
    )
    places = np.arange(forward.size).reshape(forward.shape).tolist()
    order = Pipeline(schedule, batches, tuple(map(tuple, places)))
    return order.span(forward.ravel(), backward.ravel(), send, tau)
