"""Training steps on many GPUs: from the phases of a workload to a step."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...corrections import Corrections
from ...hardware import GpuSpec, OperatingPoint
from ...plans import (
    Pipeline,
    StepEnergy,
    Steps,
    StepTime,
    TrainingStep,
    compose_step,
    step_energy,
)
from .records import Estimate


class StepEstimate(eqx.Module):
    """Time, energy and power of a training step on all GPUs of a plan.

    `time`: s; `energy`: J of all boards; `power`: W of all; `gpus`: how many there are;
    `times`: where the time goes; `stages`: energy and power along the pipeline;
    `phases`: the estimate of what each kind of GPU launches.
    """

    time: Float[Array, "*r"]
    energy: Float[Array, "*r"]
    power: Float[Array, "*r"]
    gpus: Float[Array, "*r"]
    times: StepTime
    stages: StepEnergy
    phases: Estimate


def of_step(
    estimate: Any,
    work: TrainingStep,
    gpu: GpuSpec,
    point: OperatingPoint | None = None,
    corrections: Corrections | None = None,
) -> StepEstimate:
    """Training step of `work`, its phases by a function like `estimate`."""
    c = gpu.corrections if corrections is None else corrections
    phases = estimate(work.workload, gpu, point, corrections)
    return from_phases(phases, work.steps, c, work.order)


def from_phases(
    estimate: Estimate, steps: Steps, c: Corrections, order: Pipeline | None = None
) -> StepEstimate:
    """Compose phases into a training step, its pipeline in `order` (`compose_step`)."""
    p = estimate.phases
    times = compose_step(p.time, steps, c, order)
    static = jnp.asarray(p.static_power)
    drawn = step_energy(p.time, p.energy - static * p.time, static, times, steps)
    power = drawn.energy / times.time
    return StepEstimate(
        times.time, drawn.energy, power, steps.gpus, times, drawn, estimate
    )
