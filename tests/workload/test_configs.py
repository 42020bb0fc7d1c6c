"""What is read of a config of each family: defaults, other values, refusals.

Sizes are all different, so that a key read for another one shows.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from diffenergy.workload import load_model
from diffenergy.workload.models import Model, _families

from .builders import FAMILIES, one, small_model
from .published import BUNDLED, OTHERS


def fields_of(model: Model) -> dict:
    """All that was read."""
    fields = {
        field.name: getattr(model, field.name)
        for field in dataclasses.fields(model)
        if field.name != "config"
    }
    return fields | fields.get("sizes", {})


_LLAMA = [
    ("num_key_value_heads", 3, 1), ("head_dim", 16, 8), ("mlp_bias", False, True),
    ("attention_bias", False, True), ("tie_word_embeddings", False, True),
]  # fmt: skip
_VISION = [("num_channels", 3, 5), ("num_labels", 1000, 9)]
DEFAULTS = {
    "gpt2": [("n_inner", 192, 100), ("activation_function", "gelu_new", "relu")],
    "opt": [("activation_function", "relu", "gelu")],
    "llama": [*_LLAMA, ("sliding_window", None, 8)],
    "mistral": [*_LLAMA, ("sliding_window", None, 8)],
    "qwen2": [*_LLAMA, ("use_sliding_window", False, True)],
    "qwen3": [*_LLAMA, ("use_sliding_window", False, True)],
    "mixtral": [*_LLAMA, ("sliding_window", None, 8)],
    "qwen3_moe": [
        *_LLAMA, ("use_sliding_window", False, True), ("moe_intermediate_size", 110, 90)
    ],
    "bert": [("type_vocab_size", 2, 3), ("hidden_act", "gelu", "relu")],
    "vit": [*_VISION, ("pooler_output_size", 48, 20), ("hidden_act", "gelu", "relu")],
    "resnet": [*_VISION, ("embedding_size", 64, 24), ("image_size", 224, 64)],
    "mobilevit": [
        *_VISION, ("image_size", 256, 128), ("patch_size", 2, 4),
        ("mlp_ratio", 2.0, 3.0), ("expand_ratio", 4.0, 2.0), ("conv_kernel_size", 3, 5),
    ],
}  # fmt: skip
"""Key, value that stands for an absent one (as `transformers` has it), another one."""


def test_every_family_is_here_or_has_tests_of_its_own():
    folder = Path(__file__).parent
    models = (load_model(name) for name in BUNDLED)
    bundled = {model.config.values["model_type"]: model for model in models}
    for kind, module in _families().items():
        files = [f"test_{name}.py" for name in module.__name__.split(".")[-2:]]
        tested = any(path.name in files for path in folder.rglob("test_*.py"))
        assert kind in {**FAMILIES, **OTHERS, **bundled} or tested, (
            f"give a config of `{kind}` and what is published of it in "
            f"tests/workload/published.py, or write {files[-1]}"
        )


@pytest.mark.parametrize("family", DEFAULTS)
def test_an_absent_key_has_its_default(family: str):
    least = small_model(family)
    for key, default, other in DEFAULTS[family]:
        assert fields_of(small_model(family, **{key: default})) == fields_of(least), key
        changed = fields_of(small_model(family, **{key: other}))
        assert changed != fields_of(least), key
        assert any(value == other for value in changed.values()) or key in (
            "use_sliding_window",
        ), key


def test_second_names_of_keys():
    """`n_ctx` for `n_positions`, `num_experts` for `num_local_experts`; null is absent;
    whole numbers may be written as floats; labels may have names alone."""
    longer = small_model("gpt2", n_positions=None, n_ctx=50)
    assert longer.max_positions == 50
    assert small_model("gpt2", n_ctx=50).max_positions == 40
    mixture = small_model("mixtral", num_local_experts=None, num_experts=6)
    assert fields_of(mixture)["experts"] == 6
    assert fields_of(small_model("gpt2", n_embd=48.0)) == fields_of(small_model("gpt2"))
    names = {str(n): f"class {n}" for n in range(11)}
    for family in ("vit", "resnet", "mobilevit"):
        for labels, changes in (
            (11, dict(id2label=names)), (1000, dict(id2label={})),
            (9, dict(id2label=names, num_labels=9)),
        ):  # fmt: skip
            assert fields_of(small_model(family, **changes))["labels"] == labels


def test_what_a_family_takes_at_the_edge():
    """The nearest values that are right."""
    for family, changes in [
        ("llama", dict(hidden_size=50, head_dim=16)), ("vit", dict(patch_size=35)),
        ("mixtral", dict(num_experts_per_tok=5, mlp_only_layers=[])),
        ("mobilevit", dict(image_size=64)), ("opt", dict(word_embed_proj_dim=48)),
        ("gpt2", dict(n_layer=1, n_head=1)), ("mixtral", dict(decoder_sparse_step=1)),
    ]:  # fmt: skip
        model = small_model(family, **changes)
        length = 4 if model.max_positions else None
        assert model.listings(phase="prefill", input_len=length)


@pytest.mark.parametrize(
    ("family", "changes", "window"),
    [
        ("llama", {}, 0), ("llama", {"sliding_window": 16}, 16), ("mixtral", {}, 0),
        ("qwen2", {}, 0), ("qwen2", {"use_sliding_window": True}, 16),
        ("qwen3", {}, 0), ("qwen3_moe", {"use_sliding_window": True}, 16),
    ],
)  # fmt: skip
def test_windows(family, changes, window):
    """Qwen's (of `FAMILIES`: 16) apply where a flag says so."""
    model = small_model(family, **changes)
    for phase, op in (
        ("prefill", "context_attention"), ("decode", "generation_attention")
    ):  # fmt: skip
        (listing,) = model.listings(input_len=40, phase=phase)
        assert one(listing.kernels, op=op)["window_size"] == window


@pytest.mark.parametrize(
    ("architectures", "base"),
    [
        (None, True), (["GPT2Model", "GPT2LMHeadModel"], False),
        ("GPT2LMHeadModel", True), (["GPT2ForTokenClassification", "GPT2Model"], False),
    ],
)  # fmt: skip
def test_a_head_is_what_one_of_the_architectures_names(architectures, base: bool):
    model = small_model("gpt2", architectures=architectures)
    assert model.request(input_len=8, phase="prefill").base == base


def test_files_and_folders(tmp_path):
    """A name is the folder of a `config.json`, or the file's without its ending."""
    text = json.dumps({"model_type": "gpt2"} | FAMILIES["gpt2"])
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(text, encoding="utf-8-sig")
    (folder / "other.json").write_text(text)
    assert load_model(folder).name == "mine"
    assert load_model(str(folder / "other.json")).name == "other"


@pytest.mark.parametrize(
    "scaling, longest",
    [
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 30}, 120),
        ({"rope_type": "yarn", "factor": 4}, 160), ({"type": "yarn"}, 40),
        ({"type": "linear", "factor": 2, "original_max_position_embeddings": 30}, 60),
        ({"type": "dynamic", "factor": 3.0}, 120),
        ({"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8},
         40),
        ({"full_attention": {"rope_type": "linear", "factor": 8.0},
         "sliding_attention": {"rope_type": "default"}}, 320),
        (None, 40),
    ],
)  # fmt: skip
def test_scaled_positions(scaling, longest):
    for key in ("rope_scaling", "rope_parameters"):
        model = small_model("llama", **{key: scaling})
        assert model.max_positions == longest
        model.request(input_len=longest, phase="prefill")
        with pytest.raises(ValueError, match=f"has {longest} positions"):
            model.request(input_len=longest + 1, phase="prefill")


ODD = (10**9 + 1, 2**60, 1e300, float("inf"), float("nan"), -1, 0, 1.5, "8", True, [])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_size_that_no_model_has_is_refused_or_read(family):
    """Of every number of a config: a sentence that names it, or a model that lists its
    kernels at once."""
    images = family in ("vit", "resnet", "mobilevit")
    request: dict = dict(phase="prefill", input_len=None if images else 1)
    for key, value in FAMILIES[family].items():
        for odd in ODD if isinstance(value, int) else ():
            try:
                model = small_model(family, **{key: odd})
                model.listings(batch=1, **request)
            except ValueError as error:
                assert f"`{key}`" in str(error), (key, odd)
