"""Fused attention: prefill, decode, and the backward kernel."""

import dataclasses
import math
from typing import Any

import jax
import pytest

from diffenergy.hardware import load_gpu
from diffenergy.kernels import attention, stream
from diffenergy.kernels.attention import attention_backward
from diffenergy.kernels.attention._tiles import tiles_of

from .demands import A100, COLD, H200, WARM, check, demand_of, found

ATTENTION = dict(
    prefill_efficiency=0.5, prefill_exp=2.0, prefill_mask=0.5, prefill_feed=64.0,
    prefill_own=1000.0, prefill_query=64.0, prefill_query_fast=0.5, prefill_fill=0.25,
    prefill_cycles=7000.0, prefill_schedule=1e-8, fp8_efficiency=0.8,
    transpose_rate=32.0, decode_efficiency=0.8, decode_exp=0.5, decode_own=2000.0,
    decode_own_head=10.0, decode_own_fp8=0.75, decode_own_local=3000.0,
    decode_flow=200.0, decode_cycles=6000.0, decode_cycles_local=1700.0,
    decode_schedule=2e-8, energy_tensor=1e-12, energy_fp8=0.6, prefill_sharpness=4.0,
    prefill_serial=1.5, decode_sharpness=4.5, decode_serial=1.25,
)  # fmt: skip
HEADS = dict(num_heads=32, num_kv_heads=8, head_dim=128)


@pytest.mark.parametrize(
    ("local", "fp8", "tiles"),
    [
        (0, 0, [(192, 128), (128, 128), (128, 96), (128, 80)]),
        (1, 0, [(192, 96), (128, 128), (128, 64), (128, 64)]),
        (0, 1, [(192, 128), (128, 160), (128, 96), (128, 128)]),
        (1, 1, [(192, 160), (128, 96), (128, 128), (128, 64)]),
    ],
)
def test_tiles_of_flash_attention_3(local: int, fp8: int, tiles):
    """Heads of 64, 128, 192 and 256, of at most that many elements."""
    for head, expected in zip((64, 128, 192, 256), tiles, strict=True):
        for size in (head, head - 16):
            numbers = [jax.numpy.asarray(x) for x in (size, 1, local, fp8)]
            assert tuple(map(float, tiles_of(*numbers))) == expected


@pytest.mark.parametrize(
    ("head", "cache", "prefill", "decode"),
    [
        (64, "bf16", 4.0, 4.5), (256, "bf16", 4.0, 4.5), (128, "fp8", 4.0, 4.5),
        (192, "fp8", 4.0, 1.25), (256, "fp8", 1.5, 1.25),
    ],
)  # fmt: skip
def test_where_softmax_and_products_take_turns(
    sample, phases, head, cache, prefill, decode
):
    heads = HEADS | {"head_dim": head, "kv_cache_dtype": cache}
    row = sample("context_attention", q_len=512, **heads)
    shape = found(phases, attention.Prefill, row)
    check(demand_of(attention, shape, H200, **ATTENTION), sharpness=prefill)
    shape = found(phases, attention.Decode, decode_row(sample, **heads))
    check(demand_of(attention, shape, H200, **ATTENTION), sharpness=decode)


def test_prefill(sample, phases):
    """512 positions, 4 query heads a KV head: 16 tiles of 128 x 128 visit 40 blocks a
    KV head, 16 of them on the diagonal."""
    row = sample("context_attention", q_len=512, kv_len=512, **HEADS)
    shape = found(phases, attention.Prefill, row)
    q, kv, blocks = 32 * 512 * 128, 2 * 8 * 512 * 128, 8 * 40
    loads = blocks * 2 * 128 * 128 * 2
    products = 4 * 128**3 / (4096 * 0.5)
    softmax, feed = 128**2 / 16 * 2, 2 * 128 * 128 * 2 / 64
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=8 * 16,
        tensor=4 * 128**3 * blocks,
        sfu=128**2 * blocks,
        smem=loads,
        l2=loads + 2 * q,
        dram=2 * (q + kv),
        store_l2=2 * q,
        store_dram=2 * q,
        tensor_peak=4096,
        tensor_efficiency=0.5,
        sfu_efficiency=0.5,
        feed=64,
        longest=4 * 8 * 16 / blocks,  # 4 blocks where the mean is 2.5
        own_cycles=1000
        + 128 * 128 * (2 + 2) / 64 * 0.5
        + 0.25 * (products + softmax + feed)
        + 128**2 / 16 * 0.5,  # each tile has one masked block
        fixed_cycles=7000,
        fixed_seconds=1e-8,
        launches=1,
        sharpness=4.0,
        store_exposed=0,
        tensor_energy=1e-12,
    )


@pytest.mark.parametrize(
    ("group", "cost"), [(1, 1.0), (2, 1.0), (4, 0.5), (8, 0.5), (16, 0.5), (32, 1.0)]
)
def test_query_loads_are_fast_in_some_groups(sample, phases, group: int, cost: float):
    row = sample(
        "context_attention", q_len=512, num_heads=32, num_kv_heads=32 / group,
        head_dim=128,
    )  # fmt: skip
    shape = found(phases, attention.Prefill, row)
    c = ATTENTION | dict(prefill_own=0.0, prefill_fill=0.0, prefill_mask=0.0)
    got = demand_of(attention, shape, H200, **c)
    check(got, own_cycles=128 * 128 * 4 / 64 * cost)


def test_prefill_with_an_fp8_cache(sample, phases):
    """wgmma: tiles of 128 x 160, V turned in shared memory; mma.sync widens instead."""
    row = sample("context_attention", q_len=512, kv_cache_dtype="fp8", **HEADS)
    shape = found(phases, attention.Prefill, row)
    blocks = sum(math.ceil((i + 1) * 32 / 160) for i in range(16)) * 8
    turned, loads = 160 * 128 / 32, blocks * 2 * 160 * 128
    products = 4 * 128 * 160 * 128 / (8192 * 0.5 * 0.8)
    softmax, feed = 128 * 160 / 16 * 2, 2 * 160 * 128 / 64
    c = ATTENTION | dict(prefill_mask=0.0)
    check(
        demand_of(attention, shape, H200, **c),
        tensor=4 * 128 * 160 * 128 * blocks,
        tensor_peak=8192,
        tensor_efficiency=0.5 * 0.8,
        tensor_energy=0.6e-12,
        smem=loads + turned * blocks * 128,
        own_cycles=1000
        + 128 * 128 * (1 + 2) / 64 * 0.5
        + 0.25 * (products + softmax + feed + turned),
    )
    # 128 x 64: 16 tiles of 32 positions, one more block every second tile
    blocks = 8 * 2 * sum(range(1, 9))
    products = 4 * 128 * 64 * 128 / (2048 * 0.5)
    check(
        demand_of(attention, shape, A100, **c),
        tensor_peak=2048,
        tensor_efficiency=0.5,
        tensor_energy=1e-12,
        smem=blocks * 2 * 64 * 128,
        own_cycles=1000
        + 128 * 128 * 3 / 64 * 0.5
        + 0.25 * (products + 128 * 64 / 16 * 2 + 2 * 64 * 128 / 64),
    )


def test_prefill_with_a_window_reads_what_it_sees(sample, phases):
    sizes = dict(q_len=512, kv_len=4096, **HEADS)
    row = sample("context_attention", window_size=1024, **sizes)
    shape = found(phases, attention.Prefill, row)
    q = 2 * 32 * 512 * 128
    got = demand_of(attention, shape, H200, **ATTENTION, **COLD)
    check(got, dram=q + 2 * 2 * 8 * (512 + 1024) * 128)
    whole = found(phases, attention.Prefill, sample("context_attention", **sizes))
    got = demand_of(attention, whole, H200, **ATTENTION, **COLD)
    check(got, dram=q + 2 * 2 * 8 * 4096 * 128)


def decode_row(sample, **given: Any) -> dict[str, Any]:
    return sample(
        "generation_attention", **({"batch": 16, "kv_len": 8192} | HEADS | given)
    )


@pytest.mark.parametrize("window", [0, 1024])
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_decode(sample, phases, window: int, cache: str):
    """16 x 8 KV heads of 8,192 positions, one CTA each."""
    row = decode_row(sample, window_size=window, kv_cache_dtype=cache, split_k=1)
    shape = found(phases, attention.Decode, row)
    shape = dataclasses.replace(shape, distance=[0.0])
    fp8 = cache == "fp8"
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
    shape = found(phases, attention.Decode, decode_row(sample, split_k=1, **LATENT))
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
    shape = found(phases, attention.Prefill, row)
    q, o, latents = 65_536 * 576 * 2, 65_536 * 512 * 2, 512 * 1152
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        ctas=1024,
        tensor=278_528 * 512 * 512,
        l2=1024 * latents + q,
        dram=q + latents,
        store_dram=o,
    )


def test_prefill_with_values_narrower_than_keys(sample, phases):
    """MLA before absorption, 192 and 128: 81,920 FLOP a pair at 128 heads, keys of 128
    x 96 on wgmma."""
    row = sample(
        "context_attention", q_len=768, kv_len=768, causal=False, num_heads=128,
        num_kv_heads=128, head_dim=192, v_head_dim=128,
    )  # fmt: skip
    shape = found(phases, attention.Prefill, row)
    q, kv, o = 128 * 768 * 192 * 2, 128 * 768 * (192 + 128) * 2, 128 * 768 * 128 * 2
    products = 2 * 128 * 96 * (192 + 128) / (4096 * 0.5)
    softmax, feed = 128 * 96 / 16 * 2, 96 * (192 + 128) * 2 / 64
    check(
        demand_of(attention, shape, H200, **ATTENTION, **COLD),
        tensor=81_920 * 768 * 768,
        l2=128 * 6 * 768 * (192 + 128) * 2 + q,
        dram=q + kv,
        store_l2=o,
        own_cycles=1000
        + 128 * (192 * 2 + 128 * 2) / 64
        + 0.25 * (products + softmax + feed),
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
    shape = found(phases, attention.Decode, decode_row(sample, split_k=1, **LATENT))
    got = demand_of(attention, shape, card, **ATTENTION)
    row_tiles = 128 / tile_m
    check(got, ctas=16 * row_tiles, sfu=16 * 128 * math.ceil(8192 / tile_n) * tile_n)
    stages = 1 if tile_n == 16 else 2
    size = (tile_m + stages * tile_n) * 576 * 2 / (2 if gpu == "b200-sxm" else 1)
    assert size + 1024 <= float(card.smem_per_sm)


def test_sinks_cost_nothing(sample, phases):
    with_sinks, without = (
        found(phases, attention.Decode, decode_row(sample, sinks=x))
        for x in (True, False)
    )
    assert jax.tree.all(jax.tree.map(lambda a, b: a == b, with_sinks, without))


def test_no_gradients_of_a_cache(sample):
    with pytest.raises(ValueError, match="`shared_kv`"):
        sample("attention_backward", shared_kv=True)


def test_decode_with_an_fp8_cache_without_fp8_products(sample, phases):
    """mma.sync widens the cache: bf16 rate and energy, nothing is turned."""
    row = decode_row(sample, kv_cache_dtype="fp8", split_k=1)
    shape = found(phases, attention.Decode, row)
    check(
        demand_of(attention, shape, A100, **ATTENTION),
        tensor_peak=2048,
        tensor_energy=1e-12 * (0.3 + 0.7 * 4 / 128),
        smem=2 * 16 * 8 * 128 * 8192 + 4 * 16 * 128,
        own_cycles=2000 + 10 * 128,
    )


def test_decode_of_a_cache_that_partly_stays(sample, phases):
    """Misses z^3.8 / (1 + z^3.8) of the bytes touched between two steps / L2."""
    shape = found(phases, attention.Decode, decode_row(sample, split_k=1))
    kv, q, pages = 2 * 16 * 8 * 128 * 8192 * 2, 16 * 32 * 128, 4 * 16 * 128
    far = dataclasses.replace(shape, distance=[1e9])
    c = ATTENTION | dict(l2_share=1e9 / 1.5 / float(H200.l2_capacity))
    miss = 1.5**3.8 / (1 + 1.5**3.8)
    check(
        demand_of(attention, far, H200, **c),
        dram=(kv + pages + 2 * q) * miss,
        store_dram=2 * q * miss,
    )


@pytest.mark.parametrize(("given", "splits"), [(0, 15), (1, 1), (7, 7)])
def test_a_given_split_wins(sample, phases, given: int, splits: int):
    """One sequence of 32,768 positions: the library takes 15 parts on 132 SMs."""
    row = decode_row(sample, batch=1, kv_len=32768, split_k=given)
    shape = found(phases, attention.Decode, row)
    q = 32 * 128
    check(
        demand_of(attention, shape, H200, **ATTENTION),
        ctas=8 * splits,
        launches=1 + (splits > 1),
        store_l2=2 * q + 8 * q * splits * (splits > 1),
        sfu=128 * 128 * 8 * splits * math.ceil(256 / splits),
    )


def test_backward_kernel(sample, phases):
    row = sample("attention_backward", q_len=512, kv_len=512, **HEADS)
    shape = found(phases, attention_backward.Backward, row)
    forward = demand_of(attention, shape, H200, **ATTENTION)
    there = {
        name: float(getattr(forward, name)[0, 0])
        for name in ("tensor", "smem", "l2", "own_cycles", "tensor_efficiency")
    }
    q, kv = 32 * 512 * 128, 2 * 8 * 512 * 128
    check(
        demand_of(attention_backward, shape, H200, **ATTENTION, **COLD),
        tensor=2.5 * there["tensor"],
        smem=2.5 * there["smem"],
        own_cycles=2.5 * there["own_cycles"],
        l2=3 * there["l2"],
        tensor_efficiency=63 / 73 * there["tensor_efficiency"],
        dram=2 * (2 * q + kv),  # Q, dO, K and V
        store_l2=2 * kv,
        store_dram=4 * q + 2 * kv,  # dQ in fp32
        launches=1,
    )


def test_backward_kernel_of_narrower_values(sample, phases):
    """Keys of 192, values of 128: three products of the former, two of the latter."""
    size = dict(q_len=512, num_heads=16, num_kv_heads=16, head_dim=192, v_head_dim=128)
    row = sample("attention_backward", kv_len=512, **size)
    shape = found(phases, attention_backward.Backward, row)
    forward = demand_of(attention, shape, H200, **ATTENTION)
    q, o = 16 * 512 * 192, 16 * 512 * 128
    tensor = float(forward.tensor[0, 0]) * (3 * 192 + 2 * 128) / (192 + 128)
    check(
        demand_of(attention_backward, shape, H200, **ATTENTION, **COLD),
        tensor=tensor,
        dram=2 * (q + o + q + o),  # Q, dO, K and V
        store_l2=2 * (q + o),
        store_dram=4 * q + 2 * (q + o),
        launches=1,
    )
    around = found(phases, stream.Stream, row)
    assert float(around.read[0]) == 2 * 2 * o + 4 * q  # O and dO; dQ in fp32
    assert float(around.write[0]) == (4 + 2) * q


@pytest.mark.parametrize(("batch", "planned"), [(992, 992), (993, 0.35 * 993)])
@pytest.mark.parametrize("op", ["context_attention", "generation_attention"])
def test_splits_are_planned_for_so_many_sequences(sample, phases, op, batch, planned):
    """31 by each of 32 warps; beyond them a sequence costs about a third."""
    sizes = dict(q_len=1, kv_len=64) if op == "generation_attention" else dict(q_len=64)
    row = sample(op, batch=batch, **sizes, **HEADS)
    prefill = op == "context_attention"
    kind = attention.Prefill if prefill else attention.Decode
    got = demand_of(attention, found(phases, kind, row), H200, **ATTENTION)
    check(got, fixed_seconds=planned * (1e-8 if prefill else 2e-8))


def test_a_server_writes_latents_once(sample, phases):
    """576 elements of 21 tokens, not 2 x 576."""
    row = sample(
        "context_attention", batch=3, q_len=7, framework="vllm/0.24.1", **LATENT
    )
    shape = found(phases, stream.Stream, row)
    check(
        demand_of(stream, shape, H200, **WARM),
        issue=55 * 21 * 576 + 5000 * 21,
        l2=4 * 21 * 576,
    )


@pytest.mark.parametrize(
    ("cache", "family", "elements", "size", "queries"),
    [
        ("bf16", "", 1.0, 2, 0), ("fp8", "", 1.8, 1, 1), ("fp8", "triton", 1.8, 1, 0),
        ("fp8", "xfa2", 1.8, 1, 0), ("bf16", "triton", 1.0, 2, 0),
    ],
)  # fmt: skip
def test_what_a_server_writes_to_its_cache(
    sample, phases, cache, family, elements, size, queries
):
    """vLLM 0.24: keys and values of 3 x 7 tokens, rounded queries; 55 instructions an
    element, 34 a rounded one, 5,000 a token."""
    row = sample(
        "context_attention", batch=3, q_len=7, kv_cache_dtype=cache, family=family,
        framework="vllm/0.24.1", num_heads=10, num_kv_heads=5, head_dim=16,
    )  # fmt: skip
    shape = found(phases, stream.Stream, row)
    new, rounded = 2 * 21 * 5 * 16, 21 * 10 * 16 * queries
    check(
        demand_of(stream, shape, H200, **WARM),
        issue=55 * elements * new + 5000 * 21 + 34 * rounded,
        l2=(2 + size) * (new + rounded),
    )
    work = phases([row | {"framework": "vllm/0.23"}])
    assert not any(isinstance(x, stream.Stream) for x in work.shapes)
