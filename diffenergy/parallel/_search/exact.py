"""Figures of a few plans, each at its own clock, as `estimate` has them: stages as they
are launched, pipelines followed one instruction by one."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...compiling import compiler_options, kept
from ...corrections import Corrections
from ...estimator import estimate, packed, packed_alike
from ...hardware import FIELDS, GpuSpec, OperatingPoint
from ...plans import (
    NETWORK_FIELD,
    Plan,
    Steps,
    Training,
    TrainingStep,
    compose_step,
    instruction_ends,
    merge_steps,
    pad_steps,
    step_energy,
)
from ...workload import Listing, Workload, pad_size
from .pieces import figures
from .ranking import KINDS, STAGES, flat
from .space import Space


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

    `like`: a workload whose program is used as far as it has room (`packed`).
    """
    if not chosen:
        return []
    by_plan = {plan: _Made.of(space, plan) for plan, _ in chosen}
    made = [by_plan[plan] for plan, _ in chosen]
    clocks = [clock for _, clock in chosen]
    found = _phases([x.listings for x in made], clocks, gpu, point, like)
    owner = np.repeat(np.arange(len(made)), [len(x.listings) for x in made])
    kept = np.ones(len(made), bool)
    np.logical_and.at(kept, owner, found["feasible"])
    more = pad_size(len(made)) - len(made)  # one program for about as many
    works = [(x.listings, x.steps) for x in [*made, *[made[0]] * more]]
    steps = pad_steps(merge_steps(works)[1], KINDS, STAGES)
    placed = [x.training for x in made]
    time, energy = _steps_of(placed, found, steps, gpu.corrections)
    return [
        Exact(plan, clock, float(t), float(e), x.memory, bool(k))
        for (plan, clock), x, t, e, k in zip(
            chosen, made, time, energy, kept, strict=False
        )
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
        return cls(training, [*listings], steps, memory)


def _phases(
    works: Sequence[list[Listing]],
    clocks: Sequence[float],
    gpu: GpuSpec,
    point: OperatingPoint,
    like: Workload | None,
) -> dict[str, np.ndarray]:
    """Figures of the phases of works, each at its SM clock (Hz), in as many calls as
    the program of `like` takes."""
    number, at, parts = len(works), 0, []
    while at < len(works):
        part = works[at : at + number]
        listings = [x for work in part for x in work]
        if like is None:
            (workload,) = packed_alike(listings, len(listings))
        else:
            workload = packed(listings, like)
        if workload is None:
            like, number = (like, number // 2) if number > 1 else (None, len(works))
            continue
        each = np.repeat(clocks[at : at + number], [len(work) for work in part])
        settings = {
            field.name: np.full(len(each), getattr(point, field.name))
            for field in dataclasses.fields(OperatingPoint)
        }
        settings["sm_clock"] = each
        parts.append(figures(workload, gpu, OperatingPoint(**settings), len(each)))
        at += number
    return {name: np.concatenate([x[name] for x in parts]) for name in parts[0]}


def _steps_of(
    placed: Sequence[Training], found: dict[str, Any], steps: Steps, c: Corrections
) -> tuple[np.ndarray, np.ndarray]:
    """(s, J) of the steps that phases make."""
    at = np.asarray(steps.phase)
    columns = {
        x: np.where(at >= 0, found[x][at.clip(0, len(found[x]) - 1)], 0.0)
        for x in ("time", "energy", "still")
    }
    span = np.full(len(at), np.nan)
    about = jax.device_get(kept(_composed, (columns, steps, c, span)))
    for i, one in enumerate(placed):
        if (order := one.order) is not None:  # all micro-batches, by the recursion
            kind, way, share = order.passes
            durations = about["ways"][i][kind, way] * share
            span[i] = instruction_ends(order.program, durations).max()
    answer = kept(_composed, (columns, steps, c, span))
    return np.asarray(answer["time"]), np.asarray(answer["energy"])


def _composed(
    columns: dict[str, Any], steps: Steps, c: Corrections, span: Float[Any, " r"]
) -> dict[str, Any]:
    """Steps of parts (r, k, p) whose pipelines take `span` (s), or what the closed form
    says (NaN); `ways`: time of a micro-batch forward and backward in each kind of
    virtual stages, its way to the next included."""
    steps, time, work, static = flat(columns, steps)
    alone = compose_step(time, steps, c)
    pipeline = jnp.where(jnp.isnan(span), alone.pipeline, span)
    found = compose_step(time, steps, c, pipeline)
    drawn = step_energy(time, work, static, found, steps)
    return {
        "time": found.time,
        "energy": drawn.energy,
        "ways": alone.micro.work + jnp.sum(alone.micro.exposed, axis=-1),
    }


# --- Derivatives of a training step's time and energy by clocks, links and hardware.

METRICS: Final = ("step_time_s", "energy_j")
_POINT: Final = {"sm_clock": "sm_clock", "power_limit": "power_cap"}


def check_fields(fields: Sequence[str]):
    """Raises `ValueError` for what cannot be differentiated by."""
    for name in fields:
        if name not in (NETWORK_FIELD, *_POINT, *FIELDS):
            raise ValueError(
                f"`sensitivity` has '{name}'; allowed are network (B/s of a GPU's "
                "network card), sm_clock, power_limit and fields of the GPU such as "
                "link_bandwidth (`diffenergy gpus show`)."
            )


def slopes(
    step: TrainingStep, gpu: GpuSpec, point: OperatingPoint, fields: Sequence[str]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Of each of `METRICS` by each field: `value` of the field, `per_unit` (metric's
    unit per SI unit), `per_percent` (% of the metric by one more % of the field).

    One forward derivative a field, all in one program; at a power limit that binds, or
    a clock that cannot be passed, it is that of the side on which the step is.
    """
    values = {name: jnp.asarray(_value(step, gpu, point, name)) for name in fields}

    def metrics(moved: dict[str, Array]) -> Array:
        board, at, work = gpu, point, step
        for name, x in moved.items():
            if name == NETWORK_FIELD:
                work = eqx.tree_at(lambda s: s.steps.network, work, x)
            elif name in _POINT:
                at = eqx.tree_at(lambda p, n=_POINT[name]: getattr(p, n), at, x)
            else:
                board = eqx.tree_at(lambda g, n=name: getattr(g, n), board, x)
        found = estimate(work, board, at)
        return jnp.stack([found.time, found.energy])

    def along(direction: dict[str, Array]) -> tuple[Array, Array]:
        return jax.jvp(metrics, (values,), (direction,))

    ones = jnp.eye(len(fields))
    directions = {name: ones[:, i] for i, name in enumerate(fields)}
    compiled = jax.jit(jax.vmap(along), compiler_options=compiler_options(once=True))
    at, table = jax.device_get(compiled(directions))
    return {
        metric: {
            name: _entry(float(values[name]), float(table[i, j]), float(at[i, j]))
            for i, name in enumerate(fields)
        }
        for j, metric in enumerate(METRICS)
    }


def _entry(value: float, slope: float, metric: float) -> dict[str, Any]:
    """What JSON has; a rate that is not there has no derivative."""
    if value == float("inf"):
        return {"value": None, "per_unit": None, "per_percent": None}
    return {"value": value, "per_unit": slope, "per_percent": slope * value / metric}


def _value(step: TrainingStep, gpu: GpuSpec, point: OperatingPoint, name: str) -> float:
    if name == NETWORK_FIELD:
        return float(step.steps.network)
    if name in _POINT:
        return float(getattr(point, _POINT[name]))
    return float(getattr(gpu, name))
