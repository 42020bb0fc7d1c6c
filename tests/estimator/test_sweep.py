"""Sweeps: every combination answers as it does alone, in the order given."""

import itertools
from typing import Any

import numpy as np
import pytest
from json_keys import check, check_part

import diffenergy as de
from diffenergy.estimator import _points, crossed
from diffenergy.keys import json_text

GPUS, BATCHES, LENGTHS = ("a10", "l4"), (1, 8), (64, 96)


@pytest.fixture(scope="module")
def frame():
    """gpt2 on two GPUs, two batches and lengths, three clocks, of which an A10 (up to
    1,695 MHz) lacks the last."""
    return de.sweep(
        "gpt2", GPUS, batch=BATCHES, input_len=LENGTHS, output_len=128,
        sm_clock=(9e8, 1.2e9, 1.8e9),
    )  # fmt: skip


def test_rows_are_the_product_in_the_order_of_the_axes(frame):
    names = ["gpu", "batch", "input_len", "sm_clock_set_mhz"]
    expected = itertools.product(GPUS, BATCHES, LENGTHS, (900.0, 1200.0, 1800.0))
    assert [tuple(row) for row in frame[names].to_numpy()] == [*expected]
    assert (frame["output_len"] == 128).all()
    lacking = (frame.gpu == "a10") & (frame.sm_clock_set_mhz == 1800)
    assert (frame["error"].notna() == lacking).all()


@pytest.mark.parametrize("row", [0, 10, 20])
def test_each_row_is_the_estimate_of_it_alone(frame, row: int):
    one = frame.iloc[row]
    alone = de.estimate(
        "gpt2", one.gpu, batch=int(one.batch), input_len=int(one.input_len),
        output_len=128, sm_clock=1e6 * one.sm_clock_set_mhz,
    ).summary  # fmt: skip
    for key in ("time_s", "energy_j", "avg_power_w", "ttft_s", "energy_j_per_token"):
        assert one[key] == pytest.approx(alone[key], rel=1e-9), key
    decode = alone["phases"]["decode"]["time_s"]
    assert one["phases_decode_time_s"] == pytest.approx(decode, rel=1e-9)
    assert one["grade"] == alone["grade"]
    assert one["time_s_p5_p95"] == pytest.approx(alone["time_s_p5_p95"], rel=1e-9)


SIX: dict[str, Any] = dict(
    dtype=["bf16", "fp32"], phase="prefill", input_len=64, sm_clock=[6e8, 9e8, 12e8]
)
"""Three clocks of two types."""


@pytest.mark.slow
def test_more_than_a_call_takes(monkeypatch):
    """Four in a call: cut, and filled up."""
    monkeypatch.setattr(_points, "_ROWS", 4)
    progress: list[tuple[int, int]] = []
    result = crossed("gpt2", ["l4"], **SIX, progress=lambda *x: progress.append(x))
    points = result.summary["points"]
    assert [point["dtype"] for point in points] == ["bf16"] * 3 + ["fp32"] * 3
    times = np.array([point["time_s"] for point in points])
    assert (np.diff(times[:3]) < 0).all() and (np.diff(times[3:]) < 0).all()
    alone = de.estimate("gpt2", "l4", **SIX | {"dtype": "fp32", "sm_clock": 9e8})
    assert times[4] == pytest.approx(alone.time, rel=1e-9)
    assert progress == [(4, 6), (6, 6)]
    assert result.summary["axes"] == ["dtype", "sm_clock_set_mhz"]
    assert result.summary["best_time"] == int(times.argmin())
    assert not result.interrupted


@pytest.mark.slow
def test_ctrl_c_keeps_the_points_so_far(monkeypatch):
    monkeypatch.setattr(_points, "_ROWS", 4)

    def stop(done: int, total: int):
        raise KeyboardInterrupt

    result = crossed("gpt2", ["l4"], **SIX, progress=stop)
    points = result.summary["points"]
    assert result.interrupted and len(points) == 6
    assert [("error" in point) for point in points] == [False] * 4 + [True] * 2
    assert points[5]["dtype"] == "fp32" and "interrupted" in points[5]["error"]
    assert "2 of 6" in result.warnings[-1]


@pytest.mark.slow
def test_what_cannot_be_says_why_beside_what_can():
    """1,800 MHz is beyond an A10 (1,695); a limit of 20 W below what either needs."""
    result = crossed(
        "gpt2", GPUS, phase="prefill", input_len=64, sm_clock=[9e8, 18e8],
    ).summary  # fmt: skip
    check("estimate", json_text(result))
    errors = ["error" in point for point in result["points"]]
    assert errors == [False, True, False, False]
    failed = result["points"][1]
    assert failed["gpu"] == "a10" and failed["sm_clock_set_mhz"] == 1800
    assert "a10 allows 210 to 1695 MHz" in failed["error"]
    limits = crossed(
        "gpt2", ["l4"], batch=[1, 2], phase="prefill", input_len=64,
        power_limit=[72.0, 12.0], changes={"power_limit_min": 10.0},
    ).summary["points"]  # fmt: skip
    assert [point["feasible"] for point in limits] == [True, False] * 2
    check_part("combination", limits[1])
    assert "cannot be kept" in limits[1]["error"] and limits[1]["energy_j"] is None
    low: dict[str, Any] = dict(phase="prefill", changes={"power_limit_min": 10.0})
    with pytest.raises(de.Infeasible, match="cannot be kept"):
        de.sweep("gpt2", "l4", batch=[1, 2], power_limit=12.0, **low)


def test_what_does_not_fit_is_not_the_least():
    """2 TB of caches take the fewest joules a token of all, on a GPU that has them."""
    low: dict[str, Any] = dict(phase="decode", input_len=1024)
    result = crossed("gpt2", ["l4"], batch=[1, 2, 60_000], **low).summary
    points = result["points"]
    assert [point["memory"]["fits"] for point in points] == [True, True, False]
    assert points[2]["energy_j_per_token"] < points[1]["energy_j_per_token"]
    assert result["best_energy_per_token"] == 1
    none = crossed("gpt2", ["l4"], batch=[60_000, 61_000], **low).summary
    assert none["best_time"] == 0


@pytest.mark.slow
def test_a_single_value_is_no_axis():
    result = crossed("gpt2", ["l4"], batch=[2], phase="prefill").summary
    assert result["axes"] == [] and result["gpu"] == "l4" and result["batch"] == 2
    assert len(result["points"]) == 1
