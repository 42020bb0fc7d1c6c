"""One record of peak rates: whoever uses it follows the memory clock and the L2 rate.

By hand on an A100, with its memory at half its clock or an L2 that gives half as much.
"""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from diffenergy.corrections import Corrections
from diffenergy.hardware import OperatingPoint, load_gpu, read_gpu, unit_rates
from diffenergy.kernels import traced
from diffenergy.physics import waiting_power
from diffenergy.units import GHz

A100 = load_gpu("a100-pcie-40gb")
HALF_L2 = dataclasses.replace(A100, l2_bytes_per_cycle=A100.l2_bytes_per_cycle / 2)
IDLE = float(A100.idle_constant)  # W of the board and its memory
FULL, HALF = A100.mem_clock, A100.mem_clock / 2  # Hz
CLOCK = 1.0 * GHz
SETTINGS = ((A100, FULL), (A100, HALF), (HALF_L2, FULL))
COSTS: dict[str, Any] = {
    "l2_efficiency": 1.0, "dram_efficiency": 1.0, "launch_seconds": 0.0,
    "launch_cycles": 0.0, "activity_dram": 1.0, "memory_knee": 1e-6,
    "memory_idle": 0.4, "idle_scale": 1.0,
}  # fmt: skip
IDEAL = Corrections(**COSTS)


def test_rates_are_those_of_the_clocks():
    """10 SMs at 2 Hz, memory at half of its 8 Hz."""
    board: Any = SimpleNamespace(
        num_sms=10, sfu_ops_per_cycle=1, issue_slots_per_cycle=4, mem_clock=8.0,
        smem_bytes_per_cycle=16, l2_bytes_per_cycle=100, dram_bandwidth=1000.0,
        link_bandwidth=7.0,
    )  # fmt: skip
    assert unit_rates(board, 2.0, 4.0) == (20, 20, 80, 320, 200, 500, 7, 0.5)


def test_idle_power_falls_with_the_memory_clock():
    """By 0.4 of the constant part at half the clock x half."""
    at = jnp.asarray(CLOCK)
    watts = [
        float(waiting_power(gpu, IDEAL, at, OperatingPoint(at, mem, 250.0, 40.0)))
        for gpu, mem in SETTINGS
    ]
    assert watts[0] - watts[1] == pytest.approx(0.4 * 0.5 * IDLE, rel=1e-9)
    assert watts[2] == watts[0]


def test_traced_rows_are_a_share_of_the_rates():
    columns = dict.fromkeys(("tensor", "issue"), [0.0]) | {"l2": [0.3], "dram": [0.2]}
    row = traced.Traced(**columns, time=[1e-3])
    result = [traced.demand(row, gpu, IDEAL) for gpu in (A100, HALF_L2)]
    assert [float(x.dram[0, 0]) for x in result] == pytest.approx([0.2 * 1.5552e9] * 2)
    top = float(A100.l2_bytes_per_cycle * A100.sm_clock_max)
    shares = [float(x.l2[0, 0]) / top / 1e-3 for x in result]
    assert shares == pytest.approx([0.3, 0.15])


def test_reports_have_the_rates_of_the_card():
    """What pages and traces call DRAM bandwidth."""
    card = read_gpu("a100-pcie-40gb")
    rates = [card.rates(CLOCK, float(mem)).dram for mem in (FULL, HALF)]
    assert rates == pytest.approx([1.5552e12, 0.7776e12])
