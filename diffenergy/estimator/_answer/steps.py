"""Figures of a training step on many GPUs: time, joules of all of them, where both go.

What the phases of the workload are launched for stands in `plans.Steps`; here they
become the passes that a person knows (forward, backward, optimizer), of the mean GPU,
and the rest of the step, in which GPUs exchange and wait.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import equinox as eqx
import jax
import numpy as np

from ...compiling import call_compiled
from ...corrections import Corrections
from ...hardware import GpuCard
from ...physics import STATIC
from ...plans import (
    EXCHANGE_AXES,
    STEP_PARTS,
    Pipeline,
    StepEnergy,
    Steps,
    StepTime,
    Timeline,
    build_timeline,
)
from ...workload import Listing
from .._asking.checked import Checked
from .records import Estimate
from .step_estimate import StepEstimate, from_phases

_PASSES: Final = ("forward", "backward", "optimizer")
_NOTHING: Final = 1e-12
"""Share of a step that is rounding."""
WAITING: Final = "waiting"
"""What of a step the mean GPU neither computes nor updates weights."""


class Order(eqx.Module):
    """Order of a pipeline's instructions, part of the compiled program."""

    pipeline: Pipeline | None = eqx.field(static=True)


def composed(
    estimate: Estimate, steps: Steps, constants: Corrections, order: Order
) -> StepEstimate:
    return from_phases(estimate, steps, constants, order.pipeline)


@dataclasses.dataclass(frozen=True)
class Step:
    """A step with how often its GPUs run each phase (`weight`, of all GPUs)."""

    result: StepEstimate
    steps: Steps
    weight: np.ndarray
    kinds: np.ndarray
    """GPUs with a virtual stage of each kind, counted by stages of them."""
    order: Pipeline | None
    """Of the pipeline, where it can be followed one instruction by one."""
    rows: Sequence[int]
    """Kind of each stage's GPUs."""
    limit: float
    """Power limit of a GPU (W)."""

    @property
    def gpus(self) -> float:
        """GPUs of the plan."""
        return float(self.result.gpus)

    @functools.cached_property
    def timeline(self) -> Timeline | None:
        """Timeline of the step; None where it has too many instructions."""
        if self.order is None:
            return None
        p = self.result.phases.phases
        static = np.asarray(p.static_energy)
        return build_timeline(
            self.order,
            list(self.rows),
            self.steps,
            self.result.times,
            np.asarray(p.energy) - static,
            np.asarray(self.result.stages.stage_power),
            self.limit,
        )

    def passes(self, column: np.ndarray) -> dict[str, float]:
        """A quantity of phases by pass: the sum over the GPUs of the plan."""
        rows = np.asarray(self.steps.phase)
        totals = {}
        for name in _PASSES:
            at = rows[:, STEP_PARTS.index(name)]
            there = at[at >= 0]
            totals[name] = float((self.weight[there] * column[there]).sum())
        return totals


def step_of(task: Checked, estimate: Estimate) -> Step:
    """Compose the phases of an estimate into a training step."""
    assert task.step is not None
    steps, placed = task.step.steps, task.step.placed
    order = Order(placed.order)
    result = call_compiled(composed, (estimate, steps, task.gpu.corrections, order))
    result = jax.device_get(result)
    each = np.asarray(steps.members).T @ np.asarray(steps.count)
    calls = np.asarray(result.stages.calls) * each[:, None] * float(steps.abreast)
    weight = np.zeros(len(np.asarray(estimate.phases.time)))
    rows = np.asarray(steps.phase)
    weight[rows[rows >= 0]] = calls[rows >= 0]
    limit = float(task.settings[0].power_limit)
    return Step(result, steps, weight, each, placed.program, placed.kinds, limit)


def components(step: Step, estimate: Estimate) -> np.ndarray:
    """J of all GPUs by component, static power all along."""
    parts = np.asarray(estimate.phases.components)
    total = step.weight @ parts
    dynamic = total.copy()
    dynamic[STATIC] = 0.0
    still = float(step.result.energy) - dynamic.sum()
    share = total[STATIC] / total[STATIC].sum()
    dynamic[STATIC] = still * share
    return dynamic


def phases(step: Step, estimate: Estimate, limits: list[str]) -> dict[str, Any]:
    """Passes of the mean GPU, with the joules of all; they add up to the step."""
    p, gpus = estimate.phases, step.gpus
    time, energy = step.passes(np.asarray(p.time)), step.passes(np.asarray(p.energy))
    means = {
        "sm_clock_mhz": np.asarray(p.sm_clock) / 1e6,
        "temperature_c": np.asarray(p.temperature),
    }
    weighted = {k: step.passes(x * np.asarray(p.time)) for k, x in means.items()}
    sums = {"gpu_time_s": p.gpu_time, "host_time_s": p.host_time}
    summed = {k: step.passes(np.asarray(x)) for k, x in sums.items()}
    entries = {
        name: {
            "time_s": time[name] / gpus,
            "energy_j": energy[name],
            "avg_power_w": energy[name] / (time[name] / gpus),
            **{key: x[name] / time[name] for key, x in weighted.items()},
            **{key: x[name] / gpus for key, x in summed.items()},
            "limited_by": _limit(step, limits, name),
            "feasible": True,
        }
        for name in _PASSES
        if time[name] > 0
    }
    rest = float(step.result.time) - sum(x["time_s"] for x in entries.values())
    left = float(step.result.energy) - sum(x["energy_j"] for x in entries.values())
    if rest <= _NOTHING * float(step.result.time):
        return entries
    blank = dict.fromkeys((*means, *sums))
    entries[WAITING] = {
        "time_s": rest,
        "energy_j": left,
        "avg_power_w": left / rest if rest > 0 else None,
        **blank,
        "limited_by": "exchange",
        "feasible": True,
    }
    return entries


def kernels(
    step: Step, listings: Sequence[Listing], entries: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Kernels (`kernel_entries`) as the GPUs of a plan run them: `count` launches of
    one GPU in a step, `gpus` that have such a virtual stage (counted once for each),
    and `dynamic_j` of a launch, its joules beyond idle and leakage."""
    p = step.result.phases.phases
    static = np.asarray(p.static_power)
    phase = np.asarray(step.steps.phase)
    calls, abreast = np.asarray(step.result.stages.calls), float(step.steps.abreast)
    counted_entries, rows = [], iter(entries)
    for number, listing in enumerate(listings):
        kind, part = (int(x[0]) for x in np.nonzero(phase == number))
        gpus, times = step.kinds[kind] * abreast, float(calls[kind, part])
        for _ in listing.kernels:
            row = next(rows)
            beyond = (
                None
                if row["time_s"] is None
                else row["energy_j"] - static[number] * row["time_s"]
            )
            counted = {"count": row["count"] * times, "gpus": round(float(gpus))}
            counted_entries.append({**row, **counted, "dynamic_j": beyond})
    return counted_entries


def _limit(step: Step, limits: list[str], name: str) -> str:
    """Limiter of a pass, of the kind of virtual stages with most time in it."""
    rows = np.asarray(step.steps.phase)[:, STEP_PARTS.index(name)]
    there = [i for i in rows if i >= 0]
    times = np.asarray(step.result.phases.phases.time)
    return limits[max(there, key=lambda i: step.weight[i] * times[i])]


def figures(task: Checked, step: Step, tokens: int | float) -> dict[str, Any]:
    """Keys that a plan of training adds to an answer."""
    assert task.step is not None
    result, time = step.result, float(step.result.time)
    times: StepTime = result.times
    power = float(result.power)
    rate = dense_peak(task.card, str(task.about["dtype"]))
    flop = task.step.placed.flop(task.step.request)
    moved = np.asarray(times.moved)
    exposed = np.asarray(times.exposed)
    return {
        "step_time_s": time,
        "tokens_per_s_per_gpu": tokens / time / step.gpus,
        "power_per_gpu_w": power / step.gpus,
        "power_total_w": power,
        "peak_power_w": step.timeline.peak if step.timeline else None,
        "mfu": flop / (time * step.gpus * rate) if rate else None,
        "model_flops": flop,
        "memory_per_gpu_bytes": task.memory["total"],
        "bubble": max(float(times.bubble), 0.0),
        "exposed_communication": float(exposed.sum()) / time,
        "communication": {
            axis: {"total_s": float(moved[i]), "exposed_s": float(exposed[i])}
            for i, axis in enumerate(EXCHANGE_AXES)
        },
        "stages": _stages(task, step),
    }


def dense_peak(card: GpuCard, dtype: str) -> float:
    """Dense peak of the products of a type, FLOP/s: the published one, else that of the
    highest clock; 0 where the GPU has none."""
    kinds = {"tf32": "tf32", "fp32": "tf32", "fp16": "fp16"}
    kind = kinds.get(dtype, "bf16")
    if dtype.startswith(("fp8", "mxfp8", "int8")):
        kind = "fp8"
    if "fp4" in dtype:
        kind = "fp4"
    published = card.published.get(kind)
    if published:
        return float(published["flops"])
    values = card.values
    each = values[f"tensor_flop_per_cycle_{kind}"]
    return each * values["num_sms"] * values["sm_clock_max"]


def _stages(task: Checked, step: Step) -> list[dict[str, Any]]:
    """Every stage of the pipeline, first to last."""
    times: StepTime = step.result.times
    drawn: StepEnergy = step.result.stages
    clock = np.asarray(step.result.phases.phases.sm_clock)
    at = [STEP_PARTS.index(name) for name in ("backward", "forward")]
    each = np.asarray(step.steps.phase)[:, at]
    rows = np.where(each[:, 0] < 0, each[:, 1], each[:, 0])  # a frozen stage: forward
    members = np.asarray(step.steps.members)
    listed = []
    for stage, kind in zip(task.stages or [], step.rows, strict=True):
        chunks = [i for i in np.flatnonzero(members[kind] > 0) if rows[i] >= 0]
        clocks = [float(clock[rows[i]]) for i in chunks]
        listed.append(
            {
                **stage,
                "forward_s": float(np.asarray(times.forward)[kind]),
                "backward_s": float(np.asarray(times.backward)[kind]),
                "busy": float(np.asarray(drawn.busy)[kind]),
                "power_w": float(np.asarray(drawn.stage_power)[kind]),
                "sm_clock_mhz": math.fsum(clocks) / len(clocks) / 1e6,
            }
        )
    return listed
