"""Models from configs: windows, types of weights, and what is refused in one line."""

import json

import pytest

from diffenergy.workload import load_model

from .test_models import one

LLAMA = dict(
    model_type="llama",
    num_hidden_layers=2,
    hidden_size=64,
    num_attention_heads=4,
    intermediate_size=128,
    vocab_size=100,
    max_position_embeddings=256,
)


def write(folder, **changes):
    values = {k: x for k, x in {**LLAMA, **changes}.items() if x != "absent"}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_a_folder_and_its_file_are_the_same_model(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    write(folder)
    assert load_model(folder).name == load_model(folder / "config.json").name == "tiny"


MIXTURE = dict(
    num_local_experts=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
)


@pytest.mark.parametrize(
    ("family", "changes", "window"),
    [
        ("llama", {}, 0),
        ("llama", {"sliding_window": None}, 0),
        ("llama", {"sliding_window": 16}, 16),
        ("mistral", {"sliding_window": 16}, 16),
        ("mixtral", MIXTURE, 0),
        ("mixtral", MIXTURE | {"sliding_window": 16}, 16),
        *(
            (family, more | flag | {"sliding_window": 16}, window)
            for family, more in (("qwen2", {}), ("qwen3", {}), ("qwen3_moe", MIXTURE))
            for flag, window in (
                ({}, 0),
                ({"use_sliding_window": False}, 0),
                ({"use_sliding_window": True}, 16),
            )
        ),
    ],
)
def test_windows(tmp_path, family, changes, window):
    model = load_model(write(tmp_path, model_type=family, **changes))
    for phase, op in (
        ("prefill", "context_attention"), ("decode", "generation_attention")
    ):  # fmt: skip
        (listing,) = model.listings(input_len=64, phase=phase)
        assert one(listing.kernels, op=op)["window_size"] == window


@pytest.mark.parametrize(
    "quantisation, dtype",
    [
        (dict(quant_method="fp8"), "fp8"),
        (dict(quant_method="fp8", weight_block_size=[128, 128]), "fp8_block"),
        (dict(quant_method="modelopt", quant_algo="FP8"), "fp8"),
    ],
)
def test_a_quantised_checkpoint_sets_the_type_of_its_linear_layers(
    tmp_path, quantisation, dtype
):
    model = load_model(write(tmp_path, quantization_config=quantisation))
    (listing,) = model.listings(input_len=8, phase="prefill")
    assert listing.precision == dtype
    assert one(listing.kernels, op="gemm", n=256)["dtype"] == dtype
    (given,) = model.listings(input_len=8, phase="prefill", dtype="bf16")
    assert given.precision == "bf16"
