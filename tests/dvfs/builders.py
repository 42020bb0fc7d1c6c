"""Small random problems, and exhaustive search through all their schedules."""

import itertools

import numpy as np
import pytest

from diffenergy.dvfs import Objective, Problem
from diffenergy.dvfs._export import apply_script
from diffenergy.dvfs._modelled import Modelled, clock_pairs, modelled
from diffenergy.dvfs._paths import lasting
from diffenergy.dvfs._positions import Positions, positions
from diffenergy.dvfs._problem import (
    Spent,
    Total,
    chosen,
    default_total,
    listed,
    total,
    within_caps,
)
from diffenergy.workload import Loop

KINDS = ("table", "host", "caps", "both")
"""Which of host time and stage caps a problem has."""


def random_problem(
    seed: int,
    kind: str = "table",
    num_kernels: int = 4,
    num_settings: int = 4,
    turns: int = 2,
) -> Problem:
    """Two stages with a loop each; slower settings mostly take less energy.

    One kernel of the second stage stands twice in its loop, one cannot run at the last
    setting.
    """
    rng = np.random.default_rng(seed)
    shape = (num_kernels, num_settings)
    clock = np.linspace(1.0, 0.5, num_settings)
    bound = rng.uniform(0.1, 1.0, (num_kernels, 1))
    time = rng.uniform(1.0, 3.0, (num_kernels, 1)) * (bound / clock + 1 - bound)
    power = 100 + 200 * bound * clock**2 * rng.uniform(0.8, 1.2, shape)
    time = time * rng.uniform(0.95, 1.05, shape)
    time[0, -1] = np.inf
    half = num_kernels // 2
    second = tuple(range(half, num_kernels))
    loops = (Loop(tuple(range(half)), turns), Loop((*second, second[0]), turns))
    count = np.full(num_kernels, float(turns))
    count[half] *= 2
    stage = (np.arange(num_kernels) >= half).astype(int)
    gpu = np.bincount(stage, count * time[:, 0])
    draw = np.bincount(stage, count * (time * power)[:, 0]) / gpu
    host = np.array([0.9, 1.1]) * gpu if kind in ("host", "both") else np.zeros(2)
    caps = 0.9 * draw if kind in ("caps", "both") else np.full(2, np.inf)
    settings = np.stack([clock * 1e9, np.full(num_settings, np.nan)], axis=1)
    settings[0] = np.nan
    slow = 1.05 if kind in ("caps", "both") else 1.0
    return Problem(
        kernels=tuple(f"kernel {i}" for i in range(num_kernels)),
        stages=("first", "second"), stage=stage, count=count, settings=settings,
        time=time, energy=time * power, default_time=time[:, 0] * slow,
        default_energy=(time * power)[:, 0] * 0.97, loops=loops, power_cap=caps,
        host_time=host, wait_power=np.array([60.0, 80.0]),
    )  # fmt: skip


def all_choices(num: int, num_settings: int) -> np.ndarray:
    """Every choice of a setting for each of `num`."""
    return np.array(list(itertools.product(range(num_settings), repeat=num)))


def best_value(problem: Problem, spent: Spent, objective: Objective) -> float:
    """Least value among plans, and the default clocks, that keep limits and caps."""
    default = default_total(problem)
    result = total(problem, spent)
    remaining = objective.keeps(result, default) & within_caps(problem, spent)
    values = objective.value(result)[remaining]
    if objective.keeps(default, default):
        values = np.append(values, objective.value(default))
    return float(values.min(initial=np.inf))


def exhaustive(problem: Problem, objective: Objective) -> float:
    """Least value over all choices of one setting for every kernel."""
    choice = all_choices(*problem.time.shape)
    with np.errstate(invalid="ignore"):
        spent = finite(chosen(problem, choice))
    return best_value(problem, spent, objective)


def all_plans(places: Positions, latency: float | None = None) -> Spent:
    """All settings of all positions, each of which stays for `latency`."""
    choice = all_choices(len(places.kernel), len(places.problem.settings))
    choice = choice[places.problem.usable[places.kernel, choice].all(1)]
    if latency is not None:
        choice = choice[[lasting(places, x, latency) for x in choice]]
    return places.spent(choice)


def finite(spent: Spent) -> Spent:
    """Only the plans whose kernels can all run."""
    remaining = np.isfinite(spent.time).all(-1)
    return Spent(spent.time[remaining], spent.energy[remaining])


def between(bound: float, optimum: float, value: float) -> bool:
    """Whether bound <= optimum <= value, but for rounding."""
    return bound <= optimum * (1 + 1e-7) and optimum <= value * (1 + 1e-7)
