"""What the page of an estimate shows beside its summary, against shapes and specs."""

import json
from pathlib import Path

import pytest

from diffenergy.estimator import (
    EstimateDetails,
    estimate_details,
    kernel_class,
    prepare,
    totals_by_class,
)

KERNELS = [
    {"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "count": 2.5},
    {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp32", "count": 0},
    {"op": "elementwise", "fn": "x", "elements": 1e8, "dtype": "bf16", "count": 1e9},
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> EstimateDetails:
    path: Path = tmp_path_factory.mktemp("odd") / "odd.jsonl"
    listing = {"name": "odd", "dispatch": "graph", "kernels": KERNELS}
    path.write_text(json.dumps(listing) + "\n")
    task = prepare(str(path), "k40c", sm_clock=[745e6], corrections="none")
    return estimate_details(task, task.run())


def test_kernels_and_roofs_are_those_of_shapes_and_clock(odd):
    product, never, stream = odd.kernels
    assert product["flop"] == pytest.approx(2 * 4096**3, rel=1e-3)
    assert never["flop"] is never["dram_bytes"] is None
    assert stream["flop"] == 0.0
    assert stream["dram_bytes"] == pytest.approx(2 * 2 * 1e8, rel=0.05)
    assert kernel_class("gemm") == "matrix products" == product["class"]
    # K40c: 15 SMs, 192 lanes of 2 FLOP, 745 MHz, no tensor cores
    (roof,) = odd.roofs
    assert roof.name == "CUDA cores"
    assert roof.flop_per_s == pytest.approx(15 * 384 * 745e6, rel=1e-3)
    assert odd.dram_bandwidth == pytest.approx(288e9, rel=0.01)
    summary = odd.result.summary  # classes and waiting are the whole
    parts = totals_by_class(odd.kernels, summary).values()
    for place, name in enumerate(("time_s", "energy_j")):
        total = sum(part[place] for part in parts)
        assert total == pytest.approx(summary[name], rel=1e-6)


def test_what_kernels_leave_is_waiting():
    """2 x 1 s and 2 x 3 J of 5 s and 10 J; what rounding leaves is no time."""
    kernel = {"op": "gemm", "count": 2, "time_s": 1.0, "energy_j": 3.0}
    for time, rest in ((5.0, {"waiting for the host": (3.0, 4.0)}), (2.000001, {})):
        parts = totals_by_class([kernel], {"time_s": time, "energy_j": 10.0})
        assert parts == {"matrix products": (2.0, 6.0)} | rest


def test_curves_pass_the_estimate_and_keep_their_limits(odd):
    clocks = [point["sm_clock_set_mhz"] for point in odd.clocks]
    assert clocks == sorted(clocks) and len(clocks) == 32
    limits = [point["power_limit_w"] for point in odd.limits]
    assert limits == sorted(limits)
    assert all(p["avg_power_w"] <= 1.01 * p["power_limit_w"] for p in odd.limits)
    near = [p for p in odd.clocks if p["sm_clock_set_mhz"] >= 745.0]
    assert near and near[0]["time_s"] <= odd.result.summary["time_s"] * (1 + 1e-9)
    assert odd.clocks[-1]["time_s"] == min(point["time_s"] for point in odd.clocks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "request_"),
    [
        ("tp=2,pp=2", {"phase": "prefill", "batch": 2}),
        ("pp=2,dp=2", {"phase": "train", "global_batch": 8}),
    ],
)
def test_curves_of_plans_are_of_all_gpus(plan: str, request_: dict):
    """The highest clock and the highest limit are those of the estimate."""
    task = prepare("gpt2", "h100-sxm", input_len=64, plan=plan, **request_)
    result = task.run()
    details = estimate_details(task, result)
    for points in (details.clocks, details.limits):
        for key in ("time_s", "energy_j"):
            assert points[-1][key] == pytest.approx(result.summary[key], rel=1e-6)
