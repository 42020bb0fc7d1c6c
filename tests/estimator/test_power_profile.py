"""Power of a training step over time, through the public estimate."""

import csv
import io

import json_keys
import pytest

import diffenergy as de
from diffenergy.cli import main
from diffenergy.estimator import power_rows
from diffenergy.keys import json_text

PLAN = {"phase": "train", "plan": "pp=2,dp=2", "global_batch": 8, "input_len": 256}


@pytest.fixture(scope="module")
def result():
    return de.estimate("gpt2", "h100-sxm", **PLAN, power_step=1e-3, node="dgx-h100")  # pyright: ignore


def test_the_curve_has_the_joules_of_the_answer(result):
    boards, wall = result.curves["boards"], result.curves["wall"]
    assert boards.energy == pytest.approx(result.energy, rel=1e-4)
    assert boards.time == pytest.approx(result.time, rel=1e-6)
    # fans of air-cooled nodes lag behind, so that the mean is that of the mean power
    assert wall.energy == pytest.approx(result.summary["wall_energy_j"], rel=2e-3)
    profile = result.summary["power_profile"]
    assert profile["of"] == "wall"
    assert profile["trough_w"] <= profile["mean_w"] <= profile["peak_w"]
    json_keys.check("estimate", json_text(result.summary))


def test_rows_add_up(result):
    rows = power_rows(result.curves, 1e-3)
    assert [*rows[0]] == ["t_s", "boards_w", "node_w", "wall_w", "site_w"]
    end = len(rows) * 1e-3
    joules = sum(x["boards_w"] for x in rows) * 1e-3
    curve = result.curves["boards"]
    assert joules == pytest.approx(float(curve.joules([end])[0]))
    assert all(x["boards_w"] < x["node_w"] < x["wall_w"] for x in rows)


def test_a_floor_burns_what_lies_below_it(result):
    """The floor at 0.9 of 700 W: the joules of the curve below it, on 4 boards."""
    smooth = de.estimate("gpt2", "h100-sxm", **PLAN, smooth="floor=0.9")  # pyright: ignore
    floor = 4 * 0.9 * 700
    curve = result.curves["boards"]
    width = curve.edges[1:] - curve.edges[:-1]
    below = float((floor - curve.watts).clip(0) @ width)
    assert smooth.summary["smoothing"]["burn_j"] == pytest.approx(below, rel=1e-6)
    assert smooth.summary["power_profile"]["of"] == "boards"
    json_keys.check("estimate", json_text(smooth.summary))


def test_the_command_writes_rows(tmp_path, capsys):
    path = tmp_path / "power.csv"
    words = "estimate gpt2 --gpu h100-sxm --phase train --plan pp=2,dp=2"
    words += f" --global-batch 8 --input-len 256 --power-step 2ms --power-trace {path}"
    assert main(words.split()) == 0
    assert "power over time (boards):" in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [*rows[0]] == ["t_s", "boards_w"] and float(rows[1]["t_s"]) == 0.002
