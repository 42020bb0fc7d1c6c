"""Figures of a few plans as `estimate` has them: stages as they are launched, pipelines
followed one instruction by one."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from ..compiling import kept
from ..estimator import packed, packed_alike
from ..hardware import GpuSpec, OperatingPoint
from ..plans import Plan, Steps, Training, instruction_ends, merge_steps, pad_steps
from ..workload import Listing, Workload
from ._pieces import distinct, figures
from ._ranking import compose_plans
from ._space import Space


@dataclasses.dataclass(frozen=True)
class Pricing:
    """Time (s) and energy (J of all GPUs) of a step of plans at SM clocks, and whether
    each GPU keeps its power limit."""

    time: Float[np.ndarray, "plan clock"]
    energy: Float[np.ndarray, "plan clock"]
    feasible: Bool[np.ndarray, "plan clock"]

    @property
    def power(self) -> Float[np.ndarray, "plan clock"]:
        """W of all GPUs."""
        return self.energy / self.time


def price_plans(
    space: Space,
    plans: Sequence[Plan],
    clocks: Float[np.ndarray, "plan clock"],
    gpu: GpuSpec,
    point: OperatingPoint,
    like: Workload,
    shape: tuple[int, int, int],
) -> Pricing:
    """Figures of plans at SM clocks (Hz), the rest of the operating point as in `point`
    (no axis).

    `like`: a workload, whose program prices the phases; `shape`: that of the ranking
    (`Ranked`), whose program composes the steps.
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
        columns.append((*_compose(placed, each, steps, gpu), feasible))
    time, energy, feasible = (np.stack(x, axis=1) for x in zip(*columns, strict=True))
    return Pricing(time, energy, feasible)


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
) -> tuple[np.ndarray, np.ndarray]:
    """(s, J) of the steps that phases make."""
    at, last = np.asarray(steps.phase), len(phases["time"]) - 1
    columns = {
        x: np.where(at >= 0, phases[x][at.clip(0, last)], 0.0)
        for x in ("time", "energy", "still")
    }
    span = np.full(len(at), np.nan)
    # First by the closed form, for the times of a micro-batch; then by the recursion.
    *_, ways = kept(compose_plans, (columns, steps, gpu.corrections, span))
    ways = jax.device_get(ways)
    for i, one in enumerate(placed):
        if (order := one.order) is not None:  # all micro-batches, by the recursion
            kind, way, share = order.passes
            durations = ways[i][kind, way] * share
            span[i] = instruction_ends(order.program, durations).max()
    time, energy, _ = kept(compose_plans, (columns, steps, gpu.corrections, span))
    return np.asarray(time)[: len(placed)], np.asarray(energy)[: len(placed)]
