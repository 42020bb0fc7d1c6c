"""Kernels that keep a trace's time, kernels of known FLOP and bytes alone, and what
traces showed of other classes."""

import numpy as np
import pytest

from diffenergy import estimator
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.kernels.traced import shares


def estimated(work, name: str = "h100-sxm", clock: float = 1.0):
    """One phase a list of rows, at a share of the highest clock, without a limit."""
    gpu = load_gpu(name)
    point = OperatingPoint(gpu.sm_clock_max * clock, gpu.mem_clock, 1e9, 50.0)
    return estimator.estimate_once(work, gpu, point, gpu.corrections)


def test_a_traced_kernel_keeps_its_time_and_draws_what_its_class_does(sample, phases):
    kinds = list(shares())
    rows = [
        sample("traced", **{"class": kind, "traced_us": 1000.0, "count": 5})
        for kind in kinds
    ]
    work = phases(*([row] for row in rows))
    for clock in (1.0, 0.6):
        result = estimated(work, clock=clock)
        np.testing.assert_allclose(result.phases.time, 5e-3, rtol=1e-3)
        assert not np.any(result.kernels.launch)
    power = dict(zip(kinds, estimated(work).phases.power.tolist(), strict=True))
    assert power["gemm"] > power["elementwise"] > power["collective"] > 100
    assert power["gemm"] < 1.2 * float(load_gpu("h100-sxm").tdp)


@pytest.mark.slow
def test_custom_is_a_roofline(sample, phases):
    """1 TFLOP at half of the tensor peak; 10 GB at the rate of a long copy; work beside
    work takes at least the longer, at most both."""
    rows = [
        sample("custom", flop=flop, bytes=moved, dtype="bf16")
        for flop, moved in ((1e12, 1e6), (1e6, 1e10), (1e12, 6e9), (0, 6e9))
    ]
    rows.append(sample("elementwise", fn="copy", elements=2.5e9, dtype="bf16"))
    result = estimated(phases(*([row] for row in rows)))
    math, moved, both, part, copy = np.asarray(result.phases.time)
    gpu = load_gpu("h100-sxm")
    peak = float(gpu.tensor_flop_per_cycle_fp16 * gpu.num_sms * gpu.sm_clock_max)
    assert math == pytest.approx(1e12 / (0.5 * peak), rel=0.05)
    assert moved == pytest.approx(copy, rel=0.05)
    assert max(math, part) < both < math + part


def test_custom_in_fp32_runs_on_cuda_cores(sample):
    assert sample("custom", flop=1, bytes=1, dtype="fp32")["tensor_core"] is False


# --- what traces showed of other classes


def kernel_times(work, name: str = "h100-sxm") -> np.ndarray:
    """us of each row alone, without a limit."""
    return np.asarray(estimated(work, name).phases.time) * 1e6


@pytest.mark.slow
@pytest.mark.parametrize(
    "m, n, k, batch, traced",
    [
        (3137, 3137, 64, 96, 1897),
        (3137, 64, 3137, 96, 1694),
        (141, 30522, 512, 1, 41.3),
    ],
)
def test_products_of_odd_lengths_leave_the_fast_kernels(
    sample, phases, m, n, k, batch, traced
):
    """TimeSformer's attention over 3,137 tokens and BERT's head on an H100, us; what is
    a multiple of 8 is faster."""
    odd = sample("gemm", m=m, n=n, k=k, batch=batch, dtype="bf16")
    even = {x: -(-y // 8) * 8 for x, y in (("m", m), ("n", n), ("k", k))}
    whole = sample("gemm", **even, batch=batch, dtype="bf16")
    slow, fast = kernel_times(phases([odd], [whole]))
    assert slow == pytest.approx(traced, rel=0.15)
    assert slow > 1.6 * fast
    older = kernel_times(phases([odd], [whole]), "a100-sxm-80gb")
    assert older[0] < 2.2 * older[1]  # there all products run as these do


def test_softmax_of_odd_rows_and_strided_maps(sample, phases):
    """301,152 rows of 3,137 on an H100: 5,707 us. Copies of Qwen1.5 (9.2 million
    elements, 29 us) and TimeSformer (19.3, 59) move elements one by one."""
    reductions = [
        sample("softmax", rows=301_152, cols=cols, dtype="bf16")
        for cols in (3137, 3136, 3136.5)
    ]
    maps = [
        sample("elementwise", fn=fn, elements=n, dtype="bf16", reads=1, writes=1)
        for n, fn in (
            (9_158_656, "strided_copy"), (19_273_728, "strided_copy"),
            (19_273_728, "strided_cat"), (19_273_728, "copy"),
        )
    ]  # fmt: skip
    times = kernel_times(phases(*([row] for row in reductions + maps)))
    odd, whole, mean, small, large, cat, plain = times
    assert odd == pytest.approx(5707, rel=0.15)
    assert odd > 1.6 * whole and mean == pytest.approx(whole, rel=1e-2)
    assert small == pytest.approx(29.2, rel=0.15)
    assert large == pytest.approx(59.2, rel=0.15)
    assert cat == pytest.approx(83, rel=0.2)  # 71 and 95
    assert plain < 0.65 * large


def test_patches_of_images(sample, phases):
    """16 x 16 of 3 channels on an H100, with their layout kernels; 4 and 128 images."""
    fields = {
        "out_channels": 768, "input_hw": 224, "kernel_size": 16, "stride": 16,
        "padding": 0, "groups": 1, "dtype": "bf16",
    }  # fmt: skip
    rows = [
        [sample("conv2d", images=images, in_channels=channels, **fields)]
        for channels in (3, 16)
        for images in (4, 128)
    ]
    patches, usual = kernel_times(phases(*rows)).reshape(2, 2)
    assert patches == pytest.approx([121, 1198], rel=0.1)
    assert np.all(patches > usual)
