"""A whole training run: one step, as often as its tokens need."""

import dataclasses
import json
from typing import Any

import pytest

import diffenergy as de
from diffenergy.estimator import prepare
from diffenergy.estimator._answer.whole_run import whole_run

STEP = {
    "time_s": 2.0,
    "energy_j": 9e3,
    "tokens_per_s": 50_000.0,
    "time_s_p5_p95": [1.5, 3.0],
    "energy_j_p5_p95": [7e3, 12e3],
}
GPT2: dict[str, Any] = dict(phase="train", batch=2, input_len=64, accumulation=3)


def test_by_hand():
    """1e9 tokens in steps of 1e5: 1e4 steps of 2 s and 9 kJ on eight GPUs."""
    found = whole_run(STEP | {"num_gpus": 8}, 1e9)
    assert found == {
        "tokens": 1e9,
        "steps": 1e4,
        "time_s": 2e4,
        "energy_j": 9e7,
        "gpu_hours": pytest.approx(8 * 2e4 / 3600),
        "energy_kwh": pytest.approx(25.0),
        "time_s_p5_p95": [1.5e4, 3e4],
        "energy_j_p5_p95": [7e7, 1.2e8],
    }
    assert whole_run(STEP, 1e9)["gpu_hours"] == pytest.approx(2e4 / 3600)
    assert whole_run(STEP, 1e5)["steps"] == 1.0


@pytest.fixture(scope="module")
def answer():
    return de.estimate("gpt2", "a100-sxm-80gb", tokens=3e11, **GPT2).summary


def test_an_answer_has_its_step_as_often(answer):
    run, tokens = answer["run"], 2 * 64 * 3
    assert run["steps"] == pytest.approx(3e11 / tokens)
    for name in ("time_s", "energy_j"):
        assert run[name] == pytest.approx(run["steps"] * answer[name])
        ends = [run["steps"] * x for x in answer[f"{name}_p5_p95"]]
        assert run[f"{name}_p5_p95"] == pytest.approx(ends)
    assert run["gpu_hours"] == pytest.approx(run["time_s"] / 3600)
    assert run["energy_kwh"] == pytest.approx(run["energy_j"] / 3.6e6)
    same = de.estimate("gpt2", "a100-sxm-80gb", **GPT2).summary
    assert {**same, "run": run} == answer


@pytest.mark.slow
def test_of_several_settings_each_has_its_own(answer):
    clocks = (900e6, 1410e6)
    task = prepare("gpt2", "a100-sxm-80gb", tokens=3e11, sm_clock=clocks, **GPT2)
    points = task.run().summary["points"]
    assert points[1]["run"]["time_s"] == pytest.approx(answer["run"]["time_s"])
    for point in points:
        steps = point["run"]["steps"]
        assert steps == pytest.approx(answer["run"]["steps"])
        assert point["run"]["energy_j"] == pytest.approx(steps * point["energy_j"])


def test_a_setting_out_of_reach_has_no_run():
    """12 W are less than an L4 needs: null beside the others where tokens are given,
    else no such key."""
    low: dict[str, Any] = dict(power_limit=[72.0, 12.0])
    low["changes"] = {"power_limit_min": 10.0}
    points = prepare("gpt2", "l4", tokens=1e9, **GPT2, **low).run().summary["points"]
    assert points[0]["run"] and points[1]["run"] is None
    points = prepare("gpt2", "l4", **GPT2, **low).run().summary["points"]
    assert not points[1]["feasible"] and not any("run" in x for x in points)


@pytest.mark.slow
def test_a_plan_counts_the_tokens_and_hours_of_all_gpus():
    given: dict[str, Any] = dict(phase="train", input_len=64, global_batch=8)
    given["plan"] = "dp=2,microbatch=2"
    found = de.estimate("gpt2", "a100-sxm-80gb", tokens=1e9, **given).summary
    run = found["run"]
    assert run["steps"] == pytest.approx(1e9 / (8 * 64))
    assert run["energy_j"] == pytest.approx(run["steps"] * found["energy_j"])
    assert run["gpu_hours"] == pytest.approx(2 * run["time_s"] / 3600)


def test_a_listing_of_a_step_knows_its_tokens(tmp_path, answer):
    from diffenergy.workload import listing_lines, load_model

    path = tmp_path / "step.jsonl"
    path.write_text(listing_lines(load_model("gpt2").listings(**GPT2)))
    found = de.estimate(str(path), "a100-sxm-80gb", tokens=3e11).summary
    assert found["run"]["steps"] == pytest.approx(answer["run"]["steps"])


def test_parts_of_a_model_stand_in_the_answer():
    task = prepare("gpt2", "a100-sxm-80gb", lora=8, **GPT2)
    assert task.about["lora"] == 8 and "frozen_layers" not in task.about
    task = prepare("gpt2", "a100-sxm-80gb", frozen_layers=3, **GPT2)
    assert task.about["frozen_layers"] == 3 and "lora" not in task.about
    plain = prepare("gpt2", "a100-sxm-80gb", **GPT2)
    assert not {"lora", "frozen_layers"} & set(plain.about)
    assert task.memory["gradients"] < plain.memory["gradients"]
    assert dataclasses.replace(task, tokens=1.0).tokens == 1.0
    json.dumps(task.about)
