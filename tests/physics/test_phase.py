"""Host and GPU of a phase, and a board that waits, against each other and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.physics import (
    UNITS,
    chip_temperature,
    gpu_time_of_slope,
    make_demand,
    phase_time,
    stage_slope,
    stage_time,
    static_power,
    unit_seconds,
    waiting_power,
)

GPU = np.array([1.0, 0.9, 2.0, 0.0, 1e-6])
HOST = np.array([1.0, 1.0, 0.1, 3.0, 1.1e-6])


def test_both_forms_of_a_phase_agree():
    result = np.asarray(phase_time(jnp.asarray(GPU), jnp.asarray(HOST)))
    assert result == pytest.approx(stage_time(GPU, HOST), rel=1e-12)
    assert result[0] == pytest.approx(2 ** (1 / 20))
    slope = jax.grad(lambda x: phase_time(x, jnp.asarray(1.0)))(0.9)
    back = stage_slope(0.9, 1.0)
    assert float(slope) == pytest.approx(float(back), rel=1e-9)
    assert float(gpu_time_of_slope(back, 1.0)) == pytest.approx(0.9, rel=1e-9)


def test_a_board_that_waits_draws_idle_and_leakage_at_its_own_temperature():
    gpu = load_gpu("a100-sxm-80gb")
    clock = jnp.asarray([0.9e9, 1.41e9])
    point = OperatingPoint(clock, gpu.mem_clock + 0 * clock, gpu.tdp + 0 * clock)
    idle, leakage, reached = static_power(gpu, gpu.corrections, clock, 0 * clock, point)
    result = waiting_power(gpu, gpu.corrections, clock, point)
    assert np.asarray(result) == pytest.approx(np.asarray(idle + leakage), rel=1e-12)
    warm = np.asarray(chip_temperature(gpu, result))
    assert warm == pytest.approx(np.asarray(reached), rel=1e-6)


def test_units_take_their_work_at_their_rate():
    gpu = load_gpu("a100-sxm-80gb")
    c, clock, mem = gpu.corrections, jnp.asarray(1e9), gpu.mem_clock
    d = make_demand(
        fma=2e9, fma_peak=128.0, fma_efficiency=0.5, issue=1e6, math_issue=3e6,
        l2=2e9, store_l2=1e9, l2_sharing=3.0, dram=1e9, store_dram=1e9, link=1e9,
    )  # fmt: skip
    peak, reached = (
        dict(zip(UNITS, map(float, x), strict=True))
        for x in unit_seconds(d, gpu, c, clock, mem)
    )
    sms = float(gpu.num_sms)
    assert peak["fma"] == pytest.approx(2e9 / (128 * sms * 1e9))
    assert reached["fma"] == pytest.approx(2 * peak["fma"])
    slots = float(gpu.issue_slots_per_cycle) * sms * 1e9
    assert peak["issue"] == pytest.approx(4e6 / slots)
    assert peak["l2"] == pytest.approx(1e9 / (float(gpu.l2_bytes_per_cycle) * 1e9))
    assert peak["dram"] == pytest.approx(2e9 / float(gpu.dram_bandwidth))
    assert reached["dram"] == pytest.approx(peak["dram"] / float(c.dram_efficiency))
    assert peak["link"] == reached["link"] == 1e9 / float(gpu.link_bandwidth)
    assert peak["tensor"] == peak["sfu"] == peak["smem"] == 0
