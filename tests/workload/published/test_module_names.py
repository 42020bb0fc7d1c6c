"""Modules that names, globs and regular expressions of checkpoints mean."""

import pytest

from diffenergy.workload.models._checkpoint.quantised import Names, bare


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("model.layers.3.mlp", "layers.3.mlp"),
        ("model.language_model.layers.3.mlp", "layers.3.mlp"),
        ("language_model.model.layers.3.mlp", "layers.3.mlp"),
        ("backbone.layers.3.mixer", "layers.3.mixer"),
        ("language_model.lm_head", "lm_head"),
        ("model.vision_tower.layers.3.mlp", "vision_tower.layers.3.mlp"),
        ("mtp.layers.0.mlp", "mtp.layers.0.mlp"),
        ("model", "model"),
    ],
)
def test_names_without_what_is_around_the_language_model(name: str, short: str):
    assert bare(name) == short


@pytest.mark.parametrize(
    ("pattern", "module", "matches"),
    [
        ("lm_head", "lm_head", True),
        ("lm_head", "model.lm_head", True),
        ("model.layers.3", "layers.3.mlp.up_proj", True),
        ("model.layers.3", "layers.30.mlp.up_proj", False),
        ("model.layers.3.mlp.gate", "layers.3.mlp.gate", True),
        ("mlp.gate", "layers.3.mlp.gate", True),
        ("mlp.gate", "layers.3.mlp.gate_proj", False),
        ("gate", "layers.3.mlp.experts.0.gate_proj", False),
        ("self_attn", "layers.3.self_attn.q_proj", True),
        ("q_proj", "layers.3.self_attn.k_proj", False),
        ("model.vision_tower", "vision_tower.layers.3.mlp.up_proj", True),
        ("model.vision_tower", "layers.3.mlp.up_proj", False),
        ("language_model.model.layers.3.mlp", "model.layers.3.mlp.up_proj", True),
        ("model.language_model.layers.3.mlp*", "layers.3.mlp.up_proj", True),
        ("model.language_model.layers.3.mlp*", "layers.30.mlp.up_proj", False),
        ("model.layers.3.mlp.shared_expert*", "layers.3.mlp.experts.0.w1", False),
        ("model.layers.3*", "layers.30.mlp.up_proj", True),
        ("model.layers.3.*", "layers.30.mlp.up_proj", False),
        ("model.layers.3.*", "layers.3.mlp.up_proj", True),
        ("model.layers.*.self_attn", "layers.12.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "layers.12.mlp.up_proj", False),
        ("model.layers.*.mlp.gate", "layers.12.mlp.gate_proj", False),
        ("*.mlp.gate", "layers.3.mlp.gate", True),
        ("*lm_head*", "lm_head", True),
        ("mtp*", "mtp.layers.0.mlp.up_proj", True),
        ("mtp.layers.0*", "layers.0.mlp.up_proj", False),
        ("model.visual*", "visual.blocks.0.attn.qkv", True),
        ("model.language_model.*", "layers.3.mlp.up_proj", True),
        ("model.language_model.*", "visual.blocks.0.attn.qkv", False),
        ("re:.*self_attn.*", "layers.3.self_attn.q_proj", True),
        ("re:self_attn", "layers.3.self_attn.q_proj", False),
        (r"re:model\.layers\.(1|3)\.mlp", "layers.3.mlp.up_proj", True),
        (r"re:language_model\.model\.layers\.3\.", "layers.3.mlp.up_proj", True),
        (r"re:.*mlp\.(gate|up|down)_proj.*", "layers.3.mlp.experts.0.up_proj", False),
        ("re:.*lm_head", "lm_head", True),
        ("backbone.layers.5.mixer.q_proj", "layers.5.self_attn.q_proj", True),
        ("backbone.layers.5.mixer.q_proj", "layers.5.self_attn.k_proj", False),
        ("backbone.layers.*.mixer.in_proj", "layers.5.mamba.in_proj", True),
        ("model.layers.5.block_sparse_moe.gate", "layers.5.mlp.gate", True),
    ],
)
def test_exclusions(pattern: str, module: str, matches: bool):
    assert Names((pattern,)).match(module) is matches
    assert Names((pattern, "nothing", "nor*.this")).match(f"model.{module}") is matches
