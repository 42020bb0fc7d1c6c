"""Fused attention to caches: decode, latents, splits, and what a server writes."""

import dataclasses
import math

import pytest

from diffenergy.hardware import load_gpu
from diffenergy.kernels import attention
from diffenergy.kernels.attention._cache_writes import CacheWrite

from .demands import (
    A100,
    ATTENTION,
    COLD,
    H200,
    HEADS,
    WARM,
    check,
    decode_row,
    demand_of,
    shape_of,
)


@pytest.mark.parametrize("window", [0, 1024, 9000])
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_decode(sample, phases, window: int, cache: str):
    """16 x 8 KV heads of 8,192 positions, one CTA each; a longer window runs the plain
    kernel."""
    row = decode_row(sample, window_size=window, kv_cache_dtype=cache, split_k=1)
    shape = shape_of(phases, attention.Decode, row)
    shape = dataclasses.replace(shape, distance=[0.0])
    fp8, window = cache == "fp8", window % 9000
    # FlashAttention 3: 128 x 128, fp8: one warp group alone, 64 x 96
    tile_m, tile_n, e = (64, 96, 1) if fp8 else (128, 128, 2)
    first = (8192 - window) // tile_n if window else 0
    blocks = math.ceil(8192 / tile_n) - first
    keys = window or 8192
    q, pages = 16 * 32 * 128, 4 * 16 * 128
    kv = 2 * 16 * 8 * 128 * keys * e
    elements = tile_m * tile_n * 128 * blocks
    turned = tile_n * 128 / 32 if fp8 else 0
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=128,
        tensor=4 * elements * 128,
        sfu=elements,
        smem=kv + pages + turned * 128 * blocks * 128,
        l2=kv + pages + q * e,
        dram=kv + pages + q * e,
        store_l2=2 * q,
        store_dram=2 * q,
        tensor_peak=8192 if fp8 else 4096,
        tensor_efficiency=0.8,
        sfu_efficiency=2,
        feed=200,
        own_cycles=2000 * (0.75 if fp8 else 1) + 10 * 128 + 3000 * (window > 0),
        fixed_cycles=6000 + 1700 * (window > 0),
        fixed_seconds=16 * 2e-8,
        launches=1,
        sharpness=4.5,
        tensor_energy=(0.6e-12 if fp8 else 1e-12) * (0.3 + 0.7 * 4 / tile_m),
    )


LATENT = dict(
    num_heads=128, num_kv_heads=1, head_dim=576, v_head_dim=512, shared_kv=True
)
"""MLA of DeepSeek-V3, absorbed."""


def test_decode_of_a_latent_cache(sample, phases):
    """16 sequences of 8,192 latents of 576 x 2 B = 1,152 B, read by two tiles of 64
    query heads; 2 x 128 x (576 + 512) = 278,528 FLOP a pair."""
    shape = shape_of(phases, attention.Decode, decode_row(sample, split_k=1, **LATENT))
    shape = dataclasses.replace(shape, distance=[0.0])
    latents, pages = 16 * 8192 * 1152, 4 * 16 * 128
    q, o = 16 * 128 * 576 * 2, 16 * 128 * 512 * 2
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=32,
        tensor=278_528 * 16 * 8192,
        sfu=16 * 128 * 8192,
        l2=2 * latents + pages + q,
        smem=2 * latents + pages,
        dram=latents + pages + q,
        store_l2=o,
        store_dram=o,
        own_cycles=2000 + 10 * (576 + 512) / 2,
        tensor_energy=1e-12,  # no row is padding
    )


def test_prefill_of_a_latent_cache(sample, phases):
    """512 positions x 128 heads: 1,024 tiles of 64 rows, one key block of 64 for each
    half of 128 positions."""
    row = sample("context_attention", q_len=512, kv_len=512, causal=False, **LATENT)
    shape = shape_of(phases, attention.Prefill, row)
    q, o, latents = 65_536 * 576 * 2, 65_536 * 512 * 2, 512 * 1152
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=1024,
        tensor=278_528 * 512 * 512,
        l2=1024 * latents + q,
        dram=q + latents,
        store_dram=o,
    )


@pytest.mark.parametrize(
    ("gpu", "tile_m", "tile_n"),
    [
        ("h200-sxm", 64, 64), ("a100-sxm-80gb", 64, 32), ("l40s", 64, 16),
        ("b200-sxm", 128, 128),
    ],
)  # fmt: skip
def test_tiles_of_a_latent_cache_fit(sample, phases, gpu, tile_m, tile_n):
    """Queries and two stages of latents (one of 16 keys; a pair of CTAs of Blackwell
    shares both): 221,184 B on Hopper, 147,456 B on A100."""
    card = load_gpu(gpu)
    shape = shape_of(phases, attention.Decode, decode_row(sample, split_k=1, **LATENT))
    got = demand_of(attention, shape, card, **ATTENTION)
    row_tiles = 128 / tile_m
    check(got, ctas=16 * row_tiles, sfu=16 * 128 * math.ceil(8192 / tile_n) * tile_n)
    stages = 1 if tile_n == 16 else 2
    size = (tile_m + stages * tile_n) * 576 * 2 / (2 if gpu == "b200-sxm" else 1)
    assert size + 1024 <= float(card.smem_per_sm)


def test_decode_with_an_fp8_cache_without_fp8_products(sample, phases):
    """mma.sync widens the cache: bf16 rate and energy, nothing is turned."""
    row = decode_row(sample, kv_cache_dtype="fp8", split_k=1)
    shape = shape_of(phases, attention.Decode, row)
    check(
        demand_of(attention, shape, A100, **ATTENTION),
        tensor_peak=2048,
        tensor_energy=1e-12 * (0.3 + 0.7 * 4 / 128),
        smem=2 * 16 * 8 * 128 * 8192 + 4 * 16 * 128,
        own_cycles=2000 + 10 * 128,
    )


def test_decode_of_a_cache_that_partly_stays(sample, phases):
    """Misses z^3.8 / (1 + z^3.8) of the bytes touched between two steps / L2."""
    shape = shape_of(phases, attention.Decode, decode_row(sample, split_k=1))
    kv, q, pages = 2 * 16 * 8 * 128 * 8192 * 2, 16 * 32 * 128, 4 * 16 * 128
    far = dataclasses.replace(shape, distance=[1e9])
    c = ATTENTION | dict(l2_share=1e9 / 1.5 / float(H200.l2_capacity))
    miss = 1.5**3.8 / (1 + 1.5**3.8)
    check(
        demand_of(attention, far, H200, **c),
        dram=(kv + pages + 2 * q) * miss,
        store_dram=2 * q * miss,
    )


@pytest.mark.parametrize(
    ("batch", "positions", "split_k", "splits"),
    [
        (1, 32768, 0, 15), (1, 32768, 1, 1), (1, 32768, 7, 7), (4, 8192, 0, 4),
        (16, 8192, 0, 1), (16, 100, 0, 1),
    ],
)  # fmt: skip
def test_splits(sample, phases, batch, positions, split_k: int, splits: int):
    """That of the row wins; else every SM of 132 has as many blocks of 128, at most
    ceil(1.1 x 8 batch x blocks / 132), and none less than one."""
    row = decode_row(sample, batch=batch, kv_len=positions, split_k=split_k)
    shape = shape_of(phases, attention.Decode, row)
    q, blocks = batch * 32 * 128, math.ceil(positions / 128)
    check(
        demand_of(attention, shape, H200, **ATTENTION),
        ctas=batch * 8 * splits,
        launches=1 + (splits > 1),
        store_l2=2 * q + 8 * q * splits * (splits > 1),
        sfu=128 * 128 * 8 * batch * splits * math.ceil(blocks / splits),
    )


@pytest.mark.parametrize(("batch", "planned"), [(992, 992), (993, 0.35 * 993)])
@pytest.mark.parametrize("op", ["context_attention", "generation_attention"])
def test_splits_are_planned_for_so_many_sequences(sample, phases, op, batch, planned):
    """31 by each of 32 warps; beyond them a sequence costs about a third."""
    sizes = dict(q_len=1, kv_len=64) if op == "generation_attention" else dict(q_len=64)
    row = sample(op, batch=batch, **sizes, **HEADS)
    prefill = op == "context_attention"
    kind = attention.Prefill if prefill else attention.Decode
    got = demand_of(attention, shape_of(phases, kind, row), H200, **ATTENTION)
    check(got, fixed_seconds=planned * (1e-8 if prefill else 2e-8))


KERNEL, CHAIN = 0.8e-6, 4000
"""One more kernel in a graph (s); loads behind each other of a CTA (cycles)."""


def test_a_server_writes_latents_once(sample, phases):
    """576 elements of 21 tokens, not 2 x 576."""
    row = sample(
        "context_attention", batch=3, q_len=7, framework="vllm/0.24.1", **LATENT
    )
    shape = shape_of(phases, CacheWrite, row)
    check(
        demand_of(attention, shape, H200, **WARM), issue=37 * 21 * 576, l2=4 * 21 * 576
    )


@pytest.mark.parametrize(
    ("cache", "family", "head_dim", "cost", "size", "kernels"),
    [
        ("bf16", "", 16, 1.0, 2, 1), ("bf16", "xfa3", 128, 1.0, 2, 1),
        ("fp8", "", 16, 2.0, 1, 2), ("fp8", "xfa3", 16, 2.0, 1, 2),
        ("fp8", "xfa3", 128, 2.0, 1, 3), ("fp8", "trtllm", 128, 2.0, 1, 0),
        ("fp8", "triton", 16, 2.0, 1, 1), ("fp8", "xfa2", 128, 2.0, 1, 1),
        ("bf16", "triton", 16, 1.0, 2, 1), ("bf16", "trtllm", 16, 1.0, 2, 0),
    ],
)  # fmt: skip
def test_what_a_server_writes_to_its_cache(
    sample, phases, cache, family, head_dim, cost, size, kernels
):
    """vLLM 0.24: keys and values of 3 x 7 tokens, 37 instructions an element; a second
    kernel rounds fp8 queries where products run in fp8, 16 an element, and
    FlashAttention 3 of d = 128 has a third. A launch beside is not counted, nor are
    kernels that start early."""
    row = sample(
        "context_attention", batch=3, q_len=7, kv_cache_dtype=cache, family=family,
        framework="vllm/0.24.1", num_heads=10, num_kv_heads=5, head_dim=head_dim,
    )  # fmt: skip
    shape = shape_of(phases, CacheWrite, row)
    rounds = cache == "fp8" and family not in ("triton", "xfa2")
    new, rounded = 2 * 21 * 5 * head_dim, 21 * 10 * head_dim * rounds
    check(
        demand_of(attention, shape, H200, **WARM),
        issue=37 * cost * new + 16 * rounded,
        l2=(2 + size) * (new + rounded),
        dram=0,
        ctas=21,
        launches=0,
        fixed_seconds=kernels * KERNEL,
        fixed_cycles=CHAIN,
    )
    work = phases([row | {"framework": "vllm/0.23"}])
    assert not any(isinstance(x, CacheWrite) for x in work.shapes)


@pytest.mark.parametrize(
    ("kv_heads", "tokens", "waves"), [(8, 528, 1), (8, 4224, 8), (1, 4224, 2)]
)
def test_tokens_beyond_the_threads_of_a_gpu_wait(
    sample, phases, kv_heads, tokens, waves
):
    """A CTA a token: 512 threads, 4 on each of 132 SMs (528), or 128 threads, 16
    (2,112)."""
    row = sample(
        "generation_attention", batch=tokens, kv_len=8, framework="vllm/0.24.0",
        num_heads=8, num_kv_heads=kv_heads, head_dim=128,
    )  # fmt: skip
    demand = demand_of(attention, shape_of(phases, CacheWrite, row), H200, **COLD)
    moved = 4 * 2 * tokens * kv_heads * 128
    check(demand, fixed_seconds=KERNEL, fixed_cycles=waves * CHAIN, dram=moved)
