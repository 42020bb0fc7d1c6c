"""What is published of the models people serve, against their configs: parameters, what
a token and a request keep, FLOP of the weight products of a token."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from diffenergy.workload import Config, LanguageModel, load_model
from diffenergy.workload.models import Model, model_from_config

from .published import BUNDLED, OTHERS, Published

TOKENS = 2048


def built(kind: str) -> LanguageModel:
    """The model of a config of `OTHERS`."""
    values = {"model_type": kind, **OTHERS[kind][0]}
    return language(model_from_config(Config(kind, f"{kind}.json", values)))


def language(model: Model) -> LanguageModel:
    assert isinstance(model, LanguageModel)
    return model


def gflop(model: LanguageModel) -> float:
    """GFLOP of the weight products of one token of a prompt."""
    (listing,) = model.listings(phase="prefill", input_len=TOKENS, base=True)
    total = 0.0
    for k in listing.kernels:
        if k["op"] == "gemm":
            total += 2 * k["batch"] * k["m"] * k["n"] * k["k"] * k["count"]
        elif k["op"] == "moe":
            parts = 3 if k["gated"] else 2
            rows = k["num_tokens"] * k["topk"] * k["count"]
            total += 2 * parts * rows * k["hidden_size"] * k["inter_size"]
    return total / TOKENS / 1e9


def check(model: LanguageModel, known: Published):
    assert model.text_parameters() == known.parameters
    assert model.parameters() == known.parameters + known.tower
    assert model.kv_bytes_per_token("bf16") == known.grows
    assert model.kv_bytes_per_token("bf16", windowed=True) == known.windowed
    assert model.state_bytes() == known.state
    if known.gflop is not None:
        assert gflop(model) == pytest.approx(known.gflop, rel=2e-4)


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_model_is_as_published(name: str):
    check(language(load_model(name)), BUNDLED[name])


@pytest.mark.parametrize("kind", OTHERS)
def test_a_family_is_as_published(kind: str):
    check(built(kind), OTHERS[kind][1])


SPELLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "granite of transformers 5": ("granitemoehybrid", dict(
        init_method="mup", layer_types=[
            "full_attention" if i in (5, 15, 25, 35) else "linear_attention"
            for i in range(40)
        ],
    )),
    "kimi linear as published": ("kimi_linear", dict(
        max_position_embeddings=None, model_max_length=1048576
    )),
    "kimi linear of transformers 5": ("kimi_linear", dict(
        mlp_layer_types=["dense"] + 26 * ["sparse"], first_k_dense_replace=None
    )),
    "gemma 3 27B as published": ("gemma3_text", dict(
        vocab_size=None, max_position_embeddings=None
    )),
    "smollm3 as published": ("smollm3", dict(layer_types=36 * ["full_attention"])),
    "deepseek of transformers 5": ("deepseek_v32", dict(
        layer_types=61 * ["indexed_attention"]
    )),
    "glm-5 as published": ("glm_moe_dsa", dict(indexer_rope_interleave=True)),
    "mimo of transformers 5": ("mimo_v2_flash", dict(
        hybrid_layer_pattern=None, layer_types=[
            "sliding_attention" if slides else "full_attention"
            for slides in [0, *[1] * 4, *([0] + [1] * 5) * 7, 0]
        ],
    )),
    "exaone 4 as published": ("exaone4", dict(
        summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True
    )),
    "phi with a window of all positions": ("phi3", dict(
        sliding_window=16384, full_attn_mod=1, interpolate_factor=1
    )),
    "lfm2 as first published": ("lfm2", dict(
        layer_types=None, full_attn_idxs=[2, 5, 8, 10, 12, 14], theta=1e6,
        block_use_xavier_init=True,
    )),
}  # fmt: skip
"""Other words for what configs of `OTHERS` say."""


@pytest.mark.parametrize("name", SPELLINGS)
def test_other_words_say_the_same(name: str):
    kind, changes = SPELLINGS[name]
    both = {"model_type": kind, **OTHERS[kind][0], **changes}
    values = {key: value for key, value in both.items() if value is not None}
    model = language(model_from_config(Config(kind, f"{kind}.json", values)))
    check(model, OTHERS[kind][1])
    assert model.positions == built(kind).positions
    assert model.layer_counts == built(kind).layer_counts


def test_nemotron_by_the_list_of_newer_files():
    model = language(load_model("nemotron-3-nano"))
    words = {"M": "linear_attention", "*": "full_attention", "E": "moe", "-": "mlp"}
    pattern = model.config.values["hybrid_override_pattern"]
    listed = [words[letter] for letter in pattern]
    values = {**model.config.values, "layers_block_type": listed}
    del values["hybrid_override_pattern"]
    again = language(
        model_from_config(dataclasses.replace(model.config, values=values))
    )
    assert again.layer_counts == model.layer_counts


def test_gemma_4_by_the_heads_of_every_layer():
    model = language(load_model("gemma-4-26b-a4b"))
    outer = model.config.outer
    assert outer is not None
    inner = dict(outer.values["text_config"])
    heads = {
        "head_dim": inner.pop("global_head_dim"),
        "num_key_value_heads": inner.pop("num_global_key_value_heads"),
    }
    kinds = enumerate(inner["layer_types"])
    full = [i for i, kind in kinds if kind == "full_attention"]
    alike = {f"{i:02}": heads for i in full}
    inner["per_layer_config"] = alike

    def again(text: dict[str, Any]) -> LanguageModel:
        values = {**outer.values, "text_config": text}
        return language(model_from_config(dataclasses.replace(outer, values=values)))

    assert again(inner).layer_counts == model.layer_counts
    last = f"{full[-1]:02}"
    for odd in (
        {name: heads for name in alike if name != last},
        alike | {last: heads | {"head_dim": 64}},
        {name: heads | {"window": 8} for name in alike},
    ):
        inner["per_layer_config"] = odd
        with pytest.raises(ValueError, match="`per_layer_config` is"):
            again(inner)


def test_gemma_3_states_extended_positions():
    """As vLLM reads it: 131,072 are with the factor 8 of the full layers."""
    values = {"model_type": "gemma3_text", **OTHERS["gemma3_text"][0]}
    values["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    model = model_from_config(Config("gemma", "config.json", values))
    assert model.max_positions == 131_072


def test_a_window_from_a_later_layer_on_is_none_before():
    """Qwen2 states windows that no layer has: all come before `max_window_layers`."""
    kind = "qwen2_5_vl_text"
    values = {"model_type": kind, **OTHERS[kind][0], "use_sliding_window": True}
    model = language(model_from_config(Config("vl", "config.json", values)))
    check(model, OTHERS[kind][1])


def test_files_of_quantised_checkpoints():
    """Sizes of the published files: experts in 4 bits with a byte a group of 32."""
    experts = 24 * 32 * 3 * 2880 * 2880
    model = language(load_model("gpt-oss-20b"))
    others = model.parameters() - experts
    assert model.stored_dtype == "mxfp4"
    assert model.weight_bytes("mxfp4") == 13_761_264_768
    assert model.weight_bytes("mxfp4") == experts * 0.53125 + others * 2
    assert load_model("gpt-oss-120b").weight_bytes("mxfp4") == 65_248_815_744


def number(row: dict[str, str], name: str) -> float | None:
    return float(row[name]) if row[name] else None


@pytest.mark.shared_data
def test_every_shared_config(shared: Path, tmp_path: Path):
    """Against the counts of the reference implementations; what is no language model is
    refused, or counted by tests of its own."""
    folder = shared / "data" / "facts" / "model_configs"
    with (shared / "data" / "facts" / "models_extra.csv").open() as file:
        rows = {row["name"].replace("/", "--"): row for row in csv.DictReader(file)}
    checked = 0
    for path in sorted(folder.glob("*.json")):
        row = rows[path.stem]
        grows = number(row, "kv_bytes_per_token_bf16")
        if grows is None:
            continue
        copy = tmp_path / path.stem
        copy.mkdir()
        shutil.copy(path, copy / "config.json")
        sidecar = folder / "hf_quant_config" / path.name
        if sidecar.exists():
            shutil.copy(sidecar, copy / "hf_quant_config.json")
        total, tower = number(row, "total_params"), number(row, "tower_params")
        model = language(load_model(copy))
        known = Published(
            round((total or 0) - (tower or 0)),
            round(grows),
            round(number(row, "kv_bytes_per_token_windowed_bf16") or 0),
            round(number(row, "state_bytes_per_request") or 0),
            number(row, "gflop_prefill_per_token"),
            round(tower or 0),
        )
        check(model, known)
        values = json.loads(path.read_text())
        text = json.dumps(values) + (sidecar.read_text() if sidecar.exists() else "")
        quantised = "quant_method" in text or "quant_algo" in text
        assert model.checkpoint.quantised == quantised, path.stem
        assert not model.checkpoint.unread
        checked += 1
    assert checked == 41
