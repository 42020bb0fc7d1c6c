"""`diffenergy fleet`: files, flags, exit statuses."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Outcome

Run = Callable[..., Outcome]
FLEET = Path("docs/examples/fleet/fleet.toml")


def test_files_and_flags(run: Run, tmp_path: Path):
    out, plot = tmp_path / "plan.csv", tmp_path / "plan.png"
    words = ("fleet", FLEET, "--objective", "carbon", "--json")
    result = run(*words, "--out", out, "--plot", plot).json
    assert result["status"] == "optimal" and result["headroom"]["demand_scale"] > 1
    with out.open() as lines:
        assert len(list(csv.DictReader(lines))) == len(result["plan"])
    assert plot.read_bytes()[:4] == b"\x89PNG"
    dear = run("fleet", FLEET, "--objective", "cost", "--price", "100", "--json").json
    assert dear["cost"] == pytest.approx(dear["energy_j"] / 3.6e9 * 100)
    wide = run("fleet", FLEET, "--power-budget", "50kW", "--json").json
    assert {x["budget_w"] for x in wide["site_power"]} == {50_000}
    series = tmp_path / "carbon.csv"
    series.write_text("slot,g\n" + "".join(f"{i},{100 + i}\n" for i in range(9)))
    longer = run(*words, "--carbon", series).json  # than the demand: cut
    assert len(longer["site_power"]) == len(result["site_power"])


def test_no_plan_says_why(run: Run):
    result = run("fleet", FLEET, "--power-budget", "2000", "--json")
    assert result.code == 3
    summary = json.loads(result.out)
    reason = summary["reason"]
    assert summary["status"] == "infeasible"
    assert (reason["limit"], reason["slot"], reason["budget_w"]) == ("power", 2, 2000)
    assert reason["remedy"] in result.err and result.err.strip().count("\n") == 0
