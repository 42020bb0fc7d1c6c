import json
from pathlib import Path

import pytest

import diffenergy
from diffenergy.hardware import gpu_names, read_gpu
from diffenergy.workload.models import model_names


@pytest.mark.parametrize(
    ("command", "names"), [("gpus", gpu_names()), ("models", model_names())]
)
def test_everything_is_listed(run, command: str, names: list[str]):
    assert [x["name"] for x in run(command, "--json").json] == names
    table = run(command).out
    assert all(name in table for name in names)
    if command == "models":
        last = " ".join(table.split()).rpartition("one of: ")[2]
        assert {"bert", "llama", "qwen3_moe"} <= set(last.split(", "))


@pytest.mark.parametrize("name", ["h100-sxm", "NVIDIA H200"])
def test_a_gpu_with_sources(run, name, tmp_path: Path):
    """And the file of it to start from."""
    shown = run("gpus", "show", name, "--json").json
    card = read_gpu(name)
    assert {k: x["value"] for k, x in shown["values"].items()} == dict(card.values)
    assert shown["values"]["num_sms"]["unit"] == "count"
    assert all(x["source"] and x["quality"] for x in shown["values"].values())
    assert "global" in shown["corrections"]["levels"]
    assert shown["corrections"]["grade"] in run("gpus", "show", name).out
    file = tmp_path / "mine.toml"
    file.write_text(run("gpus", "show", name, "--toml").out)
    assert read_gpu(str(file)).values == card.values


def test_models_by_hand(run):
    shown = run("models", "show", "llama-3.1-8b", "--json").json
    assert (shown["layers"], shown["parameters"]) == (32, 8_030_261_248)
    assert shown["weight_bytes"]["bf16"] == 2 * 8_030_261_248
    assert shown["kv_bytes_per_token"]["bf16"] == 2 * 32 * 8 * 128 * 2
    assert "131072 B" in run("models", "show", "llama-3.1-8b").out
    image = run("models", "show", "resnet-50", "--json").json
    assert image["kv_bytes_per_token"] is None
    assert image["layers"] == 3 + 4 + 6 + 3


def test_what_a_checkpoint_says_of_its_types(run, tmp_path: Path):
    """Never bf16 for weights in a format that is not read."""
    source = Path(diffenergy.__file__).parent / "data/models/qwen3-0.6b/config.json"
    values = json.loads(source.read_text())
    for method, more, dtype, text in (
        ("awq", {"bits": 4, "group_size": 128}, "int4", "int4"),
        ("bitsandbytes", {"load_in_4bit": True}, None, "bitsandbytes"),
    ):
        values["quantization_config"] = {"quant_method": method, **more}
        (tmp_path / "config.json").write_text(json.dumps(values))
        shown = run("models", "show", str(tmp_path), "--json").json
        assert shown["dtype"] == dtype and text in shown["checkpoint"][0]
    assert "--dtype" in run("models", "show", str(tmp_path)).out
