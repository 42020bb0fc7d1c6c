"""Kernels of a trace that keep their time; and what traces showed of other classes."""

import numpy as np
import pytest

from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.kernels.traced import shares


def run(work, clock: float = 1.0):
    """One phase a list of rows, at a share of the highest clock, without a limit."""
    gpu = load_gpu("h100-sxm")
    point = OperatingPoint(gpu.sm_clock_max * clock, gpu.mem_clock, 1e9, 50.0)
    return gpu, estimator.estimate_once(work, gpu, point, gpu.corrections)


@pytest.mark.parametrize("kind", shares())
def test_a_traced_kernel_keeps_its_time(sample, phases, kind):
    row = sample("traced", **{"class": kind, "traced_us": 40.0, "count": 5})
    for clock in (1.0, 0.6):
        _, found = run(phases([row]), clock)
        assert found.phases.time[0] == pytest.approx(200e-6, rel=1e-3)
        assert float(found.kernels.launch[0]) == 0.0


@pytest.mark.slow
def test_a_traced_kernel_draws_what_its_class_does(sample, phases):
    rows = [
        [sample("traced", **{"class": kind, "traced_us": 1000.0})]
        for kind in ("gemm", "elementwise", "collective")
    ]
    gpu, found = run(phases(*rows))
    gemm, stream, collective = np.asarray(found.phases.power)
    assert gemm > stream > collective > 100
    assert gemm < 1.2 * float(gpu.tdp)


# --- what traces showed of other classes


def kernel_times(work, name: str = "h100-sxm") -> np.ndarray:
    """us of each row alone, without a limit."""
    gpu = load_gpu(name)
    point = OperatingPoint(gpu.sm_clock_max, gpu.mem_clock, 1e9, 50.0)
    found = estimator.estimate_once(work, gpu, point, gpu.corrections)
    return np.asarray(found.phases.time) * 1e6


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


def test_softmax_of_odd_rows(sample, phases):
    """301,152 rows of 3,137 on an H100: 5,707 us."""
    row = lambda cols: [sample("softmax", rows=301_152, cols=cols, dtype="bf16")]  # noqa: E731
    odd, whole, mean = kernel_times(phases(row(3137), row(3136), row(3136.5)))
    assert odd == pytest.approx(5707, rel=0.15)
    assert odd > 1.6 * whole and mean == pytest.approx(whole, rel=1e-2)


def test_strided_maps_move_elements_one_by_one(sample, phases):
    """Copies of Qwen1.5 (9.2 million elements, 29 us) and TimeSformer (19.3, 59)."""
    copy = lambda n, fn: [  # noqa: E731
        sample("elementwise", fn=fn, elements=n, dtype="bf16", reads=1, writes=1)
    ]
    small, large, cat, plain = kernel_times(
        phases(
            copy(9_158_656, "strided_copy"),
            copy(19_273_728, "strided_copy"),
            copy(19_273_728, "strided_cat"),
            copy(19_273_728, "copy"),
        )
    )
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
