"""What stays in a GPU's memory, what fits, and what is said of number formats."""

import json
from pathlib import Path

import pytest

import diffenergy as de
from diffenergy.estimator import prepare
from diffenergy.estimator._asking.warnings import missing_units
from diffenergy.hardware import read_gpu
from diffenergy.kernels import ops
from diffenergy.workload import Listing, load_model

MODELS = Path(de.__file__).parent / "data" / "models"
CONTEXT = 1e9
PARAMETERS = 8_030_261_248
TOKENS = 16 * 4096
LAYERS, H, KV, INNER, HEADS, VOCAB = 32, 4096, 1024, 14336, 32, 128256
"""Of Llama-3.1-8B."""


def memory(model: str, **request) -> dict[str, float]:
    """Bytes by part of a model's request."""
    result = load_model(model)
    return result.memory(result.request(**request))


def train(model: str = "llama-3.1-8b", **more) -> dict[str, float]:
    return memory(model, **({"phase": "train", "batch": 16, "input_len": 4096} | more))


# --- training


def test_activations_of_an_8b_model_at_65536_tokens():
    """parallel training's formula without dropout: 139,392 B a token and layer, 292 GB,
    and the inputs of final norm and head. Checkpointed are inputs of layers and one
    layer; layers in fp8 store their inputs in a byte."""
    attention = 2 * (H + 2 * KV) + 2 * H + 4 * HEADS
    layer = 4 * H + 4 * H + attention + 4 * INNER + 2 * INNER
    assert layer == 139_392
    result = train()
    expected = TOKENS * (LAYERS * layer + 4 * H)
    assert result["activations"] == expected == pytest.approx(290e9, rel=0.02)
    assert result["logits"] == TOKENS * VOCAB * 6  # bf16 and fp32 of a fused loss
    assert result["weights"] == result["gradients"] == 2 * PARAMETERS
    assert result["optimizer"] == 12 * PARAMETERS  # fp32 master and two moments
    assert result["kv_cache"] == result["state"] == result["gathered"] == 0
    widest = 2 * TOKENS * (3 * INNER + H)  # gate, up, product and the skip
    assert result["workspace"] == CONTEXT + widest
    less = train(checkpointing=True)
    inputs = TOKENS * (LAYERS * 2 * H + layer + 4 * H)
    assert less["activations"] == pytest.approx(inputs, rel=1e-12)
    assert {**less, "activations": 0} == {**result, "activations": 0}
    narrow = result["activations"] - train(dtype="fp8")["activations"]
    assert narrow == TOKENS * LAYERS * (2 * H + H + INNER)


def test_a_layer_of_gpt3_keeps_what_megatron_counts():
    """arXiv 2205.05198: 34 s b h with dropout masks (2) and stored GELU (8, restored
    here unless layers are checkpointed); LSE rows of the fused kernel on top, else
    5 a s / h less the dropout of the scores: 2 a s^2 b."""
    h, tokens, heads = 2048, 2 * 1024, 16
    flash, eager, again = (
        memory("gpt3-xl", phase="train", batch=2, input_len=1024, **x)["activations"]
        for x in ({}, {"attention": "eager"}, {"checkpointing": True})
    )
    assert flash == tokens * (24 * ((34 - 2 - 8) * h + 4 * heads) + 4 * h)
    assert again == tokens * (24 * 2 * h + (34 - 2) * h + 4 * heads + 4 * h)
    scores = 24 * 2 * 16 * 1024**2
    assert eager - flash == 2 * scores - 24 * 4 * 2 * 16 * 1024


# --- inference


def test_a_generation_holds_weights_cache_and_a_layer():
    result = memory("llama-3.1-8b", batch=8, input_len=512, output_len=128)
    assert result["weights"] == 2 * PARAMETERS
    assert result["kv_cache"] == 2 * 32 * 8 * 128 * 2 * (512 + 128) * 8
    assert result["activations"] == 2 * 8 * 512 * (3 * INNER + H)
    assert result["logits"] == 8 * VOCAB * 6  # of the last tokens alone
    assert result["workspace"] == CONTEXT
    assert result["gradients"] == result["optimizer"] == 0
    # a token's two experts: gate, up and product beside its row, there and back
    mixture = memory("mixtral-8x7b", batch=8, input_len=512)["activations"]
    assert mixture == 2 * 8 * 512 * (2 * H + 2 * 3 * INNER + H)


def test_an_image_model_holds_its_largest_kernel():
    """ResNet-50: the first 1x1 of a 56 x 56 stage, 64 to 256 channels, in fp32 images
    of batch 4; elements of its sums (two read, one written) are more."""
    result = memory("resnet-50", batch=4, dtype="fp32")
    assert result["activations"] >= 4 * (64 + 256) * 56**2 * 4
    assert result["kv_cache"] == result["logits"] == 0
    twice = memory("resnet-50", batch=8, dtype="fp32")
    assert twice["activations"] == 2 * result["activations"]


# --- the answer


def test_parts_add_up_and_a_listing_is_unknown(tmp_path):
    task = prepare("llama-3.1-8b", "h100-sxm", batch=8)
    rest = ("total", "capacity", "fits")
    parts = sum(x for part, x in task.memory.items() if part not in rest)
    assert task.memory["total"] == parts
    assert task.memory["capacity"] == read_gpu("h100-sxm").values["dram_capacity"]
    assert task.memory["fits"] is True and task.warnings == []
    file = tmp_path / "one.jsonl"
    kernel = dict(op="softmax", rows=8, cols=8, dtype="fp32")
    file.write_text(json.dumps({"name": "one", "kernels": [kernel]}))
    listed = prepare(str(file), "h100-sxm").memory
    assert list(listed) == list(task.memory)
    known = {name for name, value in listed.items() if value is not None}
    assert known == {"capacity"}


def test_what_does_not_fit_is_a_warning_with_numbers():
    task = prepare("llama-3.1-70b", "h100-sxm", batch=4)
    (warning,) = task.warnings
    weights = 70_553_706_496 * 2 / 1e9
    cache = 2 * 80 * 8 * 128 * 2 * (512 + 128) * 4 / 1e9
    for number in (weights, cache, task.memory["total"] / 1e9, 2**30 * 80 / 1e9):
        assert f"{number:.1f} GB" in warning
    assert task.memory["fits"] is False


def test_the_largest_batch_and_length_that_fit():
    options: dict = dict(batch=64, input_len=4096, output_len=8)
    with pytest.raises(de.Infeasible, match="`require_fit`") as raised:
        prepare("llama-3.1-8b", "a100-pcie-40gb", require_fit=True, **options)
    assert raised.value.least.pop("tp") == 2
    for name, least in raised.value.least.items():
        request: dict = {**options, "require_fit": True, name: int(least)}
        assert prepare("llama-3.1-8b", "a100-pcie-40gb", **request).memory["fits"]
        request[name] += 1
        with pytest.raises(de.Infeasible):
            prepare("llama-3.1-8b", "a100-pcie-40gb", **request)
    assert set(raised.value.least) == {"batch", "input_len"}


def test_a_type_narrower_than_that_of_a_checkpoint_is_offered():
    """mxfp4 experts and 16-bit projections: int4 everywhere is less, fp8 is more."""

    def total(dtype: str | None) -> float:
        return prepare("gpt-oss-20b", dtype=dtype).memory["total"]

    capacity = (total("int4") + total(None)) / 2
    assert total("int4") < capacity < total(None) < total("fp8")
    changes = {"dram_capacity": capacity}
    request: dict = dict(changes=changes, require_fit=True)
    with pytest.raises(de.Infeasible, match=r"it fits with dtype int4 or tp=2\.$"):
        prepare("gpt-oss-20b", "h100-sxm", **request)
    assert prepare("gpt-oss-20b", "h100-sxm", dtype="int4", **request).memory["fits"]


# --- number formats


def test_a_gpu_without_units_of_a_type_says_what_runs_instead():
    def warnings(gpu: str, dtype: str) -> list[str]:
        return prepare("gpt2", gpu, dtype=dtype, phase="prefill").warnings

    for gpu, dtype in (("h100-sxm", "fp8"), ("a10", "bf16"), ("t4", "fp16")):
        assert warnings(gpu, dtype) == []
    (fp8,) = warnings("a100-sxm-80gb", "fp8")
    assert "no fp8 units" in fp8 and "rate of bf16" in fp8
    (bf16,) = warnings("t4", "bf16")
    assert "no bf16 units" in bf16 and "rate of fp16" in bf16


@pytest.mark.parametrize(
    ("gpu", "dtype", "words"),
    [
        ("h100-sxm", "mxfp8", "no mxfp8 units: products in mxfp8"),
        ("h100-sxm", "nvfp4", "no fp4 units"),
        ("b200-sxm", "mxfp8", None), ("h100-sxm", "fp8_block", None),
    ],
)  # fmt: skip
def test_block_scaled_types_of_a_listing(sample, gpu, dtype, words):
    listing = Listing("mine", kernels=(sample("moe", dtype=dtype),))
    result = missing_units([listing], read_gpu(gpu))
    assert len(result) == (words is not None)
    assert all(words in remark and "rate of bf16" in remark for remark in result)


def test_products_need_tensor_cores(sample):
    """A GTX 1080 Ti has none; streams run in any type."""
    multiply = {
        op
        for op in ops()
        if missing_units(
            [Listing("mine", kernels=(sample(op),))], read_gpu("gtx-1080-ti")
        )
    }
    products = "gemm moe conv2d conv2d_input_grad conv2d_weight_grad custom scan"
    attention = {"context_attention", "generation_attention"}
    assert {*products.split(), *attention} <= multiply
    assert not multiply & {"softmax", "elementwise", "rmsnorm", "gather", "activity"}


@pytest.mark.parametrize(
    "name, changed, options, words",
    [
        ("mine", {}, None, "states no `torch_dtype`"),
        ("mine", {}, "bf16", None),
        ("mine", {"torch_dtype": "bfloat16"}, None, None),
        ("mine", {"dtype": "float16"}, None, None),
        ("mine", {"torch_dtype": "float32"}, None, "stores the weights in float32"),
        ("mine-FP8", {"torch_dtype": "bfloat16"}, None, "'mine-FP8' says FP8"),
        ("mine-FP8", {"torch_dtype": "bfloat16"}, "fp8", None),
        ("mine-FP8", {"quantization_config": {"quant_method": "fp8"}}, None, None),
    ],
)
def test_types_of_weights_that_nobody_states(tmp_path, name, changed, options, words):
    folder = tmp_path / name
    folder.mkdir()
    values = json.loads((MODELS / "qwen3-8b" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changed))
    result = prepare(str(folder), "h100-sxm", dtype=options).warnings
    assert len(result) == (words is not None)
    assert all(words in warning and "--dtype" in warning for warning in result)


def test_the_type_of_weights_may_stand_outside_the_text_model(tmp_path):
    values = json.loads((MODELS / "llama-4-scout" / "config.json").read_text())
    assert values["torch_dtype"] == values["text_config"].pop("torch_dtype")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    result = prepare(str(file), "b300", dtype=None).warnings
    assert not any("torch_dtype" in warning for warning in result)


# --- energy of a token


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, request_, tokens",
    [
        ("gpt2", dict(phase="prefill", batch=3, input_len=64), 3 * 64),
        ("gpt2", dict(phase="decode", batch=3, input_len=64), 3),
        ("gpt2", dict(phase="generate", batch=3, input_len=64, output_len=4), 12),
        ("bert-base", dict(batch=2, input_len=64), 2 * 64),
        ("resnet-50", dict(batch=2), None),
    ],
)
def test_energy_is_shared_by_the_tokens_of_the_phase(model, request_, tokens):
    result = prepare(model, "a100-sxm-80gb", **request_).run().summary
    each, rate = result["energy_j_per_token"], result["tokens_per_s"]
    if tokens is None:
        assert each is rate is None
    else:
        assert each == pytest.approx(result["energy_j"] / tokens)
        assert rate == pytest.approx(tokens / result["time_s"])
