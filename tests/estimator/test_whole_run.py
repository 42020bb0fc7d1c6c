"""A whole training run: one step, as often as its tokens need."""

import json
from typing import Any

import pytest

import diffenergy as de
from diffenergy.estimator import prepare
from diffenergy.hardware import default_point, idle_power, read_gpu
from diffenergy.nodes import load_node
from diffenergy.physics import waiting_power
from diffenergy.power_time import goodput_of
from diffenergy.workload import listing_lines, load_model

GPT2: dict[str, Any] = dict(phase="train", batch=2, input_len=64, accumulation=3)


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
    assert (run["tokens"], run["goodput"], run["useful_s"]) == (3e11, 1, run["time_s"])
    assert run["lost_s"] == run["waiting_s"] == 0
    assert run["gpu_hours"] == pytest.approx(run["time_s"] / 3600)
    assert run["energy_kwh"] == pytest.approx(run["energy_j"] / 3.6e6)
    same = de.estimate("gpt2", "a100-sxm-80gb", **GPT2).summary
    same["assumed"]["goodput"] = 1.0
    (warning,) = (x for x in answer["warnings"] if x not in same["warnings"])
    assert "`--mtbf`" in warning
    assert {**same, "run": run, "warnings": answer["warnings"]} == answer


@pytest.mark.parametrize(
    ("gpus", "mtbf", "every", "share", "tau"),
    [
        (16_384, 50_700, None, 0.911, 472),  # Llama 3 405B: 419 stops in 54 days
        (16_384, 50_700, 1800, 0.876, 1800),
        (2_048, 50_700, None, 0.979, None),
        (100_000, 50_700, None, 0.69, None),
        (16_384, 29_500, None, 0.868, None),  # RSC-1 (arXiv 2410.21680)
    ],
)
def test_goodput_by_hand(gpus, mtbf, every, share, tau):
    """600 s to restart, 10 s a checkpoint. Counted out: in s of useful steps, as many
    checkpoints as fit, as many failures as their time has, half an interval lost at
    each."""
    result = goodput_of(gpus, None, mtbf, 600.0, 10.0, every)
    assert result and result.every
    assert result.share == pytest.approx(share, abs=5e-3 if gpus > 2e4 else 6e-4)
    assert tau is None or result.every == pytest.approx(tau, abs=0.5)
    between, steps = mtbf * 3600 / gpus, 1e6
    written = steps * (1 + 10 / result.every)
    failures = written / between
    whole = written + failures * (600 + result.every / 2)
    assert result.share == pytest.approx(steps / whole)
    assert result.restarts and result.restarts * steps == pytest.approx(failures)


@pytest.mark.parametrize(
    ("stated", "node"), [("mtbf", "dgx-a100"), ("mtbf", None), ("goodput", None)]
)
def test_a_run_counts_what_failures_cost(stated: str, node: str | None):
    """Its seconds add up; energy is that of the steps and of work done again, and that
    of boards which wait (at the wall of their node, which stays on)."""
    failing = dict(mtbf=1.0, restart=300.0, checkpoint_time=20.0)
    options: dict[str, Any] = failing if stated == "mtbf" else {"goodput": 0.8}
    own = de.estimate("gpt2", "a100-sxm-80gb", tokens=1e9, node=node, **options, **GPT2)
    run, time = own.summary["run"], own.summary["time_s"]
    parts = [run[x] for x in ("useful_s", "lost_s", "waiting_s")]
    assert sum(parts) == pytest.approx(run["time_s"])
    assert parts[0] == pytest.approx(run["steps"] * time)
    assert run["goodput"] == pytest.approx(parts[0] / run["time_s"])
    if stated == "mtbf":  # M 3,600 s, tau sqrt(2 x 20 x 3,600) s
        tau = 144_000**0.5
        share = tau / (tau + 20) * 3600 / (3600 + 300 + tau / 2)
        assert run["goodput"] == pytest.approx(share)
        assert run["lost_s"] == pytest.approx(parts[0] * tau / 7200)
        waits = run["checkpoints"] * 20 + run["restarts"] * 300
        assert run["waiting_s"] == pytest.approx(waits)
    else:
        assert parts == pytest.approx([parts[0], 0.0, parts[0] / 4])
    gpu = de.load_gpu("a100-sxm-80gb")
    clock = gpu.sm_clock_applied_max
    idle = float(waiting_power(gpu, gpu.corrections, clock, default_point(gpu)))
    key, waiting = "energy_j", idle
    if node:
        key, site = "wall_energy_j", load_node(node, read_gpu("a100-sxm-80gb"))
        low = float(idle_power(gpu, gpu.sm_clock_min))
        waiting = float(site.power(idle, low, 1, False).wall)
    expected = own.summary[key] * (parts[0] + parts[1]) / time + waiting * parts[2]
    # lost work is at the mean power of a step, of which a node's is no linear function
    assert run[key] == pytest.approx(expected, rel=1e-4 if node else 1e-6)
    ends = [x * run[key] / own.summary[key] for x in own.summary[f"{key}_p5_p95"]]
    assert run[f"{key}_p5_p95"] == pytest.approx(ends)


def test_settings_and_listings_have_runs(tmp_path, answer):
    clocks = (900e6, 1410e6)
    task = prepare("gpt2", "a100-sxm-80gb", tokens=3e11, sm_clock=clocks, **GPT2)
    points = task.run().summary["points"]
    assert points[1]["run"]["time_s"] == pytest.approx(answer["run"]["time_s"])
    for point in points:
        steps = point["run"]["steps"]
        assert steps == pytest.approx(answer["run"]["steps"])
        assert point["run"]["energy_j"] == pytest.approx(steps * point["energy_j"])
    path = tmp_path / "step.jsonl"  # a listing knows its tokens
    path.write_text(listing_lines(load_model("gpt2").listings(**GPT2)))
    result = de.estimate(str(path), "a100-sxm-80gb", tokens=3e11).summary
    assert result["run"]["steps"] == pytest.approx(answer["run"]["steps"])


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
    case: dict[str, Any] = dict(phase="train", input_len=64, global_batch=8)
    case["plan"] = "dp=2,microbatch=2"
    result = de.estimate("gpt2", "a100-sxm-80gb", tokens=1e9, **case).summary
    run = result["run"]
    assert run["steps"] == pytest.approx(1e9 / (8 * 64))
    assert run["energy_j"] == pytest.approx(run["steps"] * result["energy_j"])
    assert run["gpu_hours"] == pytest.approx(2 * run["time_s"] / 3600)


def test_parts_of_a_model_stand_in_the_answer():
    plain = prepare("gpt2", "a100-sxm-80gb", **GPT2)
    assert not {"lora", "frozen_layers"} & set(plain.about)
    for part, other in (("lora", "frozen_layers"), ("frozen_layers", "lora")):
        task = prepare("gpt2", "a100-sxm-80gb", **{part: 8}, **GPT2)
        assert task.about[part] == 8 and other not in task.about
        assert task.memory["gradients"] < plain.memory["gradients"]
        json.dumps(task.about)
