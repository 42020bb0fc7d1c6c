"""`diffenergy plan --stage-clocks`: keys, files, picture, refusals."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Outcome

Run = Callable[..., Outcome]
PLAN = ("plan", "gpt2", "--gpu", "a40", "--input-len", "128", "--stage-clocks")
TWO = (*PLAN, "--plan", "pp=2", "--global-batch", "4", "--sm-clock", "1740,1500,1200")


@pytest.fixture(scope="module")
def told(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path]:
    """JSON, CSV and picture of a small pipeline."""
    folder = tmp_path_factory.mktemp("plan")
    out, plot = folder / "clocks.csv", folder / "clocks.png"
    found = run(*TWO, "--max-slowdown", "2", "--json", "--out", out, "--plot", plot)
    return found.json, out, plot


@pytest.mark.slow
def test_the_answer_has_the_fixed_keys(told: tuple[Any, Path, Path]):
    found, out, plot = told
    base, best = found["baseline"], found["best"]
    assert best["step_time_s"] <= 1.02 * base["step_time_s"] * (1 + 1e-9)
    assert found["lower_bound_j"] <= best["energy_j"] < base["energy_j"]
    saved = 100 * (1 - best["energy_j"] / base["energy_j"])
    assert found["saving_pct"] == pytest.approx(saved)
    assert found["max_slowdown_pct"] == pytest.approx(2)
    assert sum(found["split"]) == 12
    assert [x["layers"] for x in found["stages"]] == found["split"]
    assert plot.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_the_table_is_perseus(told: tuple[Any, Path, Path]):
    """Every passing of a stage, whose mean the JSON has."""
    found, out, _ = told
    with out.open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["stage", "instruction", "frequency", "time", "energy"]
    assert len(rows) == found["instructions"] == 16
    for number, stage in enumerate(found["stages"]):
        for entry in stage["instructions"]:
            mine = [
                x
                for x in rows
                if (int(x["stage"]), x["instruction"]) == (number, entry["instruction"])
            ]
            assert len(mine) == entry["count"] == 4
            for column, key in (
                ("time", "time_s"), ("energy", "energy_j"),
                ("frequency", "sm_clock_mhz"),
            ):  # fmt: skip
                mean = sum(float(x[column]) for x in mine) / 4
                assert entry[key] == pytest.approx(mean)


@pytest.mark.slow
def test_one_stage_is_said_not_refused(run: Run):
    found = run(*PLAN, "--plan", "dp=2", "--global-batch", "4", "--json")
    content = found.json
    assert content["saving_pct"] == pytest.approx(0, abs=1e-9)
    assert "the plan has one stage" in found.err


@pytest.mark.slow
def test_caps_of_hosts(run: Run):
    """What nothing keeps is refused with the least, which is kept."""
    refused = run(*TWO, "--node-power", "20")
    assert (refused.code, refused.out) == (3, "")
    (line,) = refused.err.splitlines()
    least = line.partition("a host draws ")[2].split()[0]
    kept = run(*TWO, "--node-power", least, "--json").json["node_power"]
    assert kept["mean_w"] <= kept["limit_w"] == float(least)
    slow = run(*TWO, "--node-power", least, "--max-slowdown", "0")
    assert (slow.code, slow.out) == (3, "")
    assert "`max_slowdown` of 0 %; the least is " in slow.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--plan", "pp=2", "--global-batch", "3", "--plan", "dp=2"), "`--plan`"),
        (("--plan", "pp=2", "--straggler", "1"), "STAGE=PERCENT"),
        (("--plan", "pp=2", "--power-limit", "200,300"), "give one"),
        (("--plan", "pp=2", "--out", "clocks.txt"), "clocks.txt"),
    ],
)
def test_what_cannot_be(run: Run, more: tuple[str, ...], said: str):
    found = run(*PLAN, *more)
    assert found.code == 2
    assert found.out == ""
    (line,) = found.err.splitlines()
    assert said in line
