"""Types of weights and KV cache that checkpoints state, by method and by module."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from diffenergy.workload import Config
from diffenergy.workload.models._checkpoint.config import read_config
from diffenergy.workload.models._checkpoint.formats import (
    Checkpoint,
    Format,
    read_checkpoint,
)
from diffenergy.workload.models._checkpoint.quantised import Names

FP8 = Format("fp8", "fp8")
BLOCK = Format("fp8_block", "fp8_block")
NVFP4 = Format("nvfp4", "nvfp4")
NVFP4_WEIGHTS = Format("nvfp4", "bf16")
MXFP4 = Format("mxfp4", "mxfp8")
INT4 = Format("int4", "bf16", 32)
MXFP8 = Format("mxfp8", "mxfp8")
ZEROS = Format("int4", "bf16", 128, zero_point=True)
Q, UP, EXPERT = (
    f"model.layers.3.{name}"
    for name in ("self_attn.q_proj", "mlp.up_proj", "mlp.experts.7.up_proj")
)


def read(quantization: Any, **values: Any) -> Checkpoint:
    """Checkpoint of a config with that `quantization_config`."""
    values |= {"quantization_config": quantization}
    return read_checkpoint(Config("tiny", "nowhere/config.json", values))


def stored(folder: Path, name: str, values: Any) -> Path:
    file = folder / name
    file.write_text(values if isinstance(values, str) else json.dumps(values))
    return file


def group(bits: int, kind: str, size: int | None = None, **more: Any) -> dict:
    return {"num_bits": bits, "type": kind, "group_size": size} | more


def tensors(weights: Any, inputs: Any = None, targets=("Linear",), **more) -> dict:
    """compressed-tensors with one group."""
    one = dict(weights=weights, input_activations=inputs, targets=list(targets))
    return dict(quant_method="compressed-tensors", config_groups={"g": one}) | more


@pytest.mark.parametrize(
    ("form", "size"),
    [
        (BLOCK, 1 + 4 / 16384), (Format("int4", "bf16"), 0.5),
        (ZEROS, 0.5 + 2.5 / 128), (Format("int8", "bf16", 128), 1 + 2 / 128),
    ],
)  # fmt: skip
def test_bytes_of_a_weight(form: Format, size: float):
    assert form.weight_bytes == size


METHODS = [
    (dict(quant_method="fp8", weight_block_size=None), FP8),
    (dict(quant_method="fp8", weight_block_size=[128, 128]), BLOCK),
    (dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0), FP8),
    (dict(quant_method="mxfp8"), MXFP8), (dict(quant_algo="FP8"), FP8),
    (dict(quant_method="modelopt", quant_algo="FP8", weight_block_size=[128] * 2),
     BLOCK),
    (dict(quant_method="modelopt", quant_algo="fp8_pb_wo"), BLOCK),
    (dict(quant_method="modelopt_fp4", quant_algo="NVFP4", group_size=16), NVFP4),
    (dict(quant_method="modelopt", quant_algo="W4A8_AWQ", group_size=64),
     Format("int4", "fp8", 64)),
    (dict(quant_method="awq", bits=4, group_size=128, zero_point=True), ZEROS),
    (dict(quant_method="gptq", bits=4, group_size=32, sym=True, desc_act=False), INT4),
    (dict(quant_method="gptq", bits=4, group_size=128, sym=False), ZEROS),
    (dict(quant_method="gptq", bits=8, group_size=-1), Format("int8", "bf16")),
    (tensors(group(4, "int", 32, symmetric=True)), INT4),
    (tensors(group(4, "int", 128, symmetric=False)), ZEROS),
    (tensors(group(8, "int"), group(8, "int")), Format("int8", "int8")),
    (tensors(group(4, "int", 128), group(8, "int")), Format("int4", "int8", 128)),
    (tensors(group(8, "float"), group(8, "float")), FP8),
    (tensors(group(8, "float")), Format("fp8", "bf16")),
    (tensors(group(8, "float", strategy="block", block_structure=[128, 128]),
     group(8, "float", 128, strategy="group")), BLOCK),
    (tensors(group(8, "float", 32), group(8, "float", 32)), MXFP8),
    (tensors(group(4, "float", 16), group(4, "float", 16)), NVFP4),
    (tensors(group(4, "float", 16)), NVFP4_WEIGHTS),
    (tensors(group(4, "float", 32)), Format("mxfp4", "bf16")),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "form"), METHODS)
def test_methods(raw: dict, form: Format):
    checkpoint = read(raw)
    assert checkpoint.quantised and not checkpoint.unread
    assert {checkpoint.format(name) for name in (Q, UP, EXPERT)} == {form}
    for wide in ("lm_head", "model.layers.3.mlp.gate", "model.layers.3.mlp.router"):
        assert checkpoint.format(wide) is None
    assert checkpoint.statements == (
        f"linear layers in {form}, by `quantization_config` of config.json",
    )


UNREAD = [
    (dict(quant_method="gguf"), "gguf"), (dict(bits=4), "`quant_method` is missing"),
    (dict(quant_method="fp8", weight_block_size=[64, 64]), "[64, 64]"),
    (dict(quant_method="awq", bits=3), "`bits` is 3"),
    (dict(quant_method="gptq", bits=4, group_size="all"), "`group_size`"),
    (dict(quant_method="gptq", bits=4, modules_in_block_to_quantize=3),
     "`modules_in_block_to_quantize` is 3"),
    (dict(quant_method="modelopt", quant_algo="NVFP4_SVD"), "NVFP4_SVD"),
    (dict(quant_method="modelopt", quant_algo="NVFP4", group_size=32), "is 32"),
    (dict(quant_method="modelopt", quant_algo="MIXED_PRECISION"), "`quantized_layers`"),
    (dict(quant_method="compressed-tensors"), "`config_groups`"),
    (tensors(group(2, "int")), "int2"),
    (tensors(group(8, "int"), group(8, "float")), "`input_activations`"),
    (tensors(group(4, "int"), targets=["Attention"]), "no weights"),
    (tensors(group(4, "int"), sparsity_config=dict(format="sparse-24")), "sparse-24"),
    (tensors(group(4, "int"), ignore="lm_head"), "`ignore`"),
    (tensors(group(4, "int"), ignore=["re:(mlp"]), "re:(mlp"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "word"), UNREAD)
def test_what_cannot_be_read_names_the_value_and_the_remedy(raw: dict, word: str):
    checkpoint = read(raw)
    assert checkpoint.quantised and word in checkpoint.unread
    assert checkpoint.unread.startswith("nowhere/config.json: ")
    assert checkpoint.unread.endswith("; give `--dtype`.")
    assert "\n" not in checkpoint.unread
    with pytest.raises(ValueError, match="--dtype"):
        checkpoint.format(Q)


def test_nothing_stated():
    for raw in (None, {}):
        checkpoint = read(raw)
        assert checkpoint == Checkpoint(None, ())
        assert not checkpoint.quantised and checkpoint.format(Q) is None


def test_experts_in_mxfp4():
    """Of gpt-oss nothing else; of DeepSeek V4 the routed ones as `expert_dtype`."""
    checkpoint = read(dict(quant_method="mxfp4"))
    assert [checkpoint.format(name) for name in (Q, UP, EXPERT)] == [None, None, MXFP4]
    raw = dict(quant_method="fp8", weight_block_size=[128, 128])
    checkpoint = read(raw, expert_dtype="fp4")
    shared = "model.layers.3.mlp.shared_experts.up_proj"
    assert checkpoint.format(EXPERT) == MXFP4
    assert checkpoint.format(shared) == checkpoint.format(Q) == BLOCK
    assert checkpoint.format("model.layers.3.self_attn.compressor.wkv") is None
    assert "mxfp4 (multiplied in mxfp8) and fp8_block" in checkpoint.statements[0]
    assert read(raw, expert_dtype="fp8").format(EXPERT) == BLOCK
    assert "`expert_dtype`" in read(raw, expert_dtype="fp6").unread


def test_a_table_of_modules_holds_for_the_head_too():
    layers = {
        "model.language_model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.3.mlp": {"quant_algo": "NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "W4A16_NVFP4"},
    }
    checkpoint = read(dict(quant_algo="MIXED_PRECISION", quantized_layers=layers))
    assert checkpoint.format(Q) == FP8
    assert checkpoint.format(UP) == checkpoint.format(EXPERT) == NVFP4
    assert checkpoint.format("lm_head") == NVFP4_WEIGHTS
    assert checkpoint.format("layers.3.self_attn.k_proj") is None
    assert checkpoint.format("layers.4.mlp.up_proj") is None


def test_groups_that_name_modules_come_first():
    types, ignore = ("Linear", "Embedding"), ["re:.*k_proj"]
    raw = tensors(group(8, "float"), group(8, "float"), types, ignore=ignore)
    raw["config_groups"]["h"] = dict(
        weights=group(4, "int", 32), targets=["re:.*experts.*", UP]
    )
    checkpoint = read(raw)
    assert checkpoint.format(EXPERT) == checkpoint.format(UP) == INT4
    assert checkpoint.format(Q) == FP8
    assert checkpoint.format("layers.3.self_attn.k_proj") is None


def test_exceptions_of_gptq():
    dynamic = {r"+:.*\.3\.mlp.*": {"bits": 8}, r"-:.*\.self_attn\..*": {}}
    raw = dict(quant_method="gptq", bits=4, group_size=32, dynamic=dynamic)
    checkpoint = read(raw | {"lm_head": True})
    assert checkpoint.format(UP) == Format("int8", "bf16", 32)
    assert checkpoint.format("layers.4.mlp.up_proj") == INT4
    assert checkpoint.format(Q) is None
    assert checkpoint.format("lm_head") == INT4
    some = read(raw | {"modules_in_block_to_quantize": [["mlp.up_proj"]]})
    assert some.format("layers.4.mlp.up_proj") == INT4
    assert some.format("layers.4.mlp.down_proj") is None


def test_keys_that_leave_modules_out():
    keys = "ignore ignored_layers modules_to_not_convert exclude_modules"
    for key in keys.split():
        checkpoint = read({"quant_method": "fp8", key: ["lm_head", Q]})
        assert checkpoint.format(Q) is None and checkpoint.format(UP) == FP8
        words = "16 bit for 2 names and patterns of config.json"
        assert checkpoint.statements[1] == words


@pytest.mark.parametrize(
    ("stated", "dtype", "words"),
    [
        (dict(kv_cache_quant_algo="FP8"), "fp8", "KV cache in fp8, by config.json"),
        (dict(kv_cache_scheme=dict(num_bits=8, type="float", dynamic=False)), "fp8",
         "KV cache in fp8, by config.json"),
        (dict(kv_cache_quant_algo="NVFP4"), None,
         'KV cache in 16 bit: "NVFP4" is not modelled, by config.json'),
    ],
)  # fmt: skip
def test_kv_cache(stated: dict, dtype: str | None, words: str):
    checkpoint = read(dict(quant_algo="FP8") | stated)
    assert (checkpoint.kv_dtype, checkpoint.statements[-1]) == (dtype, words)
    alone = read(dict(quant_algo=None) | stated)
    assert alone.kv_dtype == dtype and not alone.quantised
    assert alone.format(Q) is None


def test_other_places_in_a_config():
    raw = tensors(group(4, "int", 32))
    inside = dict(text_config=dict(quantization_config=raw))
    for values in (dict(compression_config=raw), inside):
        config = Config("tiny", "config.json", values)
        assert read_checkpoint(config).format(Q) == INT4


_SIDE = dict(
    producer=dict(name="modelopt"),
    quantization=dict(
        quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16,
        exclude_modules=["lm_head", "model.layers.*.self_attn*"],
    ),
)  # fmt: skip


def test_the_file_beside_a_config(tmp_path: Path):
    stored(tmp_path, "hf_quant_config.json", _SIDE)
    stored(tmp_path, "config.json", dict(model_type="llama"))
    checkpoint = read_checkpoint(read_config(tmp_path))
    assert checkpoint.format(UP) == NVFP4 and checkpoint.format(Q) is None
    assert checkpoint.kv_dtype == "fp8"
    assert checkpoint.statements == (
        "linear layers in nvfp4, by `quantization` of hf_quant_config.json",
        "16 bit for 2 names and patterns of hf_quant_config.json",
        "KV cache in fp8, by hf_quant_config.json",
    )


def test_a_collection_of_configs_has_no_file_beside(tmp_path: Path):
    stored(tmp_path, "hf_quant_config.json", _SIDE)
    stored(tmp_path, "generation_config.json", dict(top_p=0.9))
    one = stored(tmp_path, "one.json", dict(model_type="llama"))
    assert read_checkpoint(read_config(one)).quantised
    stored(tmp_path, "other.json", dict(model_type="llama"))
    assert read_checkpoint(read_config(one)) == Checkpoint(None, ())


def test_the_config_holds_and_the_file_beside_adds(tmp_path: Path):
    stored(tmp_path, "hf_quant_config.json", _SIDE)

    def beside(quantization: dict) -> Checkpoint:
        values = dict(model_type="llama", quantization_config=quantization)
        return read_checkpoint(read_config(stored(tmp_path, "config.json", values)))

    checkpoint = beside(dict(quant_method="fp8", ignore=["mlp"]))
    assert checkpoint.format(Q) == FP8 and checkpoint.format(UP) is None
    assert checkpoint.kv_dtype == "fp8"
    assert beside(dict(quant_method="fp8")).format(Q) is None
    for less in (dict(quant_method="modelopt"), dict(quant_method="new")):
        assert beside(less).format(UP) == NVFP4


@pytest.mark.parametrize("text", ["{", "[]", '{"quantization": 3}'])
def test_a_broken_file_beside(tmp_path: Path, text: str):
    stored(tmp_path, "hf_quant_config.json", text)
    stored(tmp_path, "config.json", dict(model_type="llama"))
    checkpoint = read_checkpoint(read_config(tmp_path))
    assert "hf_quant_config.json" in checkpoint.unread
    assert checkpoint.unread.endswith("; give `--dtype`.")


EXCLUSIONS = {
    "lm_head": ("lm_head model.lm_head", ""),
    "model.layers.3": ("layers.3.mlp.up_proj", "layers.30.mlp.up_proj"),
    "mlp.gate": ("layers.3.mlp.gate", "layers.3.mlp.gate_proj"),
    "gate": ("", "layers.3.mlp.experts.0.gate_proj"),
    "self_attn": ("layers.3.self_attn.q_proj", ""),
    "model.vision_tower": ("vision_tower.layers.3.mlp.up_proj", "layers.3.mlp.up_proj"),
    "language_model.model.layers.3.mlp": ("model.layers.3.mlp.up_proj", ""),
    "model.language_model.layers.3.mlp*": (
        "layers.3.mlp.up_proj", "layers.30.mlp.up_proj"
    ),
    "model.layers.3*": ("layers.30.mlp.up_proj", ""),
    "model.layers.3.*": ("layers.3.mlp.up_proj", "layers.30.mlp.up_proj"),
    "model.layers.*.self_attn": (
        "layers.12.self_attn.q_proj", "layers.12.mlp.up_proj"
    ),
    "model.layers.*.mlp.gate": ("", "layers.12.mlp.gate_proj"),
    "*.mlp.gate": ("layers.3.mlp.gate", ""), "*lm_head*": ("lm_head", ""),
    "mtp*": ("mtp.layers.0.mlp.up_proj", ""),
    "mtp.layers.0*": ("", "layers.0.mlp.up_proj"),
    "model.visual*": ("visual.blocks.0.attn.qkv", ""),
    "model.language_model.*": ("layers.3.mlp.up_proj", "visual.blocks.0.attn.qkv"),
    "re:.*self_attn.*": ("layers.3.self_attn.q_proj", ""),
    "re:self_attn": ("", "layers.3.self_attn.q_proj"),
    r"re:model\.layers\.(1|3)\.mlp": ("layers.3.mlp.up_proj", ""),
    r"re:language_model\.model\.layers\.3\.": ("layers.3.mlp.up_proj", ""),
    r"re:.*mlp\.(gate|up|down)_proj.*": ("", "layers.3.mlp.experts.0.up_proj"),
    "backbone.layers.5.mixer.q_proj": (
        "layers.5.self_attn.q_proj", "layers.5.self_attn.k_proj"
    ),
    "backbone.layers.*.mixer.in_proj": ("layers.5.mamba.in_proj", ""),
    "model.layers.5.block_sparse_moe.gate": ("layers.5.mlp.gate", ""),
}  # fmt: skip
"""Names, globs and expressions of checkpoints; modules that are and are not meant."""


@pytest.mark.parametrize("pattern", EXCLUSIONS)
def test_exclusions(pattern: str):
    for matches, modules in zip((True, False), EXCLUSIONS[pattern], strict=True):
        for module in modules.split():
            assert Names((pattern,)).match(module) is matches, module
            several = Names((pattern, "nothing", "nor*.this"))
            assert several.match(f"model.{module}") is matches, module


# --- published checkpoints, as one reads their files by hand

_EXPERTS = "layers.5.mlp.experts.7.up_proj"
_SHARED = "layers.5.mlp.shared_experts.up_proj"
_FP8_BLOCKS = {
    "layers.0.self_attn.q_a_proj": BLOCK, _EXPERTS: BLOCK, _SHARED: BLOCK,
    "layers.0.mlp.down_proj": BLOCK, "layers.5.mlp.gate": None, "lm_head": None,
}  # fmt: skip
PUBLISHED: dict[str, tuple[str | None, dict[str, Format | None]]] = {
    "deepseek-ai--DeepSeek-V3.2": (None, _FP8_BLOCKS | {
        "layers.0.self_attn.indexer.wq_b": BLOCK,
        "layers.0.self_attn.indexer.weights_proj": None,
    }),
    "deepseek-ai--DeepSeek-V4-Flash": (None, _FP8_BLOCKS | {
        _EXPERTS: MXFP4, "layers.5.self_attn.compressor.wkv": None,
        "layers.5.attn_hc.fn": None,
    }),
    "moonshotai--Kimi-K2.5": (None, {
        "layers.0.self_attn.q_a_proj": None, _EXPERTS: INT4, _SHARED: None,
        "layers.0.mlp.up_proj": None, "layers.5.mlp.gate": None, "lm_head": None,
    }),
    "mistralai--Devstral-Small-2-24B-Instruct": (None, {
        "layers.0.self_attn.q_proj": FP8, "layers.0.mlp.up_proj": FP8,
        "vision_tower.transformer.layers.0.attention.q_proj": None,
        "multi_modal_projector.linear_1": None, "lm_head": None,
    }),
    "nvidia--DeepSeek-V3.1-NVFP4": ("fp8", {
        "layers.0.self_attn.q_a_proj": None, "layers.0.self_attn.o_proj": NVFP4,
        "layers.0.mlp.up_proj": NVFP4, _EXPERTS: NVFP4, _SHARED: NVFP4,
        "layers.61.mlp.experts.7.up_proj": None, "lm_head": None,
    }),
    "nvidia--Gemma-4-26B-A4B-NVFP4": ("fp8", {
        "layers.0.self_attn.q_proj": None, "layers.5.experts.7.up_proj": NVFP4,
        "layers.29.mlp.up_proj": None, "layers.0.router.proj": None, "lm_head": None,
    }),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": ("fp8", {
        "layers.0.mixer.in_proj": NVFP4, "layers.4.mixer.in_proj": None,
        "layers.5.self_attn.q_proj": None, "layers.1.mixer.experts.7.up_proj": NVFP4,
        "layers.1.mlp.shared_experts.up_proj": NVFP4, "layers.1.mixer.gate": None,
        "layers.0.mixer.conv1d": None, "lm_head": None,
    }),
    "nvidia--Qwen3.5-122B-A10B-NVFP4": ("fp8", {
        "layers.0.linear_attn.in_proj_qkv": None, "layers.3.self_attn.q_proj": None,
        _EXPERTS: NVFP4, "layers.5.mlp.shared_expert.up_proj": None,
        "layers.5.mlp.shared_expert_gate": None, "visual.blocks.0.attn.qkv": None,
        "mtp.layers.0.mlp.experts.7.up_proj": None, "lm_head": None,
    }),
    "nvidia--Qwen3.6-27B-NVFP4": ("fp8", {
        "layers.0.linear_attn.in_proj_qkv": FP8, "layers.0.linear_attn.in_proj_a": None,
        "layers.3.self_attn.q_proj": FP8, "layers.0.mlp.up_proj": NVFP4_WEIGHTS,
        "visual.blocks.0.attn.qkv": None, "lm_head": NVFP4_WEIGHTS,
    }),
    "openai--gpt-oss-20b": (None, {
        "layers.0.self_attn.q_proj": None, _EXPERTS: MXFP4, "layers.0.mlp.router": None,
        "lm_head": None,
    }),
}  # fmt: skip
"""KV cache and formats, as one reads the files."""


@pytest.mark.shared_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_checkpoints(name: str, shared: Path, tmp_path: Path):
    """Of a config and the file beside it."""
    source = shared / "data/facts/model_configs"
    beside = source / f"hf_quant_config/{name}.json"
    if beside.exists():
        shutil.copy(beside, tmp_path / "hf_quant_config.json")
    shutil.copy(source / f"{name}.json", tmp_path / "config.json")
    checkpoint = read_checkpoint(read_config(tmp_path))
    dtype, formats = PUBLISHED[name]
    assert (checkpoint.kv_dtype, checkpoint.unread) == (dtype, "")
    assert {module: checkpoint.format(module) for module in formats} == formats
