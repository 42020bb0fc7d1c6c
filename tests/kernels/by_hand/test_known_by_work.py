"""Kernels of which only FLOP and bytes are known: a roofline."""

import numpy as np
import pytest

from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.workload import normalise_kernel


def run(work, clock: float = 1.0):
    """One phase a list of rows, at a share of the highest clock, without a limit."""
    gpu = load_gpu("h100-sxm")
    point = OperatingPoint(gpu.sm_clock_max * clock, gpu.mem_clock, 1e9, 50.0)
    return gpu, estimator.estimate_once(work, gpu, point, gpu.corrections)


@pytest.mark.slow
def test_custom_is_a_roofline(sample, phases):
    """1 TFLOP at half of the tensor peak; 10 GB at the rate of a long copy."""
    math = sample("custom", flop=1e12, bytes=1e6, dtype="bf16")
    bytes_ = sample("custom", flop=1e6, bytes=1e10, dtype="bf16")
    copy = sample("elementwise", fn="copy", elements=2.5e9, dtype="bf16")
    gpu, found = run(phases([math], [bytes_], [copy]))
    peak = float(gpu.tensor_flop_per_cycle_fp16 * gpu.num_sms * gpu.sm_clock_max)
    assert found.phases.time[0] == pytest.approx(1e12 / (0.5 * peak), rel=0.05)
    assert found.phases.time[1] == pytest.approx(float(found.phases.time[2]), rel=0.05)


@pytest.mark.slow
def test_custom_adds_up(sample, phases):
    """Work beside work takes at least the longer, at most both."""
    both = sample("custom", flop=1e12, bytes=6e9, dtype="bf16")
    math = sample("custom", flop=1e12, bytes=0, dtype="bf16")
    moved = sample("custom", flop=0, bytes=6e9, dtype="bf16")
    _, found = run(phases([both], [math], [moved]))
    whole, *parts = np.asarray(found.phases.time)
    assert max(parts) < whole < sum(parts)


def test_custom_in_fp32_runs_on_cuda_cores():
    row = normalise_kernel(dict(op="custom", flop=1, bytes=1, dtype="fp32"), "here")
    assert row["tensor_core"] is False
