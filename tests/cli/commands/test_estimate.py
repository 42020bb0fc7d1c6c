"""`diffenergy estimate`: what its flags and listings change in the answer."""

import json
import math

import json_keys
import pytest

from diffenergy.corrections import read_corrections, write_corrections
from diffenergy.estimator import prepare
from diffenergy.physics import UNITS
from diffenergy.workload import load_model

from ..conftest import GPT2


def test_energies_and_times_add_up(gpt2):
    phases = gpt2["phases"].values()
    by_unit = sum(gpt2["energy_j_by_unit"].values())
    assert by_unit == pytest.approx(gpt2["energy_j"], rel=1e-12)
    assert sum(p["time_s"] for p in phases) == pytest.approx(gpt2["time_s"], rel=1e-12)
    power = gpt2["energy_j"] / gpt2["time_s"]
    assert gpt2["avg_power_w"] == pytest.approx(power, rel=1e-12)
    assert gpt2["time_s"] == pytest.approx(gpt2["ttft_s"] + 4 * gpt2["tpot_s"])
    assert gpt2["tokens_per_s"] == pytest.approx(2 * 5 / gpt2["time_s"])
    assert gpt2["energy_j_per_token"] == pytest.approx(gpt2["energy_j"] / 10)


def test_what_is_assumed_stands_in_the_answer(gpt2):
    assert gpt2["assumed"] == {
        "phase": "generate", "dtype": "bf16", "kv_dtype": "bf16", "attention": "flash",
        "stack": "serving", "dispatch": "prefill eager, decode graph",
        "sm_clock_mhz": 1410, "mem_clock_mhz": 1593, "power_limit_w": 400,
    }  # fmt: skip


def test_quantities_take_their_units(run):
    pairs = {
        "--sm-clock": ("1200", "1.2GHz"),
        "--mem-clock": ("1593", "1.593 ghz"),
        "--power-limit": ("350", "0.35kW"),
        "--temperature": ("60", "60C"),
        "--set": ("dram_bandwidth=1.9e12", "dram_bandwidth=1.9TB/s"),
    }
    bare, with_units = (
        run(*GPT2, *(x for flag in pairs for x in (flag, pairs[flag][n])), "--json")
        for n in range(2)
    )
    assert with_units.json == bare.json


def test_detail_has_every_listed_kernel_in_order(gpt2):
    listings = load_model("gpt2").listings(batch=2, input_len=64, output_len=5)
    listed = [row for x in listings for row in x.kernels]
    answer = gpt2["kernels"]
    assert [{k: x[k] for k in row} for x, row in zip(answer, listed, strict=True)] == (
        json.loads(json.dumps(listed))
    )
    for kernel in answer:
        assert tuple(kernel["utilization"]) == UNITS
        assert all(0 <= share <= 1 for share in kernel["utilization"].values())


def test_a_written_listing_gives_the_same_answer(run, gpt2, tmp_path):
    file = tmp_path / "workload.jsonl"
    assert run(*GPT2, "--out", file).code == 0
    back = run("estimate", file, "--gpu", "a100-sxm-80gb", "--json").json
    for key in ("time_s", "energy_j", "ttft_s", "tpot_s", "energy_j_per_token"):
        assert back[key] == pytest.approx(gpt2[key], rel=1e-9), key
    for key in ("model", "phase", "batch", "input_len", "output_len", "dispatch"):
        assert back[key] == gpt2[key], key


@pytest.mark.slow
def test_warnings_stand_in_the_answer_and_beside_json(run):
    flags = ("--set", "dram_capacity=1.2e9")
    shown = run(*GPT2, *flags)
    reported = "gpt2 does not fit a100-sxm-80gb: weights 0.2 GB + "
    (line,) = [x for x in shown.out.splitlines() if x.startswith("warning: ")]
    assert reported in line and shown.err == ""
    assert "of 1.200 GB: does not fit (" in shown.out
    answer = run(*GPT2, *flags, "--json")
    assert answer.json["warnings"] == [line.removeprefix("warning: ")]
    assert answer.json["memory"]["fits"] is False and reported in answer.err


@pytest.mark.slow
def test_steps_of_a_diffusion_transformer(run, tmp_path):
    """Its config has a class in place of a `model_type`; steps take as long as each."""
    file = tmp_path / "tiny.json"
    values = {
        "_class_name": "FluxTransformer2DModel", "attention_head_dim": 64,
        "in_channels": 16, "joint_attention_dim": 96, "num_attention_heads": 2,
        "num_layers": 1, "num_single_layers": 1, "pooled_projection_dim": 32,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    file.write_text(json.dumps(values))
    flags = ("estimate", file, "--image-tokens", 300, "--input-len", 20)
    one = run(*flags, "--json").json
    answer = run(*flags, "--steps", 3, "--json").json
    assert answer["assumed"]["phase"] == "forward"
    assert "steps" not in answer["assumed"] and one["assumed"]["steps"] == 1
    assert answer["time_s"] == pytest.approx(3 * one["time_s"], rel=0.01)
    assert answer["tokens_per_s"] is answer["kv_dtype"] is None
    (reported,) = answer["warnings"]
    assert reported.startswith("tiny is the transformer alone: text encoders before")
    shown = run(*flags, "--steps", 3, "--guidance").out
    assert "20 in, 1 x 300 image tokens, 3 steps, guidance, bf16" in shown


@pytest.mark.slow
def test_what_if_flags_reach_the_model(run, gpt2, tmp_path):
    constants = json.loads(write_corrections(read_corrections()))
    constants["levels"]["global"]["energy_dram"] *= 2
    file = tmp_path / "corrections.json"
    file.write_text(json.dumps(constants))
    changed = {
        "--set": "dram_bandwidth=4e12",
        "--temperature": "80",
        "--corrections": file,
    }
    answer = {f: run(*GPT2, f, value, "--json").json for f, value in changed.items()}
    for flag, summary in answer.items():
        assert summary["energy_j"] != gpt2["energy_j"], flag
        assert math.isfinite(summary["energy_j"])
    doubled = answer["--corrections"]["energy_j_by_unit"]["dram"]
    assert doubled == pytest.approx(2 * gpt2["energy_j_by_unit"]["dram"])
    assert run(*GPT2, "--corrections", "none", "--json").json["grade"] == "datasheet"


def test_other_spellings_and_files_are_the_same_gpu(run, gpt2, tmp_path):
    file = tmp_path / "mine.toml"
    assert run("gpus", "show", "NVIDIA A100-SXM4-80GB", "--out", file).code == 0
    args = [file if arg == "a100-sxm-80gb" else arg for arg in GPT2]
    answer = run(*args, "--json", "--detail").json
    assert answer["gpu"] == "a100-sxm-80gb"
    assert answer["energy_j"] == pytest.approx(gpt2["energy_j"], rel=1e-12)


@pytest.mark.slow
def test_lists_are_one_table_that_equals_single_estimates(run, gpt2, tmp_path):
    rows = tmp_path / "points.csv"
    flags = ("--sm-clock", "705,1410", "--power-limit", "400,50", "--out", rows)
    flags = (*flags, "--set", "power_limit_min=50")
    outcome = run(*GPT2, *flags, "--json")
    points = outcome.json["points"]
    request = [(x["sm_clock_set_mhz"], x["power_limit_w"]) for x in points]
    assert request == [(705, 400), (705, 50), (1410, 400), (1410, 50)]
    for key in ("time_s", "energy_j", "avg_power_w", "sm_clock_mhz"):
        assert points[2][key] == pytest.approx(gpt2[key], rel=1e-9)
    single = run(*GPT2, "--sm-clock", 705, "--json").json
    assert points[0]["energy_j"] == pytest.approx(single["energy_j"], rel=1e-9)
    live = (points[0], points[2])
    energy = min(live, key=lambda x: x["energy_j"])
    edp = min(live, key=lambda x: x["energy_j"] * x["time_s"])
    assert points[outcome.json["best_energy"]] is energy
    assert points[outcome.json["best_edp"]] is edp
    for point in (points[1], points[3]):  # idle power alone is above 50 W
        assert not point["feasible"] and point["least_power_w"] > 50
        assert point["time_s"] is point["energy_j"] is None
    assert len(rows.read_text().splitlines()) == 5


@pytest.mark.slow
def test_a_combination_without_an_answer_names_the_flag(run):
    """A batch that does not fit beside one that does."""
    request = "estimate gpt2 --gpu l4 --dtype fp16 --require-fit --batch 1,100000"
    request = (*request.split(), "--input-len", "64", "--output-len", "2")
    point = ("--sm-clock", "900", "--mem-clock", "6251", "--power-limit", "72")
    answer = run(*request, *point, "--json").json["points"]
    assert set(answer[1]) == set(json_keys.rows("unanswered"))
    assert "error" not in answer[0]
    assert answer[1]["error"].startswith("`--require-fit`: gpt2 does not fit l4: ")
    assert "batch 100000: `--require-fit`: gpt2 does not fit l4" in run(*request).out


def listing_of_one(file, **more):
    gemm = dict(op="gemm", m=4096, n=4096, k=4096, dtype="half", count=3)
    never = dict(op="softmax", rows=8, cols=8, dtype="fp32", count=0)
    file.write_text(json.dumps({"name": "one", "kernels": [gemm, never], **more}))
    return file


def test_a_listing_of_one_kernel_by_hand(run, tmp_path):
    file = listing_of_one(tmp_path / "one.jsonl", dispatch="graph")
    answer = run("estimate", file, "--json", "--detail").json
    first, second = answer["kernels"]
    assert first["op"] == "gemm" and first["dtype"] == "fp16"
    for key in ("time_s", "energy_j"):
        assert 3 * first[key] == pytest.approx(answer[key], rel=1e-9)
    flops = 2 * 4096**3 / first["time_s"]
    peak = 132 * 4096 * answer["sm_clock_mhz"] * 1e6
    assert first["utilization"]["tensor"] == pytest.approx(flops / peak, rel=0.01)
    assert second["time_s"] is None and second["limited_by"] is None
    assert answer["phase"] is None and list(answer["phases"]) == ["forward"]
    assert answer["ttft_s"] is answer["energy_j_per_token"] is None


@pytest.mark.slow
def test_kernels_alone_wait_for_no_host(run, tmp_path):
    """Without module calls a graph, with them a pass; each may be said otherwise."""

    def answer(*flags, **more):
        file = listing_of_one(tmp_path / "one.jsonl", **more)
        return run("estimate", file, *flags, "--json").json

    for words, dispatch in (({}, "graph"), ({"module_calls": 2}, "eager")):
        result = answer(**words)
        assert result["assumed"]["dispatch"] == result["dispatch"] == dispatch
        host = result["phases"]["forward"]["host_time_s"]
        assert (host > 0) == (dispatch == "eager")
    listed = answer(dispatch="eager")
    assert "dispatch" not in listed["assumed"] and listed["dispatch"] == "eager"
    assert listed["phases"]["forward"]["host_time_s"] > 0
    request = answer("--dispatch", "graph", module_calls=2, dispatch="eager")
    assert "dispatch" not in request["assumed"]
    assert request["time_s"] == answer()["time_s"]


def test_many_modules_wait_for_the_host(run, tmp_path):
    file = listing_of_one(tmp_path / "one.jsonl", module_calls=10_000)
    answer = run("estimate", file, "--json").json
    assert answer["limited_by"] == "host"
    phase = answer["phases"]["forward"]
    assert answer["time_s"] >= phase["host_time_s"] > phase["gpu_time_s"]


def test_an_activity_without_a_time_is_no_silent_second(tmp_path):
    file = tmp_path / "activity.jsonl"
    kernel = {"op": "activity", "dram_active": 0.5}
    file.write_text(json.dumps({"name": "a", "kernels": [kernel]}))
    (note,) = prepare(str(file)).warnings
    assert "time_ref_us" in note and "only its power" in note
