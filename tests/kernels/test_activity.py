"""Activities: time by definition."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import estimator
from diffenergy.corrections import Corrections
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.units import MHz

A100 = load_gpu("a100-pcie-40gb")


REFERENCE = {"time_ref_us": 3000.0, "sm_clock_ref_mhz": 900.0}
SHARES = [
    {"dram_active": 0.0, "fp32_active": 0.7},
    {"dram_active": 0.9, "fp32_active": 0.0},
    {"dram_active": 0.5, "fp32_active": 0.2},
    {"dram_active": 0.3, "fp32_active": 0.1, "fp64_active": 0.4},
    {"dram_active": 0.3, "util_l2": 0.6, "util_sfu": 0.2, "sm_active": 0.7},
    {"dram_active": 0.2, "util_shared": 0.6, "util_int": 0.5, "util_branch": 0.3},
]
"""The first never waits for memory, the second for nothing else."""
READ = [80.0, 120.0, 180.0, 240.0]
"""W that a meter showed of programs that are otherwise alike."""
CLOCKS = [600.0, 900.0, 1350.0, 900.0]
"""MHz; the last with the memory at half its clock."""


@pytest.fixture(scope="module")
def runs(sample, phases) -> Any:
    """(time of `SHARES`, power of `READ`) at each of `CLOCKS` (columns)."""
    rows = [sample("activity", **REFERENCE, **shares) for shares in SHARES]
    usual = {"dram_active": 0.3, "fp32_active": 0.2}
    rows += [sample("activity", **REFERENCE, **usual, avg_power_ref_w=x) for x in READ]
    memory = jnp.asarray([1, 1, 1, 0.5] * len(rows)) * A100.mem_clock
    point = OperatingPoint(
        jnp.asarray(CLOCKS * len(rows)) * MHz,
        memory,
        jnp.full(memory.shape, 1e9),
        jnp.full(memory.shape, jnp.nan),
    )
    workload = phases(*([row] for row in rows for _ in CLOCKS))
    c = Corrections(dram_efficiency=0.92)  # pyright: ignore[reportArgumentType]
    result = estimator.estimate_once(workload, A100, point, c).phases
    time, power = (
        np.asarray(x).reshape(len(rows), -1) for x in (result.time, result.power)
    )
    return time[: len(SHARES)], power[len(SHARES) :]


def test_activities_take_their_reference_time(runs):
    slow, at, _, _ = runs[0].T
    assert at == pytest.approx(3e-3, rel=2e-3)
    assert np.all((3e-3 < slow) & (slow < 1.51 * 3e-3))


def test_what_limits_an_activity_sets_its_clock(runs):
    core, memory = runs[0][:2]
    assert core == pytest.approx(3e-3 * 900 / np.array(CLOCKS), rel=1e-6)
    assert 1.7 < memory[3] / memory[1] < 2


def test_far_below_the_knee_memory_falls_faster_than_the_clock(sample, phases):
    row = sample("activity", **REFERENCE, dram_active=0.9)
    clocks = jnp.asarray([150.0, 75.0]) * MHz
    full = jnp.full(2, A100.mem_clock)
    point = OperatingPoint(clocks, full, jnp.full(2, 1e9), jnp.full(2, jnp.nan))
    c = Corrections(memory_knee=0.9)  # pyright: ignore[reportArgumentType]
    slow, slower = estimator.estimate_once(
        phases([row], [row]), A100, point, c
    ).phases.time
    assert slower / slow == pytest.approx(2**1.5, rel=0.01)


def test_what_a_reading_adds_follows_the_clock(runs):
    """A reference power is met at its clock. Unexplained power is core work: more of it
    at a higher clock and voltage."""
    _, power = runs
    assert power[:, 1] == pytest.approx(READ, rel=2e-3)
    added = power[2] - power[1]
    assert added[1] == pytest.approx(60, rel=2e-3)
    assert added[0] < 0.75 * 60 and added[2] > 1.5 * 60
