"""Power of a training step over time, through the public estimate."""

import csv
import io
import json

import json_keys
import numpy as np
import pytest

import diffenergy as de
from diffenergy.cli import main
from diffenergy.keys import json_text
from diffenergy.power_time import power_rows

PLAN = {"phase": "train", "plan": "pp=2,dp=2", "global_batch": 8, "input_len": 256}


COMMAND = (
    "estimate gpt2 --gpu h100-sxm --phase train --plan pp=2,dp=2 --global-batch 8 "
    "--input-len 256"
)


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


def test_the_trace_counts_node_and_wall(tmp_path, result):
    """Their means over the step are those of the curves."""
    path = tmp_path / "trace.json"
    assert main(f"{COMMAND} --node dgx-h100 --trace {path}".split()) == 0
    events = json.loads(path.read_text())["traceEvents"]
    for name in ("node", "wall"):
        own = [x for x in events if x["name"] == f"{name} (W)"]
        ends = np.append([x["ts"] for x in own], 1e6 * result.time)
        mean = np.diff(ends) @ [x["args"]["W"] for x in own] / ends[-1]
        assert mean == pytest.approx(result.curves[name].mean, rel=1e-4)


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


def test_the_command_writes_rows(tmp_path, capsys, result):
    path = tmp_path / "power.csv"
    words = f"{COMMAND} --power-step 2ms --power-trace {path}"
    assert main(words.split()) == 0
    assert "power over time (boards):" in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [*rows[0]] == ["t_s", "boards_w"] and float(rows[1]["t_s"]) == 0.002
    rows = power_rows(result.curves, 1e-3)
    assert [*rows[0]] == ["t_s", "boards_w", "node_w", "wall_w", "site_w"]
    joules = sum(x["boards_w"] for x in rows) * 1e-3
    expected = result.curves["boards"].joules([len(rows) * 1e-3])
    assert joules == pytest.approx(float(expected[0]))
    assert all(x["boards_w"] < x["node_w"] < x["wall_w"] for x in rows)


@pytest.mark.parametrize(
    "request_",
    [
        dict(batch=1, input_len=64, output_len=24, tp=2, node="dgx-h100"),
        dict(phase="train", batch=1, input_len=128, stack="eager"),
    ],
)
def test_launches_have_the_joules_of_the_answer(request_):
    """One after another they take its time and energy, on all GPUs; steps repeat."""
    result = de.estimate("gpt2", "h100-sxm", **request_, power_step=1e-3)  # pyright: ignore
    curve = result.curves["boards"]
    assert curve.time == pytest.approx(result.time, rel=1e-6)
    assert curve.energy == pytest.approx(result.energy, rel=1e-6)
    assert curve.periodic == (request_.get("phase") == "train")
    profile = result.summary["power_profile"]
    wall = curve.mean if "node" not in request_ else result.summary["wall_power_w"]
    assert profile["mean_w"] == pytest.approx(wall, rel=2e-3)
    assert "paused_share" not in profile


EVENTS = """
[[events]]
every_s = 1800
lasts_s = 60
[[events]]
every_s = 600
lasts_s = 6
kind = "work"
share = 0.25
"""


def test_events_grow_the_run(tmp_path):
    """1/30 of the time pauses and 1/100 in which a quarter of the boards works: the run
    and its joules grow by what a step brings of them; an H100 with a context that waits
    was read at 121 W."""
    path = tmp_path / "events.toml"
    path.write_text(EVENTS)
    more = {"tokens": 1e9, "node": "dgx-h100", "carbon": 400.0}
    plain = de.estimate("gpt2", "h100-sxm", **PLAN, **more).summary  # pyright: ignore
    result = de.estimate("gpt2", "h100-sxm", **PLAN, **more, events=str(path))  # pyright: ignore
    s, share = result.summary, 1 / 30 + 1 / 100
    json_keys.check("estimate", json_text(s))
    assert s["energy_j"] == plain["energy_j"]
    time = s["time_s"] / (1 - share)
    assert s["events"]["time_s"] == pytest.approx(share * time)
    power = s["energy_j"] / s["time_s"]
    idle = float(result.curves["boards"].watts.min()) / 4
    assert idle == pytest.approx(121, rel=0.08)
    joules = time * (4 * idle / 30 + (0.25 * power + 0.75 * 4 * idle) / 100)
    assert s["events"]["energy_j"] == pytest.approx(joules)
    assert s["run"]["steps"] == pytest.approx(plain["run"]["steps"])
    for key, run_key in (("time_s",) * 2, ("energy_j",) * 2, ("wall_energy_j",) * 2):
        grown = s["run"]["steps"] * (s[key] + s["events"][key])
        assert s["run"][run_key] == pytest.approx(grown)
    parts = s["run"]["wall_energy_j_by_part"]
    assert sum(parts.values()) == pytest.approx(s["run"]["wall_energy_j"])
    profile = s["power_profile"]
    assert profile["paused_share"] == pytest.approx(1 / 30 + 0.75 / 100)
    assert result.curves["boards"].time == 1800.0
    # a pause of a minute leaves boards and hosts idle: the least of the profile
    waits = de.load_node("dgx-h100").power(idle, 71.0, 4).wall
    assert profile["trough_w"] == pytest.approx(float(waits), rel=0.02)
