"""Names of models and types: in any case, and as the Hugging Face hub has them."""

import shutil

import pytest

from diffenergy.dtypes import STORED, canonical, code
from diffenergy.workload import load_model
from diffenergy.workload.models import assumed_model, model_names


@pytest.mark.parametrize(
    ("hub", "bundled"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Qwen3-8B-Base", "qwen3-8b"),
        ("google/gemma-4-26B-A4B-it", "gemma-4-26b-a4b"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano"),
    ],
)
def test_names_of_the_hub(hub: str, bundled: str):
    assert load_model(hub).name == bundled
    assert assumed_model(hub) == {"model": bundled}


def test_case_is_nothing_to_note():
    assert load_model("GPT2").name == "gpt2"
    for name in model_names():
        assert assumed_model(name) == assumed_model(name.upper()) == {}
        assert assumed_model(f"owner/{name}-Instruct") == {"model": name}


def test_a_local_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "Qwen" / "Qwen3-8B"
    folder.mkdir(parents=True)
    shutil.copy(load_model("qwen3-0.6b").config.where, folder)
    assert load_model("Qwen/Qwen3-8B").parameters() == 596_049_920
    assert assumed_model("Qwen/Qwen3-8B") == {}


def test_types_in_any_case():
    for name in STORED:
        assert canonical(name.upper()) == name
    assert code("BFloat16") == code("bf16")
    request = load_model("gpt2").request(dtype="FP8_E4M3", kv_dtype="BF16")
    assert (request.dtype, request.kv_dtype) == ("fp8", "bf16")
