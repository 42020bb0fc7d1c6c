"""Speed of frequency schedules.

    pytest tests/benchmarks/bench_dvfs.py -o python_files='bench_*.py' -o addopts=''

Wanted on two cores: a frontier of 871 limits for 46 kernels and 66 settings in under
1 s; one schedule of 10,000 launches and 100 settings with switching costs in under 5 s,
compilation included (a first call, not repeated here).
"""

from typing import Any

import jax
import numpy as np
import pytest

from diffenergy.dvfs import Objective, Problem, Rules, Switching, frontier, solve
from diffenergy.workload import Loop

LIMITS = 0.1 * np.arange(-20, 851)  # %


def random_problem(num_kernels: int, num_settings: int, turns: int) -> Problem:
    """A loop of random kernels, from core-bound to memory-bound."""
    rng = np.random.default_rng(0)
    clock = np.linspace(1.0, 0.3, num_settings)
    noise = rng.uniform(0.97, 1.03, (2, num_kernels, num_settings))
    bound = rng.uniform(0.1, 1.0, (num_kernels, 1))
    time = rng.uniform(1e-4, 1e-3, (num_kernels, 1)) * (bound / clock + 1 - bound)
    time = time * noise[0]
    energy = time * noise[1] * (100 + 250 * bound * clock**2.5)
    settings = np.stack([1e9 * clock, np.full(num_settings, np.nan)], axis=1)
    settings[0] = np.nan
    return Problem(
        kernels=tuple(f"kernel {i}" for i in range(num_kernels)), stages=("all",),
        stage=np.zeros(num_kernels, np.int64), count=np.full(num_kernels, float(turns)),
        settings=settings, time=time, energy=energy, default_time=time[:, 0].copy(),
        default_energy=energy[:, 0].copy(), power_cap=np.array([np.inf]),
        loops=(Loop(tuple(range(num_kernels)), turns),), host_time=np.zeros(1),
        wait_power=np.zeros(1),
    )  # fmt: skip


@pytest.mark.parametrize(
    "rules", [Rules(), Rules("local"), Rules(per_launch=True)], ids=repr
)
def test_frontier(benchmark: Any, rules: Rules):
    problem = random_problem(46, 66, 24)
    benchmark.pedantic(frontier, (problem, LIMITS, rules), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("warm", [False, True], ids=["with compilation", "warm"])
@pytest.mark.parametrize(
    "switching", [Switching("stall", 1e-4), Switching("lookahead", 6e-3)], ids=repr
)
def test_ten_thousand_launches(benchmark: Any, switching: Switching, warm: bool):
    problem, objective = random_problem(50, 100, 200), Objective(max_slowdown=3.0)
    rules = Rules(per_launch=True, switching=switching)

    def forget() -> None:
        if not warm:
            jax.clear_caches()

    benchmark.pedantic(
        solve, (problem, objective, rules), setup=forget, rounds=3, warmup_rounds=1
    )
