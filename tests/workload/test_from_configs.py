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


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(hidden_size="absent"), ["`hidden_size` is missing"]),
        (dict(hidden_size="64"), ['`hidden_size` is "64"', "whole number"]),
        (dict(hidden_size=0), ["`hidden_size` is 0"]),
        (dict(hidden_size=-64), ["`hidden_size` is -64"]),
        (dict(hidden_size=True), ["`hidden_size` is true"]),
        (dict(hidden_size=float("nan")), ["`hidden_size` is NaN"]),
        (dict(hidden_size=65), ["`hidden_size` is 65", "`num_attention_heads` 4"]),
        (dict(num_key_value_heads=3), ["`num_attention_heads` is 4", "heads` 3"]),
        (dict(tie_word_embeddings="no"), ["`tie_word_embeddings`", "true or false"]),
        (dict(model_type="mamba"), ["'mamba'", "not built", "kernel listing"]),
        (dict(model_type="absent"), ["no `model_type`", "tokenizer"]),
        (dict(quantization_config=dict(quant_method="gguf")), ['"gguf"', "--dtype"]),
    ],
)
def test_a_bad_config_is_refused_in_one_line(tmp_path, changes, words):
    with pytest.raises(ValueError) as error:
        load_model(write(tmp_path, **changes)).listings(input_len=8, output_len=2)
    message = str(error.value)
    assert "config.json" in message and "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "text, words",
    [(b"{", ["broken JSON"]), (b"[1]", ["no `model_type`"]), (b"\xff", ["UTF-8"])],
)
def test_a_file_that_is_no_config_is_refused(tmp_path, text, words):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(ValueError) as error:
        load_model(tmp_path)
    assert all(word in str(error.value) for word in words)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no `config.json`"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="'llama-3.1-7b'.*llama-3.1-8b"):
        load_model("llama-3.1-7b")


@pytest.mark.parametrize(
    "model, given, words",
    [
        ("gpt2", dict(input_len=1000, output_len=100), ["1100", "1024"]),
        ("gpt2", dict(batch=0), ["`batch` is 0"]),
        ("gpt2", dict(output_len=0), ["`output_len` is 0"]),
        ("gpt2", dict(phase="training"), ["`phase` is 'training'", "train"]),
        ("gpt2", dict(dtype="int3"), ["`dtype` is 'int3'", "bf16"]),
        ("bert-base", dict(phase="decode"), ["`phase`", "forward"]),
        ("bert-base", dict(input_len=600), ["600", "512"]),
        ("bert-base", dict(stack="serving"), ["`stack`", "eager"]),
        ("resnet-50", dict(input_len=5), ["`input_len` is 5", "images"]),
        ("mixtral-8x7b", dict(stack="eager"), ["`stack`", "serving"]),
    ],
)
def test_a_request_that_the_model_lacks_is_refused(model, given, words):
    with pytest.raises(ValueError) as error:
        load_model(model).listings(**given)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("depths", [[3, 0, 6, 3], [3, 4, True, 3], [3, 4, 6.5, 3], []])
def test_one_bad_number_of_a_list_is_refused(tmp_path, depths):
    values = dict(load_model("resnet-50").config.values) | {"depths": depths}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="`depths` is .* whole numbers of at least 1"):
        load_model(tmp_path)


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
