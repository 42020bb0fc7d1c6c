"""Time and energy of an iteration, exactly, from what its stages spend on the GPU.

The host issues a stage while the GPU runs it: stage time is the p-norm of both. While
the GPU waits it draws `Problem.wait_power`.
"""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .problem import Problem, Total

_HOST: Final = 20
"""Sharpness between host and GPU time of a stage, as in `estimator`."""
TIE: Final = 1e-9
"""Limits may be passed by this share: sums of floats in another order."""


Seconds = Float[np.ndarray, "..."] | float
"""Times of stages, or of one."""


class Spent(NamedTuple):
    """What the launches of each stage take on the GPU, waiting left out."""

    time: Float[np.ndarray, "*plan stage"]  # s
    energy: Float[np.ndarray, "*plan stage"]  # J


def stage_time(gpu: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """Time of stages (s): (gpu^20 + host^20)^(1/20), free of scale."""
    top = np.maximum(gpu, host)
    ratio = np.minimum(gpu, host) / np.where(top > 0, top, 1.0)
    return np.asarray(top * (1 + ratio**_HOST) ** (1 / _HOST))


def stage_slope(gpu: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """d stage time / d GPU time, 0-1."""
    time = stage_time(gpu, host)
    share = np.where(time > 0, gpu / np.where(time > 0, time, 1.0), 1.0)
    return np.asarray(share ** (_HOST - 1))


def tangent_offset(slope: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """Largest c (s) with stage time >= slope x GPU time + c for every GPU time.

    The dual norm: host (1 - slope^q)^(1/q) with q = 20/19.
    """
    dual = _HOST / (_HOST - 1)
    return np.asarray(host * np.maximum(1 - slope**dual, 0.0) ** (1 / dual))


def gpu_time(time: Seconds, host: Seconds) -> Float[np.ndarray, "..."]:
    """GPU time (s) at which a stage takes `time`; negative if the host needs longer."""
    ratio = host / np.where(time > 0, time, 1.0)
    inside = time * np.maximum(1 - ratio**_HOST, 0.0) ** (1 / _HOST)
    return np.where(ratio < 1, inside, -1.0)


def by_stage(
    problem: Problem, values: Float[np.ndarray, "*plan kernel"]
) -> Float[np.ndarray, "*plan stage"]:
    """Sums over the kernels of each stage."""
    return sums(values, problem.stage, len(problem.stages))


def sums(
    values: Float[np.ndarray, "*plan item"], group: Int[np.ndarray, " item"], num: int
) -> Float[np.ndarray, "*plan group"]:
    """Sums over the items of each of `num` groups; items may be infinite."""
    parts = [values[..., group == i].sum(-1) for i in range(num)]
    return np.stack(parts, axis=-1)


def chosen(problem: Problem, choice: Int[np.ndarray, "*plan kernel"]) -> Spent:
    """What one setting for every kernel takes."""
    kernels = np.arange(len(problem.kernels))
    return Spent(
        by_stage(problem, problem.count * problem.time[kernels, choice]),
        by_stage(problem, problem.count * problem.energy[kernels, choice]),
    )


def listed(
    problem: Problem,
    kernel: Int[np.ndarray, " row"],
    setting: Int[np.ndarray, " row"],
    count: Float[np.ndarray, " row"],
) -> Spent:
    """What the rows of a schedule take."""
    stage, num = problem.stage[kernel], len(problem.stages)
    return Spent(
        np.bincount(stage, count * problem.time[kernel, setting], num),
        np.bincount(stage, count * problem.energy[kernel, setting], num),
    )


def stage_totals(problem: Problem, spent: Spent) -> Spent:
    """Time and energy of every stage, waiting included."""
    time = stage_time(spent.time, problem.host_time)
    return Spent(time, spent.energy + problem.wait_power * (time - spent.time))


def total(problem: Problem, spent: Spent) -> Total:
    """Time and energy of the iteration."""
    stages = stage_totals(problem, spent)
    return Total(stages.time.sum(-1), stages.energy.sum(-1))


def within_caps(problem: Problem, spent: Spent) -> Bool[np.ndarray, "*plan"]:
    """Whether the mean power of every stage stays within its cap."""
    return np.asarray(np.all(cool_stages(problem, spent), axis=-1))


def cool_stages(problem: Problem, spent: Spent) -> Bool[np.ndarray, "*plan stage"]:
    """Stages whose mean power stays within their cap."""
    time, energy = stage_totals(problem, spent)
    free = np.isinf(problem.power_cap)
    most = np.where(free, np.inf, np.where(free, 0.0, problem.power_cap) * time)
    return np.asarray(energy <= most * (1 + TIE))


def default_total(problem: Problem) -> Total:
    """The iteration with every clock left alone; the limiter keeps the caps itself."""
    return total(
        problem,
        Spent(
            by_stage(problem, problem.count * problem.default_time),
            by_stage(problem, problem.count * problem.default_energy),
        ),
    )
