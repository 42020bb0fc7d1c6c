"""Activities: time by definition."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.units import GHz, MHz


def constants(**values: Any) -> Corrections:
    """Corrections with these values, the rest at their priors."""
    return Corrections(**values)


A100 = load_gpu("a100-pcie-40gb")


# activities ---------------------------------------------------------------------


def times(phases, rows: list[dict[str, Any]], clocks: list[float]) -> np.ndarray:
    """Time (s) of each row (rows) at each clock (MHz, columns)."""
    workload = phases(*([row] for row in rows for _ in clocks))
    size = (len(rows) * len(clocks),)
    point = OperatingPoint(
        jnp.asarray(clocks * len(rows)) * MHz,
        jnp.broadcast_to(A100.mem_clock, size),
        jnp.full(size, 1e9),
        jnp.full(size, 50.0),
    )
    c = constants(dram_efficiency=0.92)
    found = estimator.estimate_once(workload, A100, point, c).phases.time
    return np.asarray(found).reshape(len(rows), len(clocks))


REFERENCE = {"time_ref_us": 3000.0, "sm_clock_ref_mhz": 900.0}
SHARES = [
    {"dram_active": 0.0, "fp32_active": 0.5},
    {"dram_active": 0.5, "fp32_active": 0.2},
    {"dram_active": 0.85, "fp32_active": 0.0},
    {"dram_active": 0.3, "fp32_active": 0.1, "fp64_active": 0.4},
    {"dram_active": 0.3, "util_l2": 0.6, "util_sfu": 0.2, "sm_active": 0.7},
    {"dram_active": 0.2, "util_shared": 0.6, "util_int": 0.5, "util_branch": 0.3},
]


@pytest.mark.slow
def test_activities_take_their_reference_time(sample, phases):
    rows = [sample("activity", **REFERENCE, **shares) for shares in SHARES]
    at, slow = times(phases, rows, [900.0, 600.0]).T
    assert at == pytest.approx(3e-3, rel=2e-3)
    assert np.all((3e-3 < slow) & (slow < 1.51 * 3e-3))


@pytest.mark.slow
def test_without_memory_an_activity_follows_the_clock(sample, phases):
    clocks = [450.0, 900.0, 1350.0]
    row = sample("activity", dram_active=0, fp32_active=0.7, **REFERENCE)
    (got,) = times(phases, [row], clocks)
    assert got == pytest.approx(3e-3 * 900 / np.array(clocks), rel=1e-6)


@pytest.mark.slow
def test_a_memory_bound_activity_follows_the_memory_clock(sample, phases):
    row = sample("activity", dram_active=0.9, fp32_active=0, **REFERENCE)
    workload = phases([row], [row])
    point = OperatingPoint(
        [0.9 * GHz] * 2,
        jnp.asarray([1.0, 0.5]) * A100.mem_clock,
        [1e9] * 2,
        [50.0] * 2,
    )
    c = constants(dram_efficiency=0.92)
    fast, slow = estimator.estimate_once(workload, A100, point, c).phases.time
    assert 1.7 < slow / fast < 2


READ = {**REFERENCE, "dram_active": 0.3, "fp32_active": 0.2}


def reference_powers(
    sample, phases, clocks: list[float], powers: list[float]
) -> np.ndarray:
    """Power (W) at each clock of programs (rows) that were read at `powers` at their
    reference clock."""
    rows = [sample("activity", **READ, avg_power_ref_w=power) for power in powers]
    workload = phases(*([row] for row in rows for _ in clocks))
    size = (len(rows) * len(clocks),)
    point = OperatingPoint(
        jnp.asarray(clocks * len(rows)) * MHz,
        jnp.broadcast_to(A100.mem_clock, size),
        jnp.full(size, 1e9),
        jnp.full(size, jnp.nan),
    )
    found = estimator.estimate_once(workload, A100, point, Corrections()).phases
    return np.asarray(found.power).reshape(len(rows), len(clocks))


def test_what_a_reading_adds_follows_the_clock(sample, phases):
    """A reference power is met at its clock. Unexplained power is core work: more of it
    at a higher clock and voltage."""
    read = [80.0, 120.0, 180.0, 240.0]
    found = reference_powers(sample, phases, [600.0, 900.0, 1350.0], read)
    assert found[:, 1] == pytest.approx(read, rel=2e-3)
    added = found[2] - found[1]
    assert added[1] == pytest.approx(60, rel=2e-3)
    assert added[0] < 0.75 * 60 and added[2] > 1.5 * 60
