"""Whisper: published numbers, kernels by hand, phases and what is refused."""

import collections
from typing import Any

import pytest

from diffenergy.workload.models.families.whisper import Whisper

from .builders import attention_flop, flop, of_config, sizes_of

TINY = dict(
    model_type="whisper", d_model=48, encoder_layers=2, encoder_attention_heads=3,
    encoder_ffn_dim=100, decoder_layers=3, decoder_attention_heads=4,
    decoder_ffn_dim=80, num_mel_bins=10, max_source_positions=50,
    max_target_positions=30, vocab_size=77,
    architectures=["WhisperForConditionalGeneration"],
)  # fmt: skip


def built(**values: Any) -> Whisper:
    return of_config(values, Whisper)


LARGE = TINY | dict(
    d_model=1280, encoder_layers=32, encoder_attention_heads=20, encoder_ffn_dim=5120,
    decoder_layers=32, decoder_attention_heads=20, decoder_ffn_dim=5120,
    num_mel_bins=128, max_source_positions=1500, max_target_positions=448,
    vocab_size=51866,
)  # fmt: skip


def test_large_v3_is_as_published():
    """1,543,490,560 parameters, 636,968,960 of them the encoder's; keys and values of
    20 x 64 in 32 layers, of 1,500 positions that were heard once for all."""
    model = built(**LARGE)
    assert model.parameters() == 1_543_490_560
    assert model.parameters() - model.text_parameters() == 636_968_960
    assert model.weight_bytes("bf16") == 2 * model.parameters()
    assert model.kv_bytes_per_token("bf16") == 2 * 1280 * 32 * 2
    assert model.state_bytes() == 2 * 1280 * 32 * 2 * 1500
    (listing,) = model.listings(phase="forward")
    heard = attention_flop(list(listing.kernels))
    assert heard == 32 * 4 * 1500**2 * 1280
    assert heard / 1e12 == pytest.approx(0.369, rel=0.01)
    total = heard + flop(list(listing.kernels))
    assert total / 1e12 == pytest.approx(2.274, rel=1e-3)


H, P, F = 48, 50, 100
"""Width, positions of a window, inside the encoder's feed-forward layer."""


def encoder(windows: int) -> dict[tuple, int]:
    """Twice as many frames, two convolutions of three taps, layers, a norm."""
    t = windows * P
    return {
        ("gemm", 2 * t, H, 30, "bf16"): 1, ("gelu", 2 * t * H, 1, 1): 1,
        ("gemm", t, H, 3 * H, "bf16"): 1, ("gelu", t * H, 1, 1): 1,
        ("positions", t * H, 2, 1): 1, ("layernorm", t, H, True): 2 * 2 + 1,
        ("gemm", t, 3 * H, H, "bf16"): 2, ("attention", windows, P, P, 3, 16, False): 2,
        ("gemm", t, H, H, "bf16"): 2, ("gemm", t, F, H, "bf16"): 2,
        ("gelu", t * F, 1, 1): 2, ("gemm", t, H, F, "bf16"): 2,
    }  # fmt: skip


def decoder(windows: int, new: int, heard_keys: bool) -> dict[tuple, int]:
    """Three layers over `new` tokens; `heard_keys`: with keys and values of the
    encoder's output."""
    t, heard = windows * new, windows * P
    cross = {
        ("gemm", heard, 2 * H, H, "bf16"): 3, ("kv_write", heard * 2 * H, 1, 1): 3
    }  # fmt: skip
    return (cross if heard_keys else {}) | {
        ("gather", t, H, None): 2, ("pointwise_add", t * H, 2, 1): 1,
        ("layernorm", t, H, False): 1, ("layernorm", t, H, True): 3 * 3,
        ("gemm", t, 3 * H, H, "bf16"): 3, ("kv_write", t * 2 * H, 1, 1): 3,
        ("gemm", t, H, H, "bf16"): 3 * 3, ("gemm", t, 80, H, "bf16"): 3,
        ("gelu", t * 80, 1, 1): 3, ("gemm", t, H, 80, "bf16"): 3,
        ("gemm", windows, 77, H, "bf16"): 1, ("softmax", windows, 77, False): 1,
    }  # fmt: skip


def counts(kernels) -> collections.Counter:
    return collections.Counter({sizes_of(k): k["count"] for k in kernels})


def test_every_kernel():
    """Two windows: the encoder alone, a prompt of 5 tokens, a step behind 9."""
    model = built(**TINY)
    (forward,) = model.listings(phase="forward", batch=2)
    assert counts(forward.kernels) == encoder(2)
    (prefill,) = model.listings(phase="prefill", batch=2, input_len=5)
    attend = {
        ("attention", 2, 5, 5, 4, 12, True): 3,
        ("attention", 2, 5, P, 4, 12, False): 3,
    }
    assert counts(prefill.kernels) == encoder(2) | decoder(2, 5, True) | attend
    (step,) = model.listings(phase="decode", batch=2, input_len=9)
    calls = [k for k in step.kernels if k["op"] == "generation_attention"]
    assert [(k["kv_len"], k["causal"], k["count"]) for k in calls] == [
        (9, True, 3), (P, False, 3),
    ]  # fmt: skip
    rest = counts(k for k in step.kernels if k not in calls)
    assert rest == decoder(2, 1, False)


def test_phases_and_memory():
    model = built(**TINY)
    request = model.request(batch=4, output_len=10)
    assert (request.phase, request.input_len) == ("generate", 4)
    prefill, decode = model.listings(batch=4, output_len=10)
    assert (prefill.mode, decode.mode, decode.passes) == ("prefill", "decode", 9)
    memory = model.memory(request)
    assert memory["state"] == 4 * 3 * 2 * H * P * 2
    assert memory["kv_cache"] == 4 * 14 * 3 * 2 * H * 2
    alone = model.request(phase="forward", batch=4)
    assert alone.input_len is None
    assert model.memory(alone)["kv_cache"] == model.memory(alone)["state"] == 0
    assert model.memory(alone)["weights"] == 2 * model.parameters()
