"""`diffenergy dvfs`: files, exit statuses, and figures that its parts add up to."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Outcome

Run = Callable[..., Outcome]
TWO_KERNELS = """stage,instruction,frequency,memory_frequency,count,time,energy
forward,a,auto,auto,2,1.00,100
forward,a,1500,auto,2,0.98,80
forward,a,1200,auto,2,0.97,85
forward,b,auto,auto,2,1.00,100
forward,b,1500,auto,2,1.00,100
forward,b,1200,auto,2,1.01,65
"""
"""Two equal kernels: the best pair is (-2 %, -20 %) and (+1 %, -35 %)."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "two.csv"
    path.write_text(TWO_KERNELS)
    return path


@pytest.mark.slow
def test_the_model_saves_within_the_limit(run: Run):
    """Rows add up to the plan, the default is the estimate, the power curve ends
    there, and coarser plans save less."""
    model = ("gpt2", "--gpu", "a100-pcie-40gb", "--phase", "decode", "--batch", "8")
    clocks = ("--sm-clock", "600,900,1110,1260,1410", "--switch-latency", "0")
    result = run(
        "dvfs", *model, *clocks, "--max-slowdown", "3", "--power-curve", "--json"
    ).json
    assert 0 < result["time_change_pct"] <= 3 + 1e-6
    base = result["baselines"]
    assert result["energy_change_pct"] < base["phase"]["energy_change_pct"] <= 0
    assert base["iteration"]["time_change_pct"] <= 3 + 1e-6
    assert result["bound_energy_change_pct"] <= result["energy_change_pct"] + 1e-9
    estimate = run("estimate", *model, "--json").json
    for key in ("time_s", "energy_j"):
        rows = sum(x["count"] * x[key] for x in result["schedule"])
        assert rows == pytest.approx(result[key], rel=1e-6)
        assert result["default"][key] == pytest.approx(estimate[key], rel=1e-9)
    low, high = result["energy_j_p5_p95"]
    assert low < result["energy_j"] < high
    clocks = {x["sm_clock_mhz"] for x in result["schedule"]}
    assert clocks <= {None, 600.0, 900.0, 1110.0, 1260.0}
    assert {x["mem_clock_mhz"] for x in result["schedule"]} == {None}
    curve = result["power_curve"]
    assert curve[0]["power_limit_w"] == 150 and curve[-1]["power_limit_w"] == 250
    assert curve[-1]["time_s"] == pytest.approx(result["default"]["time_s"])
    for row in curve:
        assert row["tokens_per_s"] == pytest.approx(8 / row["time_s"])
        assert row["energy_j"] == pytest.approx(row["avg_power_w"] * row["time_s"])


def test_published_needs_a_gpu_beside_a_table(run: Run, table: Path):
    words = ("dvfs", "--table", table, "--switch-latency", "published")
    done = run(*words)
    assert done.code == 2 and "no GPU is given" in done.err
    named = ("--gpu", "h200-sxm", "--json")
    assert run(*words, *named).json["switch_latency_s"] == 0.006
    assert run(*words[:-2], *named).json["switch_latency_s"] == 0


def test_limits_that_cannot_be_kept_exit_with_3(run: Run, table: Path):
    done = run("dvfs", "--table", table, "--max-slowdown", "-3")
    assert done.code == 3 and "-1.50 %" in done.err and done.err.count("\n") == 1
    again = run("dvfs", "--table", table, "--max-slowdown", "-1.5", "--json").json
    assert math.isclose(again["time_change_pct"], -1.5, abs_tol=1e-6)
    words = ("--objective", "time", "--power-limit", "60")
    done = run("dvfs", "--table", table, *words)
    assert done.code == 3 and "`--power-limit`" in done.err
