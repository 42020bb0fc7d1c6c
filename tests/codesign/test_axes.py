"""What can be varied, between which bounds, and what is legal there."""

import numpy as np
import pytest

from diffenergy.codesign import Range
from diffenergy.codesign._problem.legal import moves, nearest, roundings
from diffenergy.codesign._space.axes import axes
from diffenergy.codesign._space.task import grown
from diffenergy.hardware import read_gpu

H100 = read_gpu("h100-sxm")


def test_defaults_are_half_and_twice_and_what_hardware_offers():
    names = ("num_sms", "l2_capacity", "dram_bandwidth", "sm_clock", "power_cap")
    sms, l2, dram, clock, cap = axes(H100, [Range(name) for name in names])
    assert sms.legal == tuple(range(78, 265, 18))  # 132 +- GPCs of 18
    assert (l2.low, l2.high, l2.legal) == (2.62144e7, 1.048576e8, None)
    stack = 3.3523e12 / 5
    assert dram.legal == pytest.approx([n * stack for n in range(3, 11)])
    assert (clock.low, clock.high) == (3.45e8, 1.98e9)
    assert len(clock.legal or ()) == 110
    assert (cap.low, cap.high) == (200, 700)
    (memory,) = axes(read_gpu("rtx-3080-ti"), [Range("mem_clock")])
    assert memory.legal == pytest.approx([405e6, 810e6, 5001e6, 9251e6, 9501e6])


def test_what_depends_on_a_number_follows_it():
    spec = H100.spec
    values = {"num_sms": spec.num_sms * 2, "dram_bandwidth": spec.dram_bandwidth / 5}
    gpu = grown(spec, values)
    assert float(gpu.l2_bytes_per_cycle / spec.l2_bytes_per_cycle) == 2
    assert float(gpu.dram_capacity / spec.dram_capacity) == pytest.approx(0.2)
    faster = grown(spec, {"tensor_flop_per_cycle_bf16": 2 * 4096 * spec.num_sms**0})
    assert float(faster.tensor_flop_per_cycle_fp8) == 2 * 8192
    own = values | {"l2_bytes_per_cycle": spec.l2_bytes_per_cycle}
    assert grown(spec, own).l2_bytes_per_cycle == spec.l2_bytes_per_cycle


def test_rounding_goes_both_ways_and_steps_go_to_the_next_legal_value():
    table = axes(H100, [Range("num_sms"), Range("sm_clock"), Range("l2_capacity")])
    point = np.array([140.0, 1.001e9, 4e7])
    result = roundings(table, point, np.random.default_rng(0))
    assert {tuple(row[:2]) for row in result} == {
        (sms, clock) for sms in (132.0, 150.0) for clock in (9.9e8, 1.005e9)
    }
    legal = nearest(table, point[None])[0]
    assert tuple(legal) == (132.0, 1.005e9, 4e7)
    steps = [step for step in moves(table, legal) if step[0] < 2]
    assert steps == [(0, 114.0), (0, 150.0), (1, 9.9e8), (1, 1.02e9)]


def test_of_many_numbers_the_nearest_and_some_more_are_tried():
    """Eight clocks have 256 roundings; those drawn lie as near as they are likely."""
    table = axes(H100, [Range("sm_clock")]) * 8
    point = np.linspace(1.001e9, 1.004e9, 8)  # between 990 and 1005 MHz
    result = roundings(table, point, np.random.default_rng(0))
    assert 8 < len(result) <= 64
    near = nearest(table, point[None])[0]
    assert (result == near).all(axis=1).any()
    up = (result[:, [0, 7]] > 1e9).mean(axis=0)
    assert up[0] > 0.5 and up[1] > 0.8
