"""`diffenergy dvfs`: from a table and from the model."""

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Outcome

Run = Callable[..., Outcome]
MODEL = ("dvfs", "gpt2", "--gpu", "a100-pcie-40gb", "--phase", "decode", "--batch", "8")
MODEL = (*MODEL, "--sm-clock", "600,900,1110,1260,1410", "--switch-latency", "0")
"""A small schedule; variants that change numbers alone share its compilation."""
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


@pytest.fixture(scope="module")
def decode(run: Run) -> dict[str, Any]:
    return run(*MODEL, "--max-slowdown", "3", "--power-curve", "--json").json


def test_two_kernels_trade_time(run: Run, table: Path):
    found = run("dvfs", "--table", table, "--json").json
    assert found["time_change_pct"] == pytest.approx(-0.5)
    assert found["energy_change_pct"] == pytest.approx(-27.5)
    assert found["bound_energy_change_pct"] <= found["energy_change_pct"]
    assert found["default"] == {"time_s": 4.0, "energy_j": 400.0}
    assert [row["sm_clock_mhz"] for row in found["schedule"]] == [1500, 1200]
    assert found["baselines"]["power_limit"] is None
    local = run("dvfs", "--table", table, "--aggregation", "local", "--json").json
    assert local["energy_change_pct"] == pytest.approx(-10.0)
    assert local["schedule"][1]["sm_clock_mhz"] in (None, 1500.0)


def test_least_energy_needs_no_limit(run: Run, table: Path):
    found = run("dvfs", "--table", table, "--max-slowdown", "none", "--json").json
    assert found["energy_change_pct"] == pytest.approx(-27.5)
    assert found["max_slowdown_pct"] is None


@pytest.mark.slow
def test_the_model_saves_within_the_limit(decode: dict[str, Any]):
    assert 0 < decode["time_change_pct"] <= 3 + 1e-6
    base = decode["baselines"]
    assert decode["energy_change_pct"] < base["phase"]["energy_change_pct"] <= 0
    assert base["iteration"]["time_change_pct"] <= 3 + 1e-6
    assert base["power_limit"]["power_limit_w"] <= 250
    assert decode["bound_energy_change_pct"] <= decode["energy_change_pct"] + 1e-9
    rows = decode["schedule"]
    assert sum(x["count"] * x["time_s"] for x in rows) == pytest.approx(
        decode["time_s"], rel=1e-6
    )
    assert sum(x["count"] * x["energy_j"] for x in rows) == pytest.approx(
        decode["energy_j"], rel=1e-6
    )
    low, high = decode["energy_j_p5_p95"]
    assert low < decode["energy_j"] < high
    assert {x["sm_clock_mhz"] for x in rows} <= {None, 600.0, 900.0, 1110.0, 1260.0}
    assert {x["mem_clock_mhz"] for x in rows} == {None}


@pytest.mark.slow
def test_the_default_is_what_estimate_says(run: Run, decode: dict[str, Any]):
    words = ("estimate", *MODEL[1:8], "--json")
    found = run(*words).json
    for key in ("time_s", "energy_j"):
        assert decode["default"][key] == pytest.approx(found[key], rel=1e-9)


@pytest.mark.slow
def test_power_curve_goes_up_to_the_limit(decode: dict[str, Any]):
    curve = decode["power_curve"]
    assert curve[0]["power_limit_w"] == 150 and curve[-1]["power_limit_w"] == 250
    assert curve[-1]["time_s"] == pytest.approx(decode["default"]["time_s"])
    for row in curve:
        assert row["tokens_per_s"] == pytest.approx(8 / row["time_s"])
        assert row["energy_j"] == pytest.approx(row["avg_power_w"] * row["time_s"])


def test_one_clock_at_infinite_switching_cost(run: Run, table: Path):
    words = ("dvfs", "--table", table, "--max-slowdown", "5", "--json")
    single = run(*words, "--granularity", "iteration").json
    held = run(*words, "--switch-latency", "inf").json
    free = run(*words, "--switch-latency", "0").json
    assert held["energy_j"] == single["energy_j"]
    assert free["energy_j"] == run(*words).json["energy_j"] < single["energy_j"]


def test_free_is_the_bound_where_changes_cost(run: Run, table: Path):
    """Launches a b a b change three times, each for 1 J and 0.01 s at the 65 J / 1.01 s
    of the coolest launch; at 1200 MHz all of them take 300 J."""
    words = ("dvfs", "--table", table, "--max-slowdown", "5", "--json")
    cost = ("--switch-latency", "0.01", "--switch-energy", "1")
    found, free = run(*words, *cost).json, run(*words).json
    assert found["free"]["energy_j"] == pytest.approx(290) == free["energy_j"]
    spent = 290 + 3 * (1 + 0.01 * 65 / 1.01)
    assert (found["energy_j"], found["switches"]) == (pytest.approx(spent), 3)
    assert found["free"]["bound_energy_change_pct"] == pytest.approx(-27.5)
    done = run(*words[:-1], *cost)
    assert "a change of clocks takes 10.00 ms and 1.000 J, the GPU waits" in done.out
    assert "bound if changes were free: -27.50 % of energy" in done.out
    said = "one clock saves 25.0 of the 26.3 %: clocks per kernel are not worth it"
    assert found["advice"] == said and said in done.out
    assert "if changes were free" not in run(*words[:-1]).out


def test_published_needs_a_gpu_beside_a_table(run: Run, table: Path):
    words = ("dvfs", "--table", table, "--switch-latency", "published")
    done = run(*words)
    assert done.code == 2 and "no GPU is given" in done.err
    asked = ("--gpu", "h200-sxm", "--json")
    assert run(*words, *asked).json["switch_latency_s"] == 0.006
    assert run(*words[:-2], *asked).json["switch_latency_s"] == 0


def test_files_by_ending(run: Run, table: Path, tmp_path: Path):
    for ending in ("json", "csv", "py"):
        out = tmp_path / f"plan.{ending}"
        done = run("dvfs", "--table", table, "--out", out)
        assert done.code == 0, done.err
    with open(tmp_path / "plan.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["frequency"] for row in rows] == ["1500", "1200"]
    script = (tmp_path / "plan.py").read_text()
    compile(script, "plan.py", "exec")
    assert run("dvfs", "--table", table, "--out", table).code == 2
    assert table.read_text() == TWO_KERNELS


@pytest.mark.parametrize(
    "words, said",
    [
        ((), "`MODEL` is missing"),
        pytest.param(
            ("gpt2", "--seed", "1"), "`--seed` is given", marks=pytest.mark.slow
        ),
    ],
)
def test_bad_input_is_one_line(run: Run, words: tuple[str, ...], said: str):
    done = run("dvfs", *words)
    assert done.code == 2 and done.out == ""
    assert said in done.err and done.err.count("\n") == 1


def test_infeasible_limits_say_what_can_be_reached(run: Run, table: Path):
    done = run("dvfs", "--table", table, "--max-slowdown", "-3")
    assert done.code == 3 and "-1.50 %" in done.err
    again = run("dvfs", "--table", table, "--max-slowdown", "-1.5", "--json").json
    assert math.isclose(again["time_change_pct"], -1.5, abs_tol=1e-6)
    words = ("--objective", "time", "--power-limit", "60")
    done = run("dvfs", "--table", table, *words)
    assert done.code == 3 and "`--power-limit`" in done.err
