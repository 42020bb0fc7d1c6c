"""How well a saving is known: solved again with numbers of the GPU that are not."""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from ...estimator import Task, sd_of
from ...hardware import GpuSpec
from .pricing import problem_of
from .problem import Problem

_HALF: Final = 1.645
"""Half width of the central 90 % over the sd."""


def saving_interval(
    task: Task, saving: float, solve: Callable[[Problem], float]
) -> tuple[float, float]:
    """5th and 95th percentile of a saving (a share), by its change with each of

    - the voltage above its floor, idle power and leakage of the board, by the quality
      of their source (as in every interval of power),
    - the joules of kernels, and the bandwidth of the memory, against which kernels that
      no SM clock moves are timed: by the errors of left-out steps in power and time,

    independent of each other. What all kernels have in common cancels in a saving.

    Args:
        task: with the clocks to choose from.
        saving: as it is.
        solve: the saving of a pipeline.
    """
    card, trust, gpu = task.card, task.trust, task.gpu
    sd = {
        ("vf_slope", "vf_curvature"): sd_of(card, "vf_slope"),
        ("idle_constant",): sd_of(card, "idle_constant"),
        ("idle_leakage",): sd_of(card, "idle_leakage"),
        ("core_energy",): float(trust.half_width("power", 1.0)) / _HALF,
        ("dram_bandwidth",): float(trust.half_width("time", 1.0)) / _HALF,
    }
    changes = [
        solve(problem_of(task, _scaled(gpu, names, float(np.exp(x))))) - saving
        for names, x in sd.items()
        if x
    ]
    half = _HALF * float(np.sqrt(np.sum(np.square(changes))))
    return max(saving - half, 0.0), saving + half


def _scaled(gpu: GpuSpec, names: tuple[str, ...], factor: float) -> GpuSpec:
    """The GPU with some numbers of it or of its constants times a factor."""
    for name in names:
        if hasattr(gpu, name):
            gpu = dataclasses.replace(gpu, **{name: getattr(gpu, name) * factor})
            continue
        c = gpu.corrections
        c = dataclasses.replace(c, **{name: getattr(c, name) * factor})
        gpu = dataclasses.replace(gpu, corrections=c)
    return gpu
