import json
from pathlib import Path

import pytest

import diffenergy
from diffenergy.hardware import gpu_names, read_gpu
from diffenergy.workload.models import model_names


def test_every_gpu_is_listed(run):
    listed = run("gpus", "--json").json
    assert [x["name"] for x in listed] == gpu_names()
    table = run("gpus").out
    assert all(name in table for name in gpu_names())


@pytest.mark.parametrize("name", ["h100-sxm", "NVIDIA H200"])
def test_a_gpu_with_sources(run, name):
    shown = run("gpus", "show", name, "--json").json
    card = read_gpu(name)
    assert {k: x["value"] for k, x in shown["values"].items()} == dict(card.values)
    assert shown["values"]["num_sms"]["unit"] == "count"
    assert all(x["source"] and x["quality"] for x in shown["values"].values())
    assert "global" in shown["corrections"]["levels"]
    assert shown["corrections"]["grade"] in run("gpus", "show", name).out


def test_a_gpu_file_to_start_from(run, tmp_path):
    text = run("gpus", "show", "a10", "--toml").out
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert read_gpu(str(file)).values == read_gpu("a10").values


def test_every_model_is_listed(run):
    listed = run("models", "--json").json
    assert [x["name"] for x in listed] == model_names()
    table = run("models").out
    assert all(name in table for name in model_names())
    last = " ".join(table.split()).rpartition("one of: ")[2]
    assert {"bert", "llama", "qwen3_moe"} <= set(last.split(", "))


def test_a_model_by_hand(run):
    shown = run("models", "show", "llama-3.1-8b", "--json").json
    assert shown["layers"] == 32
    assert shown["parameters"] == 8_030_261_248
    assert shown["weight_bytes"]["bf16"] == 2 * 8_030_261_248
    assert shown["kv_bytes_per_token"]["bf16"] == 2 * 32 * 8 * 128 * 2
    assert "131072 B" in run("models", "show", "llama-3.1-8b").out


def test_an_image_model_has_no_cache(run):
    shown = run("models", "show", "resnet-50", "--json").json
    assert shown["kv_bytes_per_token"] is None
    assert shown["layers"] == 3 + 4 + 6 + 3


def test_what_a_checkpoint_says_of_its_types(run, tmp_path: Path):
    """Never bf16 for weights in a format that is not read."""
    source = Path(diffenergy.__file__).parent / "data/models/qwen3-0.6b/config.json"
    values = json.loads(source.read_text())
    file = tmp_path / "config.json"
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    file.write_text(json.dumps(values | {"quantization_config": awq}))
    shown = run("models", "show", str(tmp_path), "--json").json
    assert shown["dtype"] == "int4" and "int4" in shown["checkpoint"][0]
    other = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    file.write_text(json.dumps(values | {"quantization_config": other}))
    shown = run("models", "show", str(tmp_path), "--json").json
    assert shown["dtype"] is None and "bitsandbytes" in shown["checkpoint"][0]
    assert "--dtype" in run("models", "show", str(tmp_path)).out
