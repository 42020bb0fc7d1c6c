"""`diffenergy dvfs`: files, exit statuses, and figures that its parts add up to."""

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
def test_parts_of_the_answer_add_up(run: Run):
    """Rows to the plan; the power curve ends at the default."""
    model = ("gpt2", "--gpu", "a100-pcie-40gb", "--phase", "decode", "--batch", "8")
    more = ("--switch-latency", "0", "--max-slowdown", "3", "--power-curve", "--json")
    result = run("dvfs", *model, "--sm-clock", "600,1110,1410", *more).json
    assert 0 < result["time_change_pct"] <= 3 + 1e-6
    for key in ("time_s", "energy_j"):
        rows = sum(x["count"] * x[key] for x in result["schedule"])
        assert rows == pytest.approx(result[key], rel=1e-6)
    low, high = result["energy_j_p5_p95"]
    assert low < result["energy_j"] < high
    curve = result["power_curve"]
    assert curve[0]["power_limit_w"] == 150 and curve[-1]["power_limit_w"] == 250
    assert curve[-1]["time_s"] == pytest.approx(result["default"]["time_s"])
    for row in curve:
        assert row["tokens_per_s"] == pytest.approx(8 / row["time_s"])
        assert row["energy_j"] == pytest.approx(row["avg_power_w"] * row["time_s"])


def test_limits_that_cannot_be_kept_exit_with_3(run: Run, table: Path):
    done = run("dvfs", "--table", table, "--max-slowdown", "-3")
    assert done.code == 3 and "-1.50 %" in done.err and done.err.count("\n") == 1
    again = run("dvfs", "--table", table, "--max-slowdown", "-1.5", "--json").json
    assert again["time_change_pct"] == pytest.approx(-1.5, abs=1e-6)
    line = ("dvfs", "--table", table, "--switch-latency", "published")
    assert "no GPU is given" in run(*line).err
