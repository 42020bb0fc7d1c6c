"""Figures of a few plans, each at its own clock, as `estimate` has them: stages as they
are launched, pipelines followed one instruction by one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...corrections import Corrections
from ...hardware import GpuSpec, OperatingPoint
from ...plans import Plan, Steps, Training, compose, step_energy
from ...plans._pipeline import BACKWARD, FORWARD, instructions, plain_span
from ...plans._steps import filled_to, merged
from ...workload import Listing, Workload
from ...workload._unlisted import complete
from .pieces import priced, programs
from .ranking import KINDS, STAGES, flat
from .space import Space

_TOGETHER: Final = (60, 20, 10)
"""Plans of one call: always as many, the most that have fewer launches than all pieces,
so that one program serves."""


@dataclasses.dataclass(frozen=True)
class Exact:
    """A plan at an SM clock (Hz): time (s) and energy (J of all GPUs) of a step, bytes
    of the fullest GPU, whether its boards keep their power limit."""

    plan: Plan
    sm_clock: float
    time: float
    energy: float
    memory: float
    feasible: bool

    @property
    def power(self) -> float:
        """W of all GPUs."""
        return self.energy / self.time


def exact(
    space: Space,
    chosen: Sequence[tuple[Plan, float]],
    gpu: GpuSpec,
    point: OperatingPoint,
    like: Workload | None = None,
) -> list[Exact]:
    """Figures of plans, each at an SM clock (Hz), the rest of the operating point as in
    `point` (no axis).

    `like`: see `priced`.
    """
    made = {plan: _Made.of(space, plan) for plan, _ in chosen}
    room = 0 if like is None else len(like.names)
    most = max((len(x.listings) for x in made.values()), default=0)
    number = next((x for x in _TOGETHER if x * most <= room), _TOGETHER[-1])
    return [
        x
        for i in range(0, len(chosen), number)
        for x in _exact(made, chosen[i : i + number], number, gpu, point, like)
    ]


@dataclasses.dataclass(frozen=True)
class _Made:
    """A plan's work, and bytes of its fullest GPU."""

    training: Training
    listings: list[Listing]
    steps: Steps
    memory: float

    @classmethod
    def of(cls, space: Space, plan: Plan) -> "_Made":
        """That of a plan."""
        training = Training(space.model, plan, space.host, space.global_batch)
        request = training.request(
            phase="train", input_len=space.input_len, **space.request
        )
        listings, steps = training.work(request)
        memory = sum(training.memory(request).values())
        return cls(training, [complete(x) for x in listings], steps, memory)


def _exact(
    made: Mapping[Plan, _Made],
    chosen: Sequence[tuple[Plan, float]],
    number: int,
    gpu: GpuSpec,
    point: OperatingPoint,
    like: Workload | None,
) -> list[Exact]:
    """At most `number` of them."""
    asked = [made[plan] for plan, _ in chosen]
    owner = np.repeat(np.arange(len(asked)), [len(x.listings) for x in asked])
    works = [(x.listings, x.steps) for x in asked]
    listings, steps = merged([*works, *[works[0]] * (number - len(works))])
    listings = listings[: len(owner)]
    if like is not None and len(listings) > len(like.names):
        like = None
    settings = {
        field.name: np.full(len(owner), getattr(point, field.name))
        for field in dataclasses.fields(OperatingPoint)
    }
    settings["sm_clock"] = np.array([clock for _, clock in chosen])[owner]
    found, _ = priced(listings, gpu, OperatingPoint(**settings), like)
    kept = np.ones(len(asked), bool)
    np.logical_and.at(kept, owner, found["feasible"])
    placed = [x.training for x in asked]
    time, energy = _steps_of(placed, found, steps, gpu.corrections)
    return [
        Exact(plan, clock, float(t), float(e), x.memory, bool(k))
        for (plan, clock), x, t, e, k in zip(
            chosen, asked, time, energy, kept, strict=False
        )
    ]


def _steps_of(
    placed: Sequence[Training], found: dict[str, Any], steps: Steps, c: Corrections
) -> tuple[np.ndarray, np.ndarray]:
    """(s, J) of the steps that phases make."""
    steps = filled_to(steps, KINDS, STAGES)
    at = np.asarray(steps.phase)
    columns = {
        x: np.where(at >= 0, found[x][at.clip(0, len(found[x]) - 1)], 0.0)
        for x in ("time", "energy", "still")
    }
    span = np.full(len(at), np.nan)
    about = jax.device_get(programs()(_composed, (columns, steps, c, span)))
    for i, one in enumerate(placed):
        if one.order is not None:
            span[i] = _span(one, about["forward"][i], about["backward"][i])
    answer = programs()(_composed, (columns, steps, c, span))
    return np.asarray(answer["time"]), np.asarray(answer["energy"])


def _composed(
    columns: dict[str, Any], steps: Steps, c: Corrections, span: Float[Any, " r"]
) -> dict[str, Any]:
    """Steps of parts (r, k, p) whose pipelines take `span` (s), or what the closed form
    says (NaN); with the time of a micro-batch `forward` and `backward` in each kind of
    virtual stages, its way to the next included."""
    steps, time, work, static = flat(columns, steps)
    alone = compose(time, steps, c)
    pipeline = jnp.where(jnp.isnan(span), alone.pipeline, span)
    found = compose(time, steps, c, pipeline)
    drawn = step_energy(time, work, static, found, steps)
    ways = alone.micro.work + jnp.sum(alone.micro.exposed, axis=-1)
    return {
        "time": found.time,
        "energy": drawn.energy,
        "forward": ways[..., FORWARD],
        "backward": ways[..., BACKWARD],
    }


def _span(placed: Training, forward: np.ndarray, backward: np.ndarray) -> float:
    """s of all micro-batches, by the recursion."""
    order, plan = placed.order, placed.plan
    assert order is not None
    kinds = np.array(order.kinds).ravel()
    program = instructions(order.schedule, plan.pp, order.batches, plan.vp)
    half = 0.5 if order.schedule == "zb-h1" else 1.0
    ways = np.stack([forward, half * backward, half * backward])
    return plain_span(program, ways[program.kind, kinds[program.place]].tolist())
