"""Diffusion transformers: published parameters and FLOP, kernels by hand, steps and
guidance, what is refused."""

import collections
import json
from pathlib import Path
from typing import Any

import pytest

from diffenergy.workload import load_model
from diffenergy.workload.models.families.diffusion import DiffusionTransformer

from .builders import attention_flop, flop, of_config, sizes_of

FLUX = dict(
    _class_name="FluxTransformer2DModel", attention_head_dim=128, in_channels=64,
    guidance_embeds=False, joint_attention_dim=4096, num_attention_heads=24,
    num_layers=19, num_single_layers=38, patch_size=1, pooled_projection_dim=768,
)  # fmt: skip
SD3 = dict(
    _class_name="SD3Transformer2DModel", attention_head_dim=64, in_channels=16,
    out_channels=16, joint_attention_dim=4096, caption_projection_dim=2432,
    num_attention_heads=38, num_layers=38, patch_size=2, pooled_projection_dim=2048,
    pos_embed_max_size=192, qk_norm="rms_norm",
)  # fmt: skip
WAN = dict(
    _class_name="WanTransformer3DModel", attention_head_dim=128, in_channels=16,
    out_channels=16, cross_attn_norm=True, ffn_dim=13824, freq_dim=256, image_dim=None,
    num_attention_heads=40, num_layers=40, patch_size=[1, 2, 2], text_dim=4096,
    qk_norm="rms_norm_across_heads",
)  # fmt: skip
MEDIUM = dict(num_attention_heads=24, num_layers=24, qk_norm=None)


def built(values: dict, **more: Any) -> DiffusionTransformer:
    kind = {"model_type": values["_class_name"]}
    return of_config(kind | values | more, DiffusionTransformer)


@pytest.mark.parametrize(
    "values, parameters",
    [
        (FLUX | dict(guidance_embeds=True), 11_901_408_320),
        (SD3, 8_056_627_520), (SD3 | MEDIUM, 2_028_328_000), (WAN, 14_288_491_584),
    ],
)  # fmt: skip
def test_parameters_are_the_published_ones(values: dict, parameters: int):
    model = built(values)
    assert model.parameters() == parameters
    assert model.weight_bytes("bf16") == 2 * parameters


@pytest.mark.parametrize(
    "values, tflop, of_attention",
    [
        (FLUX, 74.385, 57 * 4 * 3072 * 4608**2),
        (SD3, 31.121, 38 * 4 * 2432 * 4429**2),
        (WAN, 1678.37, 40 * 4 * 5120 * 32760 * (32760 + 512)),
    ],
)
def test_work_of_a_step(values: dict, tflop: float, of_attention: int):
    """Of the usual image and prompt, as counted on the reference implementations."""
    (listing,) = built(values).listings()
    kernels = list(listing.kernels)
    assert attention_flop(kernels) == of_attention
    total = (flop(kernels) + of_attention) / 1e12
    assert total == pytest.approx(tflop, rel=2e-5)


@pytest.mark.shared_data
def test_the_published_config(shared: Path):
    folder = shared / "data" / "facts" / "model_configs"
    model = load_model(folder / "black-forest-labs--FLUX.1-schnell.json")
    assert model.parameters() == 11_891_178_560


TINY = FLUX | dict(
    attention_head_dim=8, num_attention_heads=2, num_layers=2, num_single_layers=3,
    in_channels=20, joint_attention_dim=30, pooled_projection_dim=40,
)  # fmt: skip


def test_every_kernel_of_a_step():
    """D = 16; 3 sequences of 7 latent tokens and 5 of the prompt."""
    model = built(TINY)
    (listing,) = model.listings(batch=3, input_len=5, image_tokens=7)
    counts = collections.Counter({sizes_of(k): k["count"] for k in listing.kernels})
    b, i, t, a, d = 3, 21, 15, 36, 16

    def gemm(m: int, n: int, k: int) -> tuple:
        return ("gemm", m, n, k, "bf16")

    assert counts == {
        # time and pooled prompt, two layers each; shifts, scales and gates
        gemm(b, d, 256): 1, gemm(b, d, 40): 1, gemm(b, d, d): 2,
        gemm(b, 6 * d, d): 2 * 2, gemm(b, 3 * d, d): 3, gemm(b, 2 * d, d): 1,
        ("silu", b * d, 1, 1): 2 + 2 * 2 + 3 + 1,
        # in and out
        gemm(i, d, 20): 1, gemm(t, d, 30): 1, gemm(i, 20, d): 1,
        # blocks of weights apart
        ("layernorm", i, d, True): 2 * 2 + 1, ("layernorm", t, d, True): 2 * 2,
        gemm(i, 3 * d, d): 2, gemm(t, 3 * d, d): 2, gemm(i, d, d): 2, gemm(t, d, d): 2,
        ("rmsnorm", 2 * i, 8, False): 4, ("rmsnorm", 2 * t, 8, False): 4,
        gemm(i, 4 * d, d): 2, gemm(t, 4 * d, d): 2,
        ("gelu", i * 4 * d, 1, 1): 2, ("gelu", t * 4 * d, 1, 1): 2,
        gemm(i, d, 4 * d): 2, gemm(t, d, 4 * d): 2,
        # blocks of one sequence
        ("layernorm", a, d, True): 3, gemm(a, 7 * d, d): 3,
        ("rmsnorm", 2 * a, 8, False): 6, ("gelu", a * 4 * d, 1, 1): 3,
        gemm(a, d, 5 * d): 3,
        # both
        ("rope", a * 2 * d, 1, 1): 5, ("attention", 3, 12, 12, 2, 8, False): 5,
    }  # fmt: skip


def test_steps_and_guidance():
    """Steps multiply launches, guidance the sequences of a launch."""
    model = built(TINY)
    request = model.request()
    assert (request.steps, request.guidance, request.image_tokens) == (1, False, 4096)
    assert (request.phase, request.input_len, request.stack) == (
        "forward", 512, "serving",
    )  # fmt: skip
    size: dict[str, Any] = dict(input_len=5, image_tokens=7)
    (one,) = model.listings(batch=6, **size)
    (many,) = model.listings(batch=3, steps=4, guidance=True, **size)
    assert many.passes == 4
    assert [k | {"count": 4 * k["count"]} for k in one.kernels] == list(many.kernels)


def test_what_stays_in_memory(tmp_path: Path):
    """Of a config as `diffusers` writes it: its class is its type."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(FLUX))
    model = load_model(file)
    assert model.config.values["model_type"] == "FluxTransformer2DModel"
    memory = model.memory(model.request())
    assert memory["weights"] == 2 * 11_891_178_560
    assert memory["kv_cache"] == memory["state"] == 0
    # the widest product: 7 D features of all tokens, and the skip connection
    widest = 4608 * (3072 + 7 * 3072) * 2
    assert memory["activations"] == widest + 4608 * 3072 * 2
    vectors = model.weight_bytes("fp8") - model.parameters()  # these stay in 16 bit
    assert 0 < vectors < 1e-3 * model.parameters()
    (note,) = model.notes
    assert "text encoders" in note and "autoencoder" in note
