"""`estimate` of a listing: one kernel by hand, what its passes wait for."""

import dataclasses
import json
import math

import pytest

from diffenergy.corrections import prior_file, write_corrections
from diffenergy.estimator import prepare


@pytest.mark.slow
def test_intervals_follow_the_grade(run, tmp_path):
    """Passes of the A10 alone were fitted, of other GPUs other rows; time is as wide as
    left-out rows, energy no less (the voltage of a board may be a guess)."""
    widths = {"calibrated": 0.1, "transferred": 0.2, "forecast": 0.5}
    file = dataclasses.replace(
        prior_file(),
        fitted_on={
            "rows": {"a10:workload": {"time": 50, "power": 50, "ops": ["softmax"]}},
            "architectures": {"a10": "architecture:Ampere"},
        },
        spread={
            f"workload:{grade}": {q: [size] * 4 for q in ("time", "power", "energy")}
            for grade, size in widths.items()
        },
    )
    constants, listing = tmp_path / "c.json", tmp_path / "one.jsonl"
    constants.write_text(write_corrections(file))
    kernel = dict(op="softmax", rows=4096, cols=4096, dtype="fp16")
    line = {"name": "one", "dispatch": "eager", "kernels": [kernel]}
    listing.write_text(json.dumps(line))
    for flags, grade, width in (
        (("a10",), "calibrated", 0.1),
        (("h200-sxm",), "forecast", 0.5),
        (("a100-pcie-40gb",), "transferred", 0.2),
        (("a10", "--set", "num_sms=70"), "forecast", 0.5),
    ):
        args = ("estimate", listing, "--corrections", constants, "--gpu", *flags)
        found = run(*args, "--json").json
        assert found["grade"] == grade
        assert found["grades"] == dict.fromkeys(("time", "power", "energy"), grade)
        around = [found["time_s"] * math.exp(side * width) for side in (-1, 1)]
        assert found["time_s_p5_p95"] == pytest.approx(around), flags
        low, high = found["energy_j_p5_p95"]
        assert low <= found["energy_j"] * math.exp(-width) * (1 + 1e-9), flags
        assert low * high == pytest.approx(found["energy_j"] ** 2)


@pytest.mark.slow
def test_the_interval_is_shown_beside_the_grade(run, tmp_path):
    listing = listing_of_one(tmp_path / "one.jsonl", dispatch="graph")
    shown = " ".join(run("estimate", listing, "--corrections", "none").out.split())
    assert "grade: datasheet (5 to 95 %: time " in shown


def listing_of_one(file, **more):
    gemm = dict(op="gemm", m=4096, n=4096, k=4096, dtype="half", count=3)
    never = dict(op="softmax", rows=8, cols=8, dtype="fp32", count=0)
    file.write_text(json.dumps({"name": "one", "kernels": [gemm, never], **more}))
    return file


def test_a_listing_of_one_kernel_by_hand(run, tmp_path):
    file = listing_of_one(tmp_path / "one.jsonl", dispatch="graph")
    found = run("estimate", file, "--json", "--detail").json
    first, second = found["kernels"]
    assert first["op"] == "gemm" and first["dtype"] == "fp16"
    assert 3 * first["time_s"] == pytest.approx(found["time_s"], rel=1e-9)
    flops = 2 * 4096**3 / first["time_s"]
    peak = 132 * 4096 * found["sm_clock_mhz"] * 1e6
    assert first["utilization"]["tensor"] == pytest.approx(flops / peak, rel=0.01)
    assert second["time_s"] is None and second["limited_by"] is None
    assert found["phase"] is None and list(found["phases"]) == ["forward"]
    assert found["ttft_s"] is found["energy_j_per_token"] is None


@pytest.mark.slow
def test_kernels_alone_wait_for_no_host(run, tmp_path):
    """Without module calls a graph, with them a pass; each may be said otherwise."""

    def found(*flags, **more):
        file = listing_of_one(tmp_path / "one.jsonl", **more)
        return run("estimate", file, *flags, "--json").json

    alone = found()
    assert alone["assumed"]["dispatch"] == alone["dispatch"] == "graph"
    assert alone["phases"]["forward"]["host_time_s"] == 0
    stepped = found(module_calls=2)
    assert stepped["assumed"]["dispatch"] == stepped["dispatch"] == "eager"
    assert stepped["phases"]["forward"]["host_time_s"] > 0
    said = found(dispatch="eager")
    assert "dispatch" not in said["assumed"] and said["dispatch"] == "eager"
    assert said["phases"]["forward"]["host_time_s"] > 0
    asked = found("--dispatch", "graph", module_calls=2, dispatch="eager")
    assert "dispatch" not in asked["assumed"]
    assert asked["time_s"] == alone["time_s"]


def test_the_title_of_kernels_is_whole(run, tmp_path):
    file = listing_of_one(tmp_path / "mine.jsonl", name=None)
    assert run("estimate", file).out.splitlines()[1] == (
        "mine on h100-sxm: kernel listing"
    )


def test_many_modules_wait_for_the_host(run, tmp_path):
    file = listing_of_one(tmp_path / "one.jsonl", module_calls=10_000)
    found = run("estimate", file, "--json").json
    assert found["limited_by"] == "host"
    phase = found["phases"]["forward"]
    assert found["time_s"] >= phase["host_time_s"] > phase["gpu_time_s"]


def test_an_activity_without_a_time_is_no_silent_second(tmp_path):
    file = tmp_path / "activity.jsonl"
    kernel = {"op": "activity", "dram_active": 0.5}
    file.write_text(json.dumps({"name": "a", "kernels": [kernel]}))
    (note,) = prepare(str(file)).warnings
    assert "time_ref_us" in note and "only its power" in note
