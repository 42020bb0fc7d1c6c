"""Launches one after another: order, waits, the host ahead of the GPU."""

from typing import Any

import numpy as np
import pytest

from diffenergy.estimator import slice_power, unroll, wait_power
from diffenergy.estimator._answer.unrolled import issue_times, launch_order, start_times
from diffenergy.workload import Listing


def row(count: float, **fields: Any) -> dict[str, Any]:
    return {"op": "rmsnorm", "rows": 1, "count": count, **fields}


def entry(time: float | None, energy: float, kernel: dict[str, Any]) -> dict[str, Any]:
    """What an estimate says of one launch of a kernel."""
    use = None if time is None else {"dram": 0.5}
    figures = {"time_s": time, "energy_j": energy, "utilization": use}
    return {**kernel, **figures, "limited_by": "dram"}


@pytest.mark.parametrize(
    ("rows", "passes", "most", "order", "launches", "turn"),
    [
        # a pass repeats its layers
        ([row(1), row(3), row(3), row(1)], 1, 100, [0, *[1, 2] * 3, 3], [1] * 8,
         [0] * 8),
        # two layers, three passes: the first one and a half at length 8, the rest at 16
        ([row(6), row(4, kv_len=8), row(2, kv_len=16)], 3, 100,
         [*[0, 1] * 4, *[0, 2] * 2], [1] * 12, [0] * 4 + [1] * 4 + [2] * 4),
        # passes that do not divide are one
        ([row(3), row(2)], 2, 100, [0, 0, 0, 1, 1], [1] * 5, [0] * 5),
        # passes beyond the limit are a slice a kernel
        ([row(6), row(6)], 3, 9, [0, 1] * 5, [1] * 8 + [2, 2],
         [0] * 4 + [1] * 4 + [2, 2]),
        # passes without end are no work
        ([row(2e9), row(1.5e9, kv_len=8), row(0.5e9, kv_len=16)], 1e9, 8,
         [*[0, 1] * 4, 0, 1, 2], [1] * 8 + [2e9 - 4, 1.5e9 - 4, 0.5e9], None),
    ],
)  # fmt: skip
def test_launches_in_order(rows, passes, most, order, launches, turn):
    result = launch_order(rows, passes, most)
    assert (result[0].tolist(), result[1].tolist()) == (order, launches)
    assert turn is None or result[2].tolist() == turn


@pytest.mark.parametrize(
    "rows",
    [[row(1e9), row(1e9)], [row(2.5), row(1)], [row(3), row(0)]],
    ids=["too many", "no whole number", "never launched"],
)
def test_every_launch_is_in_a_slice(rows: list[dict[str, Any]]):
    order, launches, _ = launch_order(rows, 1, 10)
    sums = np.bincount(order, launches, len(rows))
    assert sums.tolist() == [kernel["count"] for kernel in rows]


@pytest.mark.parametrize(
    ("times", "hosts", "whole", "starts"),
    [
        ([1.0, 2.0, 1.0], [0.5] * 3, 4.0, [0, 1, 3]),  # never waits
        # issued at 2 and 4 if the host starts with the GPU; 1 s each, 4 s in all
        ([1.0, 1.0], [2.0, 2.0], 4.0, [0, 3]),
        ([1.0, 1.0], [0.0, 0.0], 4.0, [1, 3]),  # what nothing explains lies between
    ],
)
def test_starts_of_launches(times, hosts, whole: float, starts: list[float]):
    result = start_times(np.array(times), np.array(hosts), whole)
    assert result.tolist() == starts


def test_the_host_is_just_in_time():
    for starts, begin in (([0.0, 3.0], [-2, 1]), ([0.0, 1.0], [-3, -1])):
        times = issue_times(np.array(starts), np.array([2.0, 2.0]))
        assert times.tolist() == begin


@pytest.mark.parametrize("seed", range(4))
def test_slices_never_overlap_and_end_with_their_phase(seed: int):
    random = np.random.default_rng(seed)
    listings, kernels, phases = [], [], []
    for number in range(3):
        counts = random.integers(1, 9, 6).astype(float)
        rows = [row(n) for n in counts.tolist()]
        once, power = random.exponential(1e-5, 6), random.uniform(100, 700, 6)
        each = zip(once.tolist(), (once * power).tolist(), rows, strict=True)
        kernels += [entry(*x) for x in each]
        busy = float(counts @ once)
        host = float(busy * random.choice([0.0, 0.2, 1.0, 3.0]))
        time = float(max(busy, host) * random.choice([1.0, 1.02]))
        own = kernels[-6:]
        energy = sum(k["count"] * k["energy_j"] for k in own) + 90.0 * (time - busy)
        listings.append(Listing(f"part {number}", kernels=tuple(rows)))
        phases.append({"time_s": time, "host_time_s": host, "energy_j": energy})
    result = unroll(listings, kernels, phases)
    end = result.start + result.time
    assert (result.start[1:] >= end[:-1] - 1e-12).all()
    spans = result.phases[result.phase]
    assert (result.start >= spans[:, 0] - 1e-12).all()
    assert (end <= spans[:, 1] + 1e-12).all()
    times = np.diff(result.phases).ravel()
    assert times == pytest.approx([phase["time_s"] for phase in phases], rel=1e-12)
    issued = result.host_start + result.host_time
    assert (issued <= result.start + 1e-12).all()
    assert (result.host_start[1:] >= issued[:-1] - 1e-12).all()
    assert result.host_start.min() >= 0
    waited = wait_power(result, kernels, phases)
    gpu = slice_power(result, kernels) * result.time
    left = times - np.bincount(result.phase, result.time)
    whole = np.bincount(result.phase, gpu) + left * np.nan_to_num(waited)
    assert whole == pytest.approx([phase["energy_j"] for phase in phases], rel=1e-6)
    assert waited[np.isfinite(waited)] == pytest.approx(90.0, rel=1e-3)
