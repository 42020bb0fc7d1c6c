"""Fused attention: prefill, decode, and the backward kernel."""

import math

import jax
import pytest

from diffenergy.kernels import attention, stream
from diffenergy.kernels.attention import attention_backward
from diffenergy.kernels.attention._tiles import tiles_of

from .demands import (
    A100,
    ATTENTION,
    COLD,
    H200,
    HEADS,
    V5E,
    check,
    decode_row,
    demand_of,
    shape_of,
)


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
        (256, "bf16", 4.0, 4.5), (128, "fp8", 4.0, 4.5),
        (192, "fp8", 4.0, 1.25), (256, "fp8", 1.5, 1.25),
    ],
)  # fmt: skip
def test_where_softmax_and_products_take_turns(
    sample, phases, head, cache, prefill, decode
):
    heads = HEADS | {"head_dim": head, "kv_cache_dtype": cache}
    row = sample("context_attention", q_len=512, **heads)
    shape = shape_of(phases, attention.Prefill, row)
    check(demand_of(attention, shape, H200, **ATTENTION), sharpness=prefill)
    shape = shape_of(phases, attention.Decode, decode_row(sample, **heads))
    check(demand_of(attention, shape, H200, **ATTENTION), sharpness=decode)


def test_prefill(sample, phases):
    """512 positions, 4 query heads a KV head: 16 tiles of 128 x 128 visit 40 blocks a
    KV head, 16 of them on the diagonal."""
    row = sample("context_attention", q_len=512, kv_len=512, **HEADS)
    shape = shape_of(phases, attention.Prefill, row)
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
    shape = shape_of(phases, attention.Prefill, row)
    c = ATTENTION | dict(prefill_own=0.0, prefill_fill=0.0, prefill_mask=0.0)
    got = demand_of(attention, shape, H200, **c)
    check(got, own_cycles=128 * 128 * 4 / 64 * cost)


def test_prefill_with_an_fp8_cache(sample, phases):
    """wgmma: tiles of 128 x 160, V turned in shared memory; mma.sync widens instead."""
    row = sample("context_attention", q_len=512, kv_cache_dtype="fp8", **HEADS)
    shape = shape_of(phases, attention.Prefill, row)
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
    shape = shape_of(phases, attention.Prefill, row)
    q = 2 * 32 * 512 * 128
    got = demand_of(attention, shape, H200, **ATTENTION, **COLD)
    check(got, dram=q + 2 * 2 * 8 * (512 + 1024) * 128)
    whole = shape_of(phases, attention.Prefill, sample("context_attention", **sizes))
    got = demand_of(attention, whole, H200, **ATTENTION, **COLD)
    check(got, dram=q + 2 * 2 * 8 * 4096 * 128)


def test_prefill_with_values_narrower_than_keys(sample, phases):
    """MLA before absorption, 192 and 128: 81,920 FLOP a pair at 128 heads, keys of 128
    x 96 on wgmma."""
    row = sample(
        "context_attention", q_len=768, kv_len=768, causal=False, num_heads=128,
        num_kv_heads=128, head_dim=192, v_head_dim=128,
    )  # fmt: skip
    shape = shape_of(phases, attention.Prefill, row)
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


def test_sinks_cost_nothing(sample, phases):
    with_sinks, without = (
        shape_of(phases, attention.Decode, decode_row(sample, sinks=x))
        for x in (True, False)
    )
    assert jax.tree.all(jax.tree.map(lambda a, b: a == b, with_sinks, without))


def test_backward_kernel(sample, phases):
    row = sample("attention_backward", q_len=512, kv_len=512, **HEADS)
    shape = shape_of(phases, attention_backward.Backward, row)
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
    shape = shape_of(phases, attention_backward.Backward, row)
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
    around = shape_of(phases, stream.Stream, row)
    assert float(around.read[0]) == 2 * 2 * o + 4 * q  # O and dO; dQ in fp32
    assert float(around.write[0]) == (4 + 2) * q


def test_no_server_writes_a_cache_of_gradients(sample, phases):
    """O and dO read, a row's sum; zeros of dQ written, dQ read and rounded."""
    row = sample("attention_backward", q_len=512, framework="vllm/0.24.0", **HEADS)
    around = shape_of(phases, stream.Stream, row)
    queries = 32 * 512 * 128
    assert around.read.tolist() == [queries * (2 + 2 + 4)]
    assert around.write.tolist() == [queries * (4 + 2)]


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_tiles_of_systolic_arrays(sample, phases, cache: str):
    """512 x 512, of 512 positions one block a head; 4 rows of a single query fill up
    the 128 of an array. fp8 is widened, and no library pages."""
    heads = HEADS | {"kv_cache_dtype": cache}
    row = sample("context_attention", q_len=512, **heads)
    shape = shape_of(phases, attention.Prefill, row)
    flop = 2 * 512 * 512 * 2 * 128
    check(
        demand_of(attention, shape, V5E, **ATTENTION),
        tensor=flop * 8 * sum([1] * 4), ctas=8 * 4, tensor_peak=131072,
    )  # fmt: skip
    shape = shape_of(phases, attention.Decode, decode_row(sample, **heads))
    check(
        demand_of(attention, shape, V5E, **ATTENTION),
        tensor=2 * 128 * 512 * 256 * 16 * 8 * 16,
        tensor_energy=1e-12 * (0.3 + 0.7 * 4 / 128),
    )
