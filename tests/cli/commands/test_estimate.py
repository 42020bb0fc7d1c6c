import csv
import dataclasses
import json
import math
import re
from typing import Any

import pytest

import diffenergy as de
from diffenergy.corrections import prior_file, read_corrections, write_corrections
from diffenergy.estimator import prepare
from diffenergy.hardware import read_gpu
from diffenergy.physics._demand import UNITS
from diffenergy.physics._power import COMPONENTS
from diffenergy.workload._listing import listing_lines
from diffenergy.workload._unlisted import complete
from diffenergy.workload.models import load_model

from ..conftest import GPT2

KEYS = {
    "model", "gpu", "phase", "batch", "input_len", "output_len", "dtype", "kv_dtype",
    "attention", "stack", "dispatch", "assumed", "time_s", "energy_j", "avg_power_w",
    "sm_clock_mhz", "mem_clock_mhz", "power_limit_w", "limited_by", "temperature_c",
    "grade", "grades", "time_s_p5_p95", "avg_power_w_p5_p95", "energy_j_p5_p95",
    "energy_j_by_unit", "phases", "ttft_s", "tpot_s", "tokens_per_s",
    "energy_j_per_token", "memory", "warnings",
}  # fmt: skip
PHASE_KEYS = {
    "time_s", "energy_j", "avg_power_w", "sm_clock_mhz", "temperature_c", "gpu_time_s",
    "host_time_s", "limited_by", "feasible",
}  # fmt: skip


def test_the_keys_are_those_of_the_contract(gpt2):
    assert set(gpt2) == KEYS | {"kernels"}
    assert set(gpt2["phases"]) == {"prefill", "decode"}
    assert all(set(phase) == PHASE_KEYS for phase in gpt2["phases"].values())
    assert tuple(gpt2["energy_j_by_unit"]) == COMPONENTS


def test_what_was_asked_for_is_repeated_and_the_rest_is_assumed(gpt2):
    asked = {k: gpt2[k] for k in ("model", "gpu", "batch", "input_len", "output_len")}
    assert asked == {
        "model": "gpt2",
        "gpu": "a100-sxm-80gb",
        "batch": 2,
        "input_len": 64,
        "output_len": 5,
    }
    assert gpt2["assumed"] == {
        "phase": "generate",
        "dtype": "bf16",
        "kv_dtype": "bf16",
        "attention": "flash",
        "stack": "serving",
        "dispatch": "prefill eager, decode graph",
        "sm_clock_mhz": 1410,
        "mem_clock_mhz": 1593,
        "power_limit_w": 400,
    }


def test_quantities_take_their_units(run):
    pairs = {
        "--sm-clock": ("1200", "1.2GHz"),
        "--mem-clock": ("1593", "1.593 ghz"),
        "--power-limit": ("350", "0.35kW"),
        "--temperature": ("60", "60C"),
        "--set": ("dram_bandwidth=1.9e12", "dram_bandwidth=1.9TB/s"),
    }
    bare, with_units = (
        run(
            *GPT2,
            *(word for flag in pairs for word in (flag, pairs[flag][n])),
            "--json",
        )
        for n in range(2)
    )
    assert with_units.json == bare.json


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


def test_detail_has_every_listed_kernel_in_order(gpt2):
    listings = load_model("gpt2").listings(batch=2, input_len=64, output_len=5)
    listed = [row for x in map(complete, listings) for row in x.kernels]
    found = gpt2["kernels"]
    assert [{k: x[k] for k in row} for x, row in zip(found, listed, strict=True)] == (
        json.loads(json.dumps(listed))
    )
    for kernel in found:
        assert tuple(kernel["utilization"]) == UNITS
        assert all(0 <= share <= 1 for share in kernel["utilization"].values())


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_kernels_add_up_to_the_time_of_the_gpu(gpt2, phase):
    kernels = [x for x in gpt2["kernels"] if x["phase"] == phase]
    whole = gpt2["phases"][phase]
    time = sum(x["count"] * x["time_s"] for x in kernels)
    assert time == pytest.approx(whole["gpu_time_s"], rel=1e-9)


def test_kernels_add_up_to_the_energy_where_the_host_never_waits(gpt2):
    kernels = [x for x in gpt2["kernels"] if x["phase"] == "decode"]
    energy = sum(x["count"] * x["energy_j"] for x in kernels)
    assert energy == pytest.approx(gpt2["phases"]["decode"]["energy_j"], rel=1e-9)


def test_a_written_listing_gives_the_same_answer(run, gpt2, tmp_path):
    file = tmp_path / "workload.jsonl"
    assert run(*GPT2, "--out", file).code == 0
    back = run("estimate", file, "--gpu", "a100-sxm-80gb", "--json").json
    for key in ("time_s", "energy_j", "ttft_s", "tpot_s", "energy_j_per_token"):
        assert back[key] == pytest.approx(gpt2[key], rel=1e-9), key
    for key in ("model", "phase", "batch", "input_len", "output_len", "dispatch"):
        assert back[key] == gpt2[key], key


def test_files_by_their_ending(run, gpt2, tmp_path):
    written = tmp_path / "estimate.json"
    assert run(*GPT2, "--detail", "--out", written).code == 0
    assert json.loads(written.read_text()) == gpt2
    table = tmp_path / "kernels.csv"
    assert run(*GPT2, "--out", table).code == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["op"] for row in rows] == [x["op"] for x in gpt2["kernels"]]
    assert float(rows[0]["time_s"]) == gpt2["kernels"][0]["time_s"]
    assert "utilization_dram" in rows[0]


@pytest.mark.slow
def test_memory_and_energy_of_a_token_stand_in_every_form(run, gpt2, tmp_path):
    need, each = gpt2["memory"]["total"], gpt2["energy_j_per_token"]
    table = tmp_path / "kernels.csv"
    shown = run(*GPT2, "--out", table).out
    assert f"memory: {need / 1e9:.3f} GB of 85.90 GB (workspace 1.000 GB, " in shown
    assert "KV cache" in shown and f"{1e3 * each:.2f} mJ per token" in shown
    for row in csv.DictReader(table.read_text().splitlines()):
        assert float(row["memory_total"]) == need and row["memory_fits"] == "True"
        assert float(row["energy_j_per_token"]) == each
    points = tmp_path / "points.csv"
    swept = run(*GPT2, "--sm-clock", "705,1410", "--out", points, "--json").json
    assert swept["memory"] == gpt2["memory"] and swept["warnings"] == []
    rows = list(csv.DictReader(points.read_text().splitlines()))
    assert [float(row["memory_total"]) for row in rows] == [need, need]
    assert float(rows[1]["energy_j_per_token"]) == pytest.approx(each, rel=1e-9)
    quoted = " ".join(GPT2[1:])
    both = run("compare", quoted, quoted).out
    (line,) = [line.split() for line in both.splitlines() if line.startswith("memory")]
    assert line == ["memory", f"{need / 1e9:.3f}", "GB"] + line[1:3] + ["1.000"]


@pytest.mark.slow
def test_warnings_stand_in_the_answer_and_beside_json(run):
    flags = ("--set", "dram_capacity=1.2e9")
    shown = run(*GPT2, *flags)
    said = "gpt2 does not fit a100-sxm-80gb: weights 0.2 GB + "
    (line,) = [x for x in shown.out.splitlines() if x.startswith("warning: ")]
    assert said in line and shown.err == ""
    assert "of 1.200 GB: does not fit (" in shown.out
    answer = run(*GPT2, *flags, "--json")
    assert answer.json["warnings"] == [line.removeprefix("warning: ")]
    assert answer.json["memory"]["fits"] is False and said in answer.err
    refused = run(*GPT2, *flags, "--require-fit")
    assert (refused.code, refused.out) == (3, "")
    (reason,) = refused.err.splitlines()
    assert reason.startswith("diffenergy: `--require-fit`: ") and said in reason


TRAIN = ("estimate", "gpt2", "--gpu", "a100-sxm-80gb", "--input-len", "64")
TRAIN = (*TRAIN, "--batch", "2", "--phase", "train", "--accumulation", "3")


@pytest.mark.slow
def test_a_training_step_is_three_phases(run, tmp_path):
    file = tmp_path / "step.jsonl"
    found = run(*TRAIN, "--out", file, "--json").json
    assert set(found) == KEYS | {"accumulation", "checkpointing"}
    assert list(found["phases"]) == ["forward", "backward", "optimizer"]
    assert all(set(phase) == PHASE_KEYS for phase in found["phases"].values())
    assert found["output_len"] is found["kv_dtype"] is found["ttft_s"] is None
    assert found["assumed"]["checkpointing"] is False and found["accumulation"] == 3
    assert found["grade"] == "forecast"  # no training step was fitted
    times = [phase["time_s"] for phase in found["phases"].values()]
    assert sum(times) == pytest.approx(found["time_s"], rel=1e-12)
    tokens = 2 * 64 * 3
    assert found["tokens_per_s"] == pytest.approx(tokens / found["time_s"])
    assert found["energy_j_per_token"] == pytest.approx(found["energy_j"] / tokens)
    back = run("estimate", file, "--gpu", "a100-sxm-80gb", "--json").json
    for key in ("time_s", "energy_j", "tokens_per_s", "energy_j_per_token"):
        assert back[key] == pytest.approx(found[key], rel=1e-9), key
    for key in ("model", "phase", "batch", "input_len", "accumulation", "grade"):
        assert back[key] == found[key], key
    assert back["checkpointing"] is None
    shown = run(*TRAIN, "--checkpointing").out.splitlines()
    assert "train, batch 2, 64 in, 3 micro-batches, checkpointing, bf16" in shown[1]
    assert any("tokens/s" in line and "TTFT" not in line for line in shown)


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--phase", "prefill", "--accumulation", 2), ["`--accumulation`", "train"]),
        (("--checkpointing",), ["`--checkpointing`", "train"]),
        (("--phase", "train", "--output-len", 3), ["`--output-len` is 3", "train"]),
        (("--phase", "train", "--kv-dtype", "fp8"), ["`--kv-dtype`", "KV cache"]),
        (("--phase", "train", "--accumulation", 0), ["`--accumulation` is '0'"]),
        (("--images", 2), ["`--images` is 2", "gpt2 reads no images"]),
        (("--steps", 2), ["`--steps` is 2", "gpt2 makes nothing in denoising steps"]),
        (("--guidance",), ["`--guidance`", "gpt2 makes nothing in denoising steps"]),
    ],
)
def test_flags_that_a_phase_lacks_are_refused(run, flags, words):
    outcome = run("estimate", "gpt2", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert len(outcome.err.splitlines()) == 1
    assert all(word in outcome.err for word in words), outcome.err


@pytest.mark.slow
def test_steps_of_a_diffusion_transformer(run, tmp_path):
    """Its config has a class in place of a `model_type`; steps take as long as each."""
    file = tmp_path / "tiny.json"
    values = dict(
        _class_name="FluxTransformer2DModel", attention_head_dim=64, in_channels=16,
        joint_attention_dim=96, num_attention_heads=2, num_layers=1,
        num_single_layers=1, pooled_projection_dim=32, torch_dtype="bfloat16",
    )  # fmt: skip
    file.write_text(json.dumps(values))
    flags = ("estimate", file, "--image-tokens", 300, "--input-len", 20)
    one = run(*flags, "--json").json
    found = run(*flags, "--steps", 3, "--json").json
    assert set(found) == KEYS | {"image_tokens", "steps", "guidance"}
    assert found["assumed"]["phase"] == "forward"
    assert "steps" not in found["assumed"] and one["assumed"]["steps"] == 1
    assert found["time_s"] == pytest.approx(3 * one["time_s"], rel=0.01)
    assert found["tokens_per_s"] is found["kv_dtype"] is None
    (said,) = found["warnings"]
    assert said.startswith("tiny is the transformer alone: text encoders before")
    shown = run(*flags, "--steps", 3, "--guidance").out
    assert "20 in, 1 x 300 image tokens, 3 steps, guidance, bf16" in shown


@pytest.mark.slow
def test_images_of_a_model_are_tokens_that_it_reads(run):
    flags = ("estimate", "qwen3-0.6b", "--phase", "prefill")
    refused = run(*flags, "--images", 1)
    assert refused.code == 2 and "qwen3-0.6b reads no images" in refused.err
    flags = ("estimate", "gemma-4-26b-a4b", *flags[2:], "--input-len", 100)
    found = run(*flags, "--images", 2, "--json").json
    assert (found["images"], found["image_tokens"], found["input_len"]) == (2, 280, 100)
    assert found["assumed"]["image_tokens"] == 280
    read = found["tokens_per_s"] * found["time_s"]
    assert read == pytest.approx(100 + 2 * 280)


def test_a_listing_decides_what_a_step_is(run, tmp_path):
    file = tmp_path / "step.jsonl"
    file.write_text(listing_lines(load_model("gpt2").listings(phase="train")))
    for flags in (("--accumulation", 2), ("--checkpointing",)):
        outcome = run("estimate", file, *flags)
        assert outcome.code == 2 and f"`{flags[0]}`" in outcome.err


@pytest.mark.slow
def test_a_single_output_token_has_no_decode_phase(run):
    flags = ("--input-len", 64, "--output-len", 1)
    found = run("estimate", "gpt2", *flags, "--json").json
    assert list(found["phases"]) == ["prefill"]
    assert found["tpot_s"] is None
    assert found["time_s"] == found["ttft_s"]
    assert found["gpu"] == found["assumed"]["gpu"] == "h100-sxm"
    table = run("estimate", "gpt2", *flags).out
    first = table.splitlines()[0]
    for value in found["assumed"].values():
        assert (f"{value:g}" if isinstance(value, float) else str(value)) in first
    assert "GPU board only: no host, no cooling" in table


@pytest.mark.slow
def test_lists_are_one_table_that_equals_single_estimates(run, gpt2, tmp_path):
    rows = tmp_path / "points.csv"
    flags = ("--sm-clock", "705,1410", "--power-limit", "400,50", "--out", rows)
    flags = (*flags, "--set", "power_limit_min=50")
    outcome = run(*GPT2, *flags, "--json")
    points = outcome.json["points"]
    asked = [(x["sm_clock_set_mhz"], x["power_limit_w"]) for x in points]
    assert asked == [(705, 400), (705, 50), (1410, 400), (1410, 50)]
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


def test_a_limit_that_cannot_be_kept_exits_3_with_the_least_power(run):
    outcome = run(*GPT2, "--power-limit", 50, "--set", "power_limit_min=50")
    assert (outcome.code, outcome.out) == (3, "")
    assert len(outcome.err.splitlines()) == 1
    least = float(outcome.err.split("draws ")[1].split(" W")[0])
    assert 50 < least < 100  # idle is 60 W at the lowest clock


def test_a_power_limit_lowers_the_clock_and_says_so(run, gpt2):
    found = run(*GPT2, "--power-limit", 100, "--json").json
    assert found["limited_by"] == "power"
    assert found["sm_clock_mhz"] < gpt2["sm_clock_mhz"]
    held = 100 * read_gpu("a100-sxm-80gb").values["cap_fraction"]
    assert found["avg_power_w"] <= held * (1 + 1e-6)


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
    found = {f: run(*GPT2, f, value, "--json").json for f, value in changed.items()}
    for flag, summary in found.items():
        assert summary["energy_j"] != gpt2["energy_j"], flag
        assert math.isfinite(summary["energy_j"])
    doubled = found["--corrections"]["energy_j_by_unit"]["dram"]
    assert doubled == pytest.approx(2 * gpt2["energy_j_by_unit"]["dram"])
    assert run(*GPT2, "--corrections", "none", "--json").json["grade"] == "datasheet"


def test_other_spellings_and_files_are_the_same_gpu(run, gpt2, tmp_path):
    file = tmp_path / "mine.toml"
    assert run("gpus", "show", "NVIDIA A100-SXM4-80GB", "--out", file).code == 0
    args = [file if arg == "a100-sxm-80gb" else arg for arg in GPT2]
    found = run(*args, "--json", "--detail").json
    assert found["gpu"] == "a100-sxm-80gb"
    assert found["energy_j"] == pytest.approx(gpt2["energy_j"], rel=1e-12)


def test_intervals_bracket_the_figures(gpt2):
    for key in ("time_s", "avg_power_w", "energy_j"):
        low, high = gpt2[f"{key}_p5_p95"]
        assert 0 < low < gpt2[key] < high
        assert low * high == pytest.approx(gpt2[key] ** 2)


@pytest.mark.slow
def test_intervals_follow_the_grade(run, tmp_path):
    """Passes of the A10 alone were fitted, of other GPUs other rows; time is as wide as
    left-out rows, energy no less (the voltage of a board may be a guess)."""
    widths = {"calibrated": 0.1, "transferred": 0.2, "forecast": 0.3}
    file = dataclasses.replace(
        prior_file(),
        fitted_on={
            "rows": {"a10:workload": {"time": 50, "power": 50, "ops": ["softmax"]}},
            "architectures": {"a10": "architecture:Ampere"},
        },
        spread={
            f"workload:{grade}": {q: [size] * 4 for q in ("time", "power", "energy")}
            for grade, size in widths.items()
        },
    )
    constants, listing = tmp_path / "c.json", tmp_path / "one.jsonl"
    constants.write_text(write_corrections(file))
    kernel = dict(op="softmax", rows=4096, cols=4096, dtype="fp16")
    line = {"name": "one", "dispatch": "eager", "kernels": [kernel]}
    listing.write_text(json.dumps(line))
    for flags, grade, width in (
        (("a10",), "calibrated", 0.1),
        (("h200-sxm",), "forecast", 0.3),
        (("a100-pcie-40gb",), "transferred", 0.2),
        (("a10", "--set", "num_sms=70"), "forecast", 0.3),
    ):
        args = ("estimate", listing, "--corrections", constants, "--gpu", *flags)
        found = run(*args, "--json").json
        assert found["grade"] == grade
        assert found["grades"] == dict.fromkeys(("time", "power", "energy"), grade)
        around = [found["time_s"] * math.exp(side * width) for side in (-1, 1)]
        assert found["time_s_p5_p95"] == pytest.approx(around), flags
        low, high = found["energy_j_p5_p95"]
        assert low <= found["energy_j"] * math.exp(-width) * (1 + 1e-9), flags
        assert low * high == pytest.approx(found["energy_j"] ** 2)


@pytest.mark.slow
def test_the_interval_is_shown_beside_the_grade(run, tmp_path):
    listing = listing_of_one(tmp_path / "one.jsonl", dispatch="graph")
    shown = " ".join(run("estimate", listing, "--corrections", "none").out.split())
    assert "grade: datasheet (5 to 95 %: time " in shown


def listing_of_one(file, **more):
    gemm = dict(op="gemm", m=4096, n=4096, k=4096, dtype="half", count=3)
    never = dict(op="softmax", rows=8, cols=8, dtype="fp32", count=0)
    file.write_text(json.dumps({"name": "one", "kernels": [gemm, never], **more}))
    return file


def test_a_listing_of_one_kernel_by_hand(run, tmp_path):
    file = listing_of_one(tmp_path / "one.jsonl", dispatch="graph")
    found = run("estimate", file, "--json", "--detail").json
    first, second = found["kernels"]
    assert first["op"] == "gemm" and first["dtype"] == "fp16"
    assert 3 * first["time_s"] == pytest.approx(found["time_s"], rel=1e-9)
    flops = 2 * 4096**3 / first["time_s"]
    peak = 132 * 4096 * found["sm_clock_mhz"] * 1e6
    assert first["utilization"]["tensor"] == pytest.approx(flops / peak, rel=0.01)
    assert second["time_s"] is None and second["limited_by"] is None
    assert found["phase"] is None and list(found["phases"]) == ["forward"]
    assert found["ttft_s"] is found["energy_j_per_token"] is None


@pytest.mark.slow
def test_kernels_alone_wait_for_no_host(run, tmp_path):
    """Without module calls a graph, with them a pass; each may be said otherwise."""

    def found(*flags, **more):
        file = listing_of_one(tmp_path / "one.jsonl", **more)
        return run("estimate", file, *flags, "--json").json

    alone = found()
    assert alone["assumed"]["dispatch"] == alone["dispatch"] == "graph"
    assert alone["phases"]["forward"]["host_time_s"] == 0
    stepped = found(module_calls=2)
    assert stepped["assumed"]["dispatch"] == stepped["dispatch"] == "eager"
    assert stepped["phases"]["forward"]["host_time_s"] > 0
    said = found(dispatch="eager")
    assert "dispatch" not in said["assumed"] and said["dispatch"] == "eager"
    assert said["phases"]["forward"]["host_time_s"] > 0
    asked = found("--dispatch", "graph", module_calls=2, dispatch="eager")
    assert "dispatch" not in asked["assumed"]
    assert asked["time_s"] == alone["time_s"]


def test_the_title_of_kernels_is_whole(run, tmp_path):
    file = listing_of_one(tmp_path / "mine.jsonl", name=None)
    assert run("estimate", file).out.splitlines()[1] == (
        "mine on h100-sxm: kernel listing"
    )


def test_many_modules_wait_for_the_host(run, tmp_path):
    file = listing_of_one(tmp_path / "one.jsonl", module_calls=10_000)
    found = run("estimate", file, "--json").json
    assert found["limited_by"] == "host"
    phase = found["phases"]["forward"]
    assert found["time_s"] >= phase["host_time_s"] > phase["gpu_time_s"]


def test_an_image_model_runs_forward_at_its_own_size():
    about = prepare("resnet-50").about
    assert about["phase"] == about["assumed"]["phase"] == "forward"
    assert about["input_len"] is about["output_len"] is about["kv_dtype"] is None


def test_an_activity_without_a_time_is_no_silent_second(tmp_path):
    file = tmp_path / "activity.jsonl"
    kernel = {"op": "activity", "dram_active": 0.5}
    file.write_text(json.dumps({"name": "a", "kernels": [kernel]}))
    (note,) = prepare(str(file)).warnings
    assert "time_ref_us" in note and "only its power" in note


@pytest.mark.parametrize(
    "given, more, words",
    [
        ((3,), {}, "`workload` is a int; allowed is str or PathLike."),
        (("gpt2", 4.0), {}, "`gpu` is a float; allowed is str or GpuCard."),
        (("gpt2",), {"temperature": "x"}, "`temperature` is a str; allowed is int"),
        (("gpt2",), {"sm_clock": ["a"]}, "`sm_clock` is a str; allowed is int"),
    ],
    ids=["workload", "gpu", "temperature", "sm_clock"],
)
def test_wrong_types_get_one_sentence(given, more, words: str):
    ask: Any = de.estimate
    with pytest.raises(TypeError, match=re.escape(words)) as error:
        ask(*given, **more)
    assert len(str(error.value).splitlines()) == 1


# --- lists that are crossed


CROSSED = ("estimate", "gpt2", "--gpu", "a10,l4", "--input-len", "64")
CROSSED = (*CROSSED, "--output-len", "5", "--batch", "1:3:2")


@pytest.mark.slow
def test_lists_are_crossed(run, tmp_path):
    """Two GPUs and batches of 1 and 3; each point as the estimate of it alone; the
    table has a row for each, the files too."""
    rows, kept = tmp_path / "rows.csv", tmp_path / "rows.parquet"
    found = run(*CROSSED, "--json", "--out", rows).json
    chosen = [(point["gpu"], point["batch"]) for point in found["points"]]
    assert chosen == [("a10", 1), ("a10", 3), ("l4", 1), ("l4", 3)]
    assert found["axes"] == ["gpu", "batch"] and "gpu" not in found
    alone = run(*CROSSED[:3], "l4", *CROSSED[4:-1], "3", "--json").json
    for key in ("time_s", "energy_j", "energy_j_per_token"):
        assert found["points"][3][key] == pytest.approx(alone[key], rel=1e-9), key
    with rows.open() as text:
        written = list(csv.DictReader(text))
    assert [float(row["energy_j"]) for row in written] == [
        point["energy_j"] for point in found["points"]
    ]
    table = run(*CROSSED, "--out", kept)
    assert table.out.count("mJ   ") >= 4 and "a10 " in table.out
    assert "least energy per token: l4, batch 3" in table.out
    import pandas as pd

    assert pd.read_parquet(kept)["batch"].tolist() == [1, 3, 1, 3]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--batch", "8:1:2"), "`--batch` is '8:1:2', a range of 0 values"),
        (("--batch", "1:8"), "give a list or FROM:TO:STEP"),
        (("--batch", "1,x"), "`--batch` is 'x'; allowed is a whole number"),
        (("--gpu", "a10,,l4"), "`--gpu` is 'a10,,l4'; give names"),
        (("--gpu", "a10,a11x"), "`--gpu` is 'a11x', which is not a known GPU"),
        (("--batch", "1,2", "--detail"), "several settings"),
        (("--batch", "1,2", "--out", "x.jsonl"), "allowed are names ending in .json, "),
        (("--batch", "2", "--out", "x.parquet"), "allowed are names ending in .json, "),
    ],
)
def test_lists_that_cannot_be_are_told(run, flags, said):
    outcome = run("estimate", "gpt2", *flags)
    assert outcome.code == 2 and outcome.out == ""
    assert said in outcome.err and outcome.err.count("\n") == 1


def test_other_commands_take_no_lists(run):
    outcome = run("compare", "gpt2 --batch 1,2", "gpt2")
    assert outcome.code == 2 and "`compare` takes no lists" in outcome.err


@pytest.mark.slow
def test_a_combination_without_an_answer_names_the_flag(run):
    """A batch that does not fit beside one that does."""
    asked = ("estimate", "gpt2", "--gpu", "l4", "--phase", "decode", "--require-fit")
    asked = (*asked, "--batch", "1,100000", "--input-len", "64")
    found = run(*asked, "--json").json["points"]
    assert "error" not in found[0]
    assert found[1]["error"].startswith("`--require-fit`: gpt2 does not fit l4: ")
    assert "batch 100000: `--require-fit`: gpt2 does not fit l4" in run(*asked).out


@pytest.mark.slow
def test_a_whole_run_stands_in_table_and_json(run):
    """In hours and kWh beside the step; a word for what is trained."""
    flags = ("estimate", "gpt2", "--gpu", "a100-sxm-80gb", "--phase", "train")
    flags = (*flags, "--input-len", "64", "--lora", "8", "--tokens", "1e12")
    shown, told = run(*flags), run(*flags, "--json")
    found = json.loads(told.out)["run"]
    assert found["tokens"] == 1e12 and found["steps"] == pytest.approx(1e12 / 64)
    hours = re.search(r"run of 1e\+12 tokens: .* ([0-9.e+]+) GPU-hours", shown.out)
    assert hours and float(hours[1]) == pytest.approx(found["gpu_hours"], rel=1e-3)
    assert "LoRA of rank 8" in shown.out
    refused = run(*flags[:6], "--tokens", "1e12", "--phase", "prefill")
    assert (refused.code, refused.out) == (2, "")
