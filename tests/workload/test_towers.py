"""Vision towers: published numbers of parameters, kernels by hand, what is refused;
models that score tokens without a head, and kinds that are not built."""

import collections
from typing import Any

import pytest

from diffenergy.workload import LanguageModel, load_model
from diffenergy.workload.models import Model, model_names
from diffenergy.workload.models._checkpoint.formats import Precision
from diffenergy.workload.models._towers import Tower

from .builders import attention_flop, flop, of_config, sizes_of
from .published import of

BF16 = Precision("bf16", "bf16", "bf16")
TEXT = of(model_type="llama", h=60, layers=2, heads=3, inner=100, vocab=77,
          positions=4000)  # fmt: skip
TEXT_PARAMETERS = 2 * (4 * 60**2 + 3 * 60 * 100 + 2 * 60) + 60 + 2 * 77 * 60
TINY = dict(
    depth=2, hidden_size=48, num_heads=3, intermediate_size=100, patch_size=4,
    temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=60,
    num_position_embeddings=30, deepstack_visual_indexes=[0],
)  # fmt: skip


SOUND = {"audio_config": {"hidden_size": 8}}


def whole(kind: str, vision: dict | None, text: dict | None = None, **more) -> Model:
    values = {"model_type": kind, "text_config": TEXT | (text or {}), **more}
    values |= {} if vision is None else {"vision_config": vision}
    return of_config(values, Model)


def tower(*args: Any, **more: Any) -> Tower:
    model = whole(*args, **more)
    assert isinstance(model, LanguageModel) and model.tower is not None
    return model.tower


SIGLIP = of(h=1152, layers=27, heads=16, inner=4304, num_channels=3)
GEMMA4 = SIGLIP | dict(
    head_dim=72, patch_size=16, pooling_kernel_size=3, position_embedding_size=10240
)
SCOUT = of(h=1408, image_size=336, vision_output_dim=4096, layers=34)
QWEN25 = dict(
    depth=32, hidden_size=1280, num_heads=16, intermediate_size=3420, patch_size=14,
    temporal_patch_size=2, spatial_merge_size=2, in_chans=3, out_hidden_size=3584,
    window_size=112, fullatt_block_indexes=[7, 15, 23, 31],
)  # fmt: skip
QWEN3 = dict(
    num_heads=16, patch_size=16, temporal_patch_size=2, spatial_merge_size=2,
    in_channels=3, num_position_embeddings=2304, deepstack_visual_indexes=[5, 11, 17],
)  # fmt: skip
QWEN3_2B = QWEN3 | dict(
    depth=24, hidden_size=1024, intermediate_size=4096, out_hidden_size=2048
)
QWEN3_8B = QWEN3 | dict(
    depth=27, hidden_size=1152, intermediate_size=4304, out_hidden_size=4096
)


@pytest.mark.parametrize(
    ("kind", "vision", "hidden", "more", "parameters"),
    [
        ("qwen3_vl", QWEN3_2B, 2048, {}, 406_957_056),
        ("qwen3_vl", QWEN3_8B, 4096, {}, 576_388_336),
        # Qwen2.5-VL-7B has 8,292,166,656 with its tower, 7,615,616,512 without
        ("qwen2_5_vl", QWEN25, 3584, {}, 676_550_144),
        # LFM2.5-VL-1.6B
        ("lfm2_vl", SIGLIP | dict(patch_size=16, num_patches=256), 2048,
         dict(projector_hidden_size=2048, projector_use_layernorm=False), 426_285_296),
        # google/gemma-3-4b-it has 4,300,079,472 with its tower, 3,880,263,168 without
        ("gemma3", SIGLIP | dict(patch_size=14, image_size=896), 2560, {}, 419_816_304),
        # the defaults of Llama4VisionConfig
        ("llama4", {}, 5120, {}, 455_178_240),
    ],
)  # fmt: skip
def test_parameters_are_the_published_ones(kind, vision, hidden, more, parameters):
    """Those of bundled models are in `published.py`."""
    text = dict(hidden_size=hidden, num_attention_heads=1)
    assert tower(kind, vision, text, **more).parameters == parameters


def test_windows_of_qwen25():
    """1024 x 1024 pixels: 37 x 37 tokens of 2 x 2 patches, which see all others in 4
    layers and their 8 x 8 in 28. As published, its language model's keys stand
    outside."""
    hidden = dict(hidden_size=3584, num_attention_heads=28)
    vision_tower = tower("qwen2_5_vl", QWEN25, hidden)
    n = 4 * 37**2
    assert vision_tower.usual == n // 4
    pairs = 4 * n * n + 28 * -(-n // 64) * 64**2
    rows = vision_tower.rows(1, vision_tower.usual, BF16)
    assert attention_flop(rows) == 4 * 1280 * pairs
    values = TEXT | dict(model_type="qwen2_5_vl", vision_config=QWEN25)
    nested = whole("qwen2_5_vl", QWEN25, {"model_type": "qwen2_5_vl_text"})
    assert of_config(values, Model).parameters() == nested.parameters()


def test_work_of_one_image():
    """Qwen3-VL-8B: 1024 x 1024 pixels are 64 x 64 patches and 1,024 tokens. SigLIP
    so400m/14 at 384 pixels (arXiv 2303.15343): 729 patches, 0.60 and 0.066 TFLOP."""
    text = dict(hidden_size=4096, num_attention_heads=32)
    vision_tower = tower("qwen3_vl", QWEN3_8B, text)
    rows = vision_tower.rows(1, vision_tower.usual, BF16)
    h, inner, wide = 1152, 4304, 4 * 1152
    layers = 27 * 4096 * (4 * h * h + 2 * h * inner)
    mergers = 4 * 1024 * (wide * wide + wide * 4096)
    assert vision_tower.usual == 1024
    assert flop(rows) == 2 * (4096 * 1536 * h + layers + mergers)
    assert attention_flop(rows) == 27 * 4 * 4096**2 * h
    siglip = SIGLIP | dict(patch_size=14, image_size=384)
    rows = tower("gemma3", siglip, mm_tokens_per_image=729).rows(1, 729, BF16)
    assert flop(rows) / 1e12 == pytest.approx(0.601, rel=0.01)
    assert attention_flop(rows) / 1e12 == pytest.approx(0.066, rel=0.01)


def test_every_kernel_of_a_small_tower():
    """Two images of 6 tokens in each of 3 sequences: 6 x 24 patches of 96 values."""
    request: dict[str, Any] = dict(batch=3, images=2, image_tokens=6, input_len=5)
    model = whole("qwen3_vl", TINY)
    (listing,) = model.listings(phase="prefill", dtype="fp8", **request)
    counts = collections.Counter({sizes_of(k): k["count"] for k in listing.kernels})
    p, t = 6 * 24, 6 * 6
    expected = {
        ("gemm", p, 48, 96, "bf16"): 1, ("positions", p * 48, 5, 1): 1,
        ("layernorm", p, 48, True): 2 * 2 + 1,  # the merger's: as many rows
        ("gemm", p, 144, 48, "bf16"): 2, ("rope", p * 96, 1, 1): 2,
        ("attention", 6, 24, 24, 3, 16, False): 2, ("gemm", p, 48, 48, "bf16"): 2,
        ("gemm", p, 100, 48, "bf16"): 2, ("gelu", p * 100, 1, 1): 2,
        ("gemm", p, 48, 100, "bf16"): 2, ("layernorm", t, 192, False): 1,
        ("gemm", t, 192, 192, "bf16"): 2, ("gelu", t * 192, 1, 1): 2,
        ("gemm", t, 60, 192, "bf16"): 2, ("add", t * 60, 2, 1): 1,
    }  # fmt: skip
    assert list(counts)[0] == list(expected)[0]
    assert {kernel: counts[kernel] for kernel in expected} == expected
    plain = model.listings(phase="prefill", dtype="fp8", batch=3, input_len=5 + 12)
    assert set(counts) - set(expected) == {sizes_of(k) for k in plain[0].kernels}


def test_images_are_part_of_the_input():
    """Their tokens come to those of text: in the cache, in what decode reads, and in
    the positions; decode has the tower behind it."""
    model = whole("qwen3_vl", TINY)
    text: dict[str, Any] = dict(input_len=10, output_len=3)
    request = model.request(**text, images=2, image_tokens=6)
    assert (request.input_len, request.images, request.image_tokens) == (10, 2, 6)
    prefill, decode = model.listings(**text, images=2, image_tokens=6)
    alone = model.listings(input_len=22, output_len=3)
    assert decode.kernels == alone[1].kernels
    assert len(prefill.kernels) > len(alone[0].kernels)
    (step,) = model.listings(phase="decode", input_len=10, images=2, image_tokens=6)
    assert step.kernels == model.listings(phase="decode", input_len=22)[0].kernels
    cached = [model.memory(x)["kv_cache"] for x in (request, model.request(**text))]
    assert cached[0] / cached[1] == (10 + 12 + 3) / (10 + 3)
    assert model.request(image_tokens=6).images == 1
    vision_tower = tower("qwen3_vl", TINY | {"patch_size": 64})
    assert vision_tower.usual == (1024 // (2 * 64)) ** 2
    assert model.request().images is None


def test_weights_of_a_tower_stay_in_16_bit():
    model = whole("qwen3_vl", TINY)
    text = whole("unknown_vl", TINY)
    assert isinstance(model, LanguageModel) and model.tower is not None
    parameters = model.tower.parameters or 0
    assert model.text_parameters() == text.parameters() == TEXT_PARAMETERS
    assert model.parameters() == TEXT_PARAMETERS + parameters
    for dtype, size in (("fp8", 2), ("bf16", 2), ("fp32", 4)):
        more = model.weight_bytes(dtype) - text.weight_bytes(dtype)
        assert more == size * parameters


def test_large_images_are_tiles():
    """LFM2-VL: whole tiles of 256 tokens and a small copy of the image; Llama 4: whole
    tiles with a class token each, 24 x 24 patches and 144 tokens."""
    lfm = SIGLIP | dict(patch_size=16, num_patches=256)
    rows = tower("lfm2_vl", lfm).rows(3, 600, BF16)
    calls = [(k["batch"], k["q_len"]) for k in rows if k["op"] == "context_attention"]
    assert calls == [(6, 1024), (3, 4 * 88)]
    llama = tower("llama4", SCOUT)
    assert llama.usual == 144
    (call,) = (k for k in llama.rows(3, 288, BF16) if k["op"] == "context_attention")
    assert (call["batch"], call["q_len"], call["num_heads"]) == (6, 577, 16)
    with pytest.raises(ValueError, match="is 300, but tiny makes 144 tokens of an"):
        llama.rows(3, 300, BF16)


@pytest.mark.parametrize(
    ("kind", "vision", "more", "words"),
    [
        ("qwen3_vl", TINY, {}, None), ("unknown_vl", None, {}, None),
        ("qwen3_vl", TINY, {"language_model_only": True}, None),
        ("unknown_vl", TINY, {}, "the vision tower of `model_type` 'unknown_vl' is"),
        ("qwen3_vl", None, {}, "has no `vision_config`: its tower is left out."),
        ("gemma4", TINY | GEMMA4, SOUND, "the audio tower of `model_type` 'gemma4' is"),
        ("voxtral", None, SOUND, "the audio tower of `model_type` 'voxtral' is not"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_noted(kind, vision, more, words):
    notes = whole(kind, vision, **more).notes
    assert len(notes) == (words is not None)
    assert all(words in note for note in notes)


def test_a_multimodal_config_names_its_head_outside():
    named = ["Qwen3VLForConditionalGeneration"], ["Qwen3VLModel"], None
    models = [whole("qwen3_vl", TINY, architectures=x) for x in named]
    assert [x.request(input_len=8).base for x in models] == [False, True, True]


def test_every_bundled_model_that_makes_tokens_has_a_head():
    for model in map(load_model, model_names()):
        if isinstance(model, LanguageModel):
            assert model.request(input_len=8).base is False, model.name
            (listing,) = model.listings(input_len=8, phase="decode")
            heads = [k for k in listing.kernels if k.get("n") == model.vocab]
            assert [k["op"] for k in heads] == ["gemm"], model.name
