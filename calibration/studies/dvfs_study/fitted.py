"""The law of the study's GPU and kernels, fitted."""

import dataclasses
from collections.abc import Callable
from typing import Final

import jax.numpy as jnp
import numpy as np

from diffenergy.corrections import Corrections, prior_file
from diffenergy.fitting._clock_fit import ClockFit, fit_law
from diffenergy.fitting._clock_law import points
from diffenergy.fitting._clock_model import base_of
from diffenergy.hardware import GpuSpec, read_gpu
from diffenergy.units import pJ

from .campaigns import (
    DRAM_EFFICIENCY,
    KINDS,
    SETTINGS,
    Study,
    core_limit,
    kernel_priors,
    readings,
    starts,
)
from .joined import JoinedProblem
from .passes import pass_sums

GPU: Final = "rtx-3080-ti"
POWER_CAP: Final = 350.0
"""W; power limit of the study."""
_ENERGY_DRAM: Final = 60 * pJ
"""J/B: 53 W at 875 GB/s, a prior."""
_MEMORY_IDLE: Final = 0.886
"""Share of constant idle power that follows the memory clock: 59 of 66.6 W."""
_FLOW: Final = 33.0
"""B/cycle/SM: DRAM is at full rate from 0.33 GHz of the SM clock on."""
_SLOW_MEMORY: Final = 0.9
_STEPS: Final = 80
_TOLERANCE: Final = 1e-6


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a fit may choose without the data saying so.

    `bytes_sd`, `energy_sd`: prior widths of a GEMM's DRAM bytes and core energy.
    `energy_noise`: of one reading. `unlocked`, `knee`: factors on their prior centres.
    `retry`: every kernel tries other starts after the first fit.
    """

    name: str = "default"
    bytes_sd: float = 0.4
    energy_sd: float = 0.1
    energy_noise: float = 0.01
    unlocked: float = 1.0
    knee: float = 1.0
    retry: bool = False


CHOICES: Final = (
    Choice(),
    Choice("narrow bytes", bytes_sd=0.25),
    Choice("wide bytes", bytes_sd=0.8),
    Choice("narrow core energy", energy_sd=0.06),
    Choice("wide core energy", energy_sd=0.15),
    Choice("half the energy noise", energy_noise=0.005),
    Choice("lock mode + 30 %", unlocked=1.3),
    Choice("lock mode - 30 %", unlocked=0.7),
    Choice("knee - 5 %", knee=0.95),
    Choice("other starts", retry=True),
)
"""Starts and priors that the spread is taken over."""


def prior_corrections(gpu: GpuSpec) -> Corrections:
    """Constants of a law at their priors."""
    return dataclasses.replace(
        gpu.corrections,
        dram_efficiency=jnp.asarray(DRAM_EFFICIENCY),
        memory_idle=jnp.asarray(_MEMORY_IDLE),
        energy_dram=jnp.asarray(_ENERGY_DRAM),
    )


def fit_study(
    study: Study,
    choice: Choice = CHOICES[0],
    progress: Callable[[int, float], None] | None = None,
) -> ClockFit:
    """Law fitted on Figure 5 and, through nuisances, on Figures 3 and 4.

    The three numbers of a kernel can have several local optima (as few bytes as a
    kernel needs, or as many as its time at a low memory clock allows). Where `choice`
    says so, every kernel tries other latents after a first fit, and a second follows.
    `progress` is called with the number of evaluations and the cost.
    """
    gpu = read_gpu(GPU).served(prior_file())  # fits to other GPUs do not move it
    kinds = list(KINDS.values())
    core, _, _ = kinds[0].own
    own = (core, choice.bytes_sd, choice.energy_sd)
    kinds[0] = dataclasses.replace(kinds[0], own=own)
    priors = kernel_priors(study, gpu)
    tried = starts(study, priors, gpu)
    gpu = dataclasses.replace(
        gpu,
        vf_unlocked_slope=gpu.vf_unlocked_slope * choice.unlocked,
        vf_knee_clock=gpu.vf_knee_clock * choice.knee,
    )
    point = points(gpu, SETTINGS, core_limit(SETTINGS))
    corrections = prior_corrections(gpu)
    base = base_of(gpu, corrections, priors, POWER_CAP, _FLOW, _SLOW_MEMORY)
    read = readings(study, choice.energy_noise)
    sums = pass_sums(study, point)
    problem = JoinedProblem(base, point, read, kinds, sums, progress)
    fit = fit_law(problem, max_steps=_STEPS, tolerance=_TOLERANCE)
    if choice.retry:
        fit = fit_law(problem, problem.best_latents(fit.z, tried), _STEPS, _TOLERANCE)
    return fit


def fit_errors(study: Study, time: np.ndarray, energy: np.ndarray) -> dict[str, float]:
    """Root mean square of ln (law / Figure 5), %, of what was fitted."""
    k = study.kernels
    pairs = {
        "time_auto": (time[:, -1], k.time_auto_s),
        "time_min": (time.min(1), k.time_min_s),
        "time_max": (time.max(1), k.time_max_s),
        "energy_auto": (energy[:, -1], k.energy_auto_j),
        "energy_min": (energy.min(1), k.energy_min_j),
        "energy_max": (energy.max(1), k.energy_max_j),
    }
    return {
        name: 100 * float(np.sqrt(np.mean(np.log(modelled / read.to_numpy()) ** 2)))
        for name, (modelled, read) in pairs.items()
    }
