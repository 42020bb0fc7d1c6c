"""Figures of a few plans as `estimate` has them: stages as they are launched, pipelines
followed one instruction by one."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from ..compiling import call_compiled
from ..estimator import packed, packed_alike
from ..hardware import GpuSpec, OperatingPoint
from ..plans import (
    Plan,
    Steps,
    Training,
    build_timeline,
    instruction_ends,
    merge_steps,
    pad_steps,
)
from ..power_time import SUPPLY_LAG, PowerCurve, ramps
from ..workload import Listing, Workload
from ._pieces import distinct, figures
from ._ranking import compose_plans, compose_powers
from ._space import Space


@dataclasses.dataclass(frozen=True)
class Pricing:
    """Time (s) and energy (J of all GPUs) of a step of plans at SM clocks, and whether
    each GPU keeps its power limit; where power over time is limited `swing` (W) and
    `ramp` (W/s), see `variations`."""

    time: Float[np.ndarray, "plan clock"]
    energy: Float[np.ndarray, "plan clock"]
    feasible: Bool[np.ndarray, "plan clock"]
    swing: Float[np.ndarray, "plan clock"] | None = None
    ramp: Float[np.ndarray, "plan clock"] | None = None

    @property
    def power(self) -> Float[np.ndarray, "plan clock"]:
        """W of all GPUs."""
        return self.energy / self.time

    def joined(self, other: "Pricing") -> "Pricing":
        """These plans and those of another one."""
        columns = {
            name: np.concatenate([x, getattr(other, name)])
            for name, x in vars(self).items()
            if x is not None
        }
        return Pricing(**columns)


def price_plans(
    space: Space,
    plans: Sequence[Plan],
    clocks: Float[np.ndarray, "plan clock"],
    gpu: GpuSpec,
    point: OperatingPoint,
    like: Workload,
    shape: tuple[int, int, int],
    over_time: bool = False,
) -> Pricing:
    """Figures of plans at SM clocks (Hz), the rest of the operating point as in `point`
    (no axis).

    `like`: a workload, whose program prices the phases; `shape`: that of the ranking
    (`Ranked`), whose program composes the steps; `over_time`: also how power varies.
    """
    placed = [Training(space.model, x, space.host, space.global_batch) for x in plans]
    works = [
        x.work(x.request(phase="train", input_len=space.input_len, **space.request))
        for x in placed
    ]
    owner = np.repeat(np.arange(len(works)), [len(x) for x, _ in works])
    phases, steps = merge_steps(works)
    steps = _filled(steps, shape)
    # more than half of the phases of the best plans are those of others
    first, same = distinct(phases, clocks[owner])
    parts = _packed([phases[i] for i in first], like)
    columns = []
    for column in clocks.T:
        each = _phases(parts, column[owner][first], gpu, point)
        each = {name: x[same] for name, x in each.items()}
        feasible = np.ones(len(plans), bool)
        np.logical_and.at(feasible, owner, each["feasible"])
        time, energy, span = _compose(placed, each, steps, gpu)
        column = time, energy, feasible
        if over_time:
            curves = _curves(placed, each, steps, span, gpu)
            pairs = [variations(space, *x) for x in zip(plans, curves, strict=True)]
            column = *column, *np.array(pairs).T
        columns.append(column)
    return Pricing(*(np.stack(x, axis=1) for x in zip(*columns, strict=True)))


def variations(
    space: Space, plan: Plan, curve: PowerCurve | None
) -> tuple[float, float]:
    """Swing (W: peak less trough behind power supplies) and largest ramp (W/s, of means
    of 1 s) of a plan's step, at the wall where the node is known, else of all boards;
    infinite where the step is too long to be followed."""
    if curve is None:
        return np.inf, np.inf
    if space.site is not None:
        curve = space.site.curves(curve, plan.gpus)["wall"]
    behind = curve.filtered(SUPPLY_LAG).values
    return float(behind.max() - behind.min()), max(ramps(curve))


def _filled(steps: Steps, shape: tuple[int, int, int]) -> Steps:
    """Steps filled up to a `shape`: the first one again, kinds that nothing has."""
    rows, kinds, stages = shape
    wide = pad_steps(steps, kinds, stages)
    more = max(rows - len(wide.count), 0)

    def longer(x: Any) -> np.ndarray:
        each = np.asarray(x)
        return np.concatenate([each, each[:1].repeat(more, axis=0)])

    return jax.tree.map(longer, wide)


def _packed(phases: Sequence[Listing], like: Workload) -> list[tuple[int, Workload]]:
    """Phases in as few workloads as the program of `like` needs for them, with how many
    each has."""
    if workload := packed(phases, like):
        return [(len(phases), workload)]
    if len(phases) == 1:
        return [(1, packed_alike(phases, 1)[0])]
    half = len(phases) // 2
    return [*_packed(phases[:half], like), *_packed(phases[half:], like)]


def _phases(
    parts: Sequence[tuple[int, Workload]],
    clocks: Float[np.ndarray, " phase"],
    gpu: GpuSpec,
    point: OperatingPoint,
) -> dict[str, np.ndarray]:
    """Figures of all phases, each at its SM clock (Hz)."""
    columns, start = [], 0
    for number, workload in parts:
        names = [field.name for field in dataclasses.fields(OperatingPoint)]
        each = {x: np.full(number, getattr(point, x)) for x in names}
        each["sm_clock"] = clocks[start : start + number]
        columns.append(figures(workload, gpu, OperatingPoint(**each), number))
        start += number
    return {name: np.concatenate([x[name] for x in columns]) for name in columns[0]}


def _compose(
    placed: Sequence[Training],
    phases: dict[str, np.ndarray],
    steps: Steps,
    gpu: GpuSpec,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(s, J) of the steps that phases make, and s of their pipelines, NaN where the
    closed form says it."""
    columns = _columns(phases, steps)
    span = np.full(len(np.asarray(steps.phase)), np.nan)
    # First by the closed form, for the times of a micro-batch; then by the recursion.
    *_, ways = call_compiled(compose_plans, (columns, steps, gpu.corrections, span))
    ways = jax.device_get(ways)
    for i, one in enumerate(placed):
        if (order := one.order) is not None:  # all micro-batches, by the recursion
            kind, way, share = order.passes
            durations = ways[i][kind, way] * share
            span[i] = instruction_ends(order.program, durations).max()
    time, energy, _ = call_compiled(
        compose_plans, (columns, steps, gpu.corrections, span)
    )
    number = len(placed)
    return np.asarray(time)[:number], np.asarray(energy)[:number], span


def _columns(phases: dict[str, np.ndarray], steps: Steps) -> dict[str, np.ndarray]:
    """Figures of phases as those of the steps' parts."""
    at, last = np.asarray(steps.phase), len(phases["time"]) - 1
    return {
        x: np.where(at >= 0, phases[x][at.clip(0, last)], 0.0)
        for x in ("time", "energy", "still")
    }


def _curves(
    placed: Sequence[Training],
    phases: dict[str, np.ndarray],
    steps: Steps,
    span: np.ndarray,
    gpu: GpuSpec,
) -> list[PowerCurve | None]:
    """Power of all boards over a step of each plan; None where it has too many
    micro-batches."""
    columns, c = _columns(phases, steps), gpu.corrections
    times, powers = jax.device_get(
        call_compiled(compose_powers, (columns, steps, c, span))
    )
    curves: list[PowerCurve | None] = []
    for i, one in enumerate(placed):
        program = one.program
        if program is None:
            curves.append(None)
            continue
        step, time = (jax.tree.map(lambda x: x[i], y) for y in (steps, times))  # noqa: B023
        parts = step, time, phases["energy"], powers[i]
        edges, watts = build_timeline(program, one.kinds, *parts).curve()
        curves.append(PowerCurve(edges, watts[:-1], periodic=True))
    return curves
