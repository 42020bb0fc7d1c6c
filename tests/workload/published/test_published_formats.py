"""Types that published checkpoints state, as one reads their files by hand."""

import json
from pathlib import Path

import pytest

from diffenergy.workload import Config
from diffenergy.workload.models._checkpoint.formats import (
    Checkpoint,
    Format,
    read_checkpoint,
)

FP8 = Format("fp8", "fp8")
BLOCK = Format("fp8_block", "fp8_block")
NVFP4 = Format("nvfp4", "nvfp4")
NVFP4_WEIGHTS = Format("nvfp4", "bf16")
MXFP4 = Format("mxfp4", "mxfp8")
INT4 = Format("int4", "bf16", 32)

_EXPERTS = "layers.5.mlp.experts.7.up_proj"
_SHARED = "layers.5.mlp.shared_experts.up_proj"
_FP8_BLOCKS = {
    "layers.0.self_attn.q_a_proj": BLOCK, _EXPERTS: BLOCK, _SHARED: BLOCK,
    "layers.0.mlp.down_proj": BLOCK, "layers.5.mlp.gate": None, "lm_head": None,
}  # fmt: skip
_GPT_OSS = {
    "layers.0.self_attn.q_proj": None, _EXPERTS: MXFP4, "layers.0.mlp.router": None,
    "lm_head": None,
}  # fmt: skip
_DEVSTRAL = {
    "layers.0.self_attn.q_proj": FP8, "layers.0.mlp.up_proj": FP8,
    "vision_tower.transformer.layers.0.attention.q_proj": None,
    "multi_modal_projector.linear_1": None, "lm_head": None,
}  # fmt: skip
PUBLISHED: dict[str, tuple[str | None, dict[str, Format | None]]] = {
    "Qwen--Qwen3-30B-A3B-FP8": (None, {
        "layers.0.self_attn.q_proj": BLOCK, _EXPERTS: BLOCK, "layers.0.mlp.gate": None,
        "lm_head": None,
    }),
    "XiaomiMiMo--MiMo-V2-Flash": (None, {
        "layers.0.self_attn.q_proj": BLOCK, _EXPERTS: BLOCK, "lm_head": None,
    }),
    "deepseek-ai--DeepSeek-V3": (None, _FP8_BLOCKS),
    "deepseek-ai--DeepSeek-V3.2": (None, _FP8_BLOCKS | {
        "layers.0.self_attn.indexer.wq_b": BLOCK,
        "layers.0.self_attn.indexer.weights_proj": None,
    }),
    "deepseek-ai--DeepSeek-V4-Flash": (None, _FP8_BLOCKS | {
        _EXPERTS: MXFP4, "layers.5.self_attn.compressor.wkv": None,
        "layers.5.attn_hc.fn": None,
    }),
    "moonshotai--Kimi-K2-Instruct": (None, _FP8_BLOCKS),
    "moonshotai--Kimi-K2.5": (None, {
        "layers.0.self_attn.q_a_proj": None, _EXPERTS: INT4, _SHARED: None,
        "layers.0.mlp.up_proj": None, "layers.5.mlp.gate": None, "lm_head": None,
    }),
    "mistralai--Devstral-2-123B-Instruct": (None, _DEVSTRAL),
    "mistralai--Devstral-Small-2-24B-Instruct": (None, _DEVSTRAL),
    "nvidia--DeepSeek-V3.1-NVFP4": ("fp8", {
        "layers.0.self_attn.q_a_proj": None, "layers.0.self_attn.o_proj": NVFP4,
        "layers.0.mlp.up_proj": NVFP4, _EXPERTS: NVFP4, _SHARED: NVFP4,
        "layers.61.mlp.experts.7.up_proj": None, "lm_head": None,
    }),
    "nvidia--Gemma-4-26B-A4B-NVFP4": ("fp8", {
        "layers.0.self_attn.q_proj": None, "layers.5.experts.7.up_proj": NVFP4,
        "layers.29.mlp.up_proj": None, "layers.0.router.proj": None, "lm_head": None,
    }),
    "nvidia--Llama-3.1-70B-Instruct-FP8": ("fp8", {
        "layers.0.self_attn.q_proj": FP8, "layers.0.mlp.up_proj": FP8, "lm_head": None,
    }),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": ("fp8", {
        "layers.0.mixer.in_proj": NVFP4, "layers.4.mixer.in_proj": None,
        "layers.5.self_attn.q_proj": None, "layers.1.mixer.experts.7.up_proj": NVFP4,
        "layers.1.mlp.shared_experts.up_proj": NVFP4, "layers.1.mixer.gate": None,
        "layers.0.mixer.conv1d": None, "lm_head": None,
    }),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": ("fp8", {
        "layers.0.mixer.in_proj": FP8, "layers.1.mixer.experts.7.up_proj": FP8,
        "layers.1.mixer.shared_experts.up_proj": FP8, "lm_head": None,
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
    "openai--gpt-oss-120b": (None, _GPT_OSS),
    "openai--gpt-oss-20b": (None, _GPT_OSS),
}  # fmt: skip
"""KV cache and formats, as one reads the files."""


def published(shared: Path, name: str, folder: Path) -> Checkpoint:
    """Checkpoint of a config and the file beside it, copied to `folder`."""
    source = shared / "data/facts/model_configs"
    beside = source / f"hf_quant_config/{name}.json"
    if beside.exists():
        (folder / "hf_quant_config.json").write_text(beside.read_text())
    (folder / "config.json").write_text((source / f"{name}.json").read_text())
    values = json.loads((folder / "config.json").read_text())
    return read_checkpoint(Config(name, str(folder / "config.json"), values))


@pytest.mark.shared_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_checkpoints(name: str, shared: Path, tmp_path: Path):
    dtype, formats = PUBLISHED[name]
    checkpoint = published(shared, name, tmp_path)
    assert (checkpoint.kv_dtype, checkpoint.unread) == (dtype, "")
    assert {module: checkpoint.format(module) for module in formats} == formats


@pytest.mark.shared_data
def test_the_other_published_configs_are_in_16_bit(shared: Path, tmp_path: Path):
    names = {file.stem for file in (shared / "data/facts/model_configs").glob("*.json")}
    assert set(PUBLISHED) <= names
    for name in sorted(names - set(PUBLISHED)):
        assert published(shared, name, tmp_path) == Checkpoint(None, ()), name
