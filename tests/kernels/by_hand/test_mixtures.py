"""Mixture of experts: products, sorting, constants by width."""

import dataclasses
from typing import Any

import pytest

from diffenergy.kernels import moe

from .demands import COLD, H200, H200_SMS, WARM, check, demand_of, shape_of

EXPERTS = dict(
    num_tokens=1024, hidden_size=1024, inter_size=2048, topk=2, num_experts=8
)
MOE = dict(
    moe_efficiency=0.5, moe_efficiency_fp8=0.6, moe_efficiency_block=0.7,
    moe_cycles=1000.0, moe_cycles_fp8=2000.0, moe_cycles_block=3000.0,
    moe_quantise=2.0, moe_quantise_block=4.0, moe_stream=100.0, moe_sorting=500.0,
    moe_align=1e-9, moe_expert=1e-8, moe_feed=60.0, moe_flow=10.0, moe_empty=50.0,
    moe_misaligned=3.0, moe_own=800.0, moe_load_energy=1e-12, energy_tensor=2e-12,
    step_cycles=100.0, zero_saving=0.0, moe_quantization=0.3,
)  # fmt: skip


def moe_shapes(sample, phases, **options: Any) -> tuple[Any, Any]:
    """(gate and up, sorting) of a layer, as first rows of their classes."""
    row = sample("moe", **(EXPERTS | options))
    return shape_of(phases, moe.Experts, row), shape_of(phases, moe.Rows, row)


@pytest.mark.parametrize(
    ("dtype", "efficiency", "paid", "slower"),
    [("bf16", 0.5, 1000, 1), ("fp8", 0.6, 2000, 2), ("fp8_block", 0.7, 3000, 4)],
)
def test_constants_by_width(sample, phases, dtype, efficiency, paid, slower):
    experts, rows = moe_shapes(sample, phases, dtype=dtype)
    check(demand_of(moe, experts, H200, **MOE), tensor_efficiency=efficiency)
    first = int(rows.first.argmax())  # it does nothing but quantise and sort
    got = demand_of(moe, rows, H200, **MOE)
    check(
        got,
        row=first,
        fixed_cycles=paid + 500,
        fixed_seconds=2048e-9 + 8e-8,
        launches=1,
    )
    assert float(got.feed[first, 0]) == pytest.approx(100 / slower, rel=1e-4)


def test_experts(sample, phases):
    """Gate and up of 8 experts with 256 tokens each: 2 x 32 tiles of 128 x 128."""
    experts, _ = moe_shapes(sample, phases, tile_m=128, tile_n=128)
    up = int(experts.n.argmax())
    experts = dataclasses.replace(experts, distance=[1e15, 1e15])
    loads = (2048 * 32 + 512 * 128) * 1024 * 2
    weights, tokens = 8 * 4096 * 1024 * 2, 2048 * 1024 * 2
    flop = 512 * 2 * 128 * 128 * 1024
    # a grid for (2,048 + 8 x 127) / 128 row tiles, 16 of them filled
    empty = ((2048 + 8 * 127) / 128 - 16) * 32
    check(
        demand_of(moe, experts, H200, **MOE, **COLD),
        row=up,
        ctas=512,
        tensor=flop,
        l2=loads,
        smem=2 * loads,
        dram=weights + tokens,
        store_l2=2 * 2048 * 4096,
        store_dram=2 * 2048 * 4096,
        tensor_peak=4096,
        feed=60,
        # 512 CTAs load 256 different columns of weights
        flow=10 * (weights + tokens) / (weights * 2 + tokens) * 512 / H200_SMS,
        path_cycles=16 * 100,
        own_cycles=800,
        fixed_cycles=50 * empty / H200_SMS,
        launches=0,
        quantization=0.3,
        tensor_energy=2e-12 + 1e-12 * loads / flop,
    )
    warm = MOE | WARM | dict(l2_share=100.0)
    check(demand_of(moe, experts, H200, **warm), row=up, dram=weights)


def test_experts_in_mxfp4(sample, phases):
    """Those of `test_experts` with weights of 17/32 B, expanded in every tile."""
    experts, _ = moe_shapes(
        sample, phases, tile_m=128, tile_n=128, weight_dtype="mxfp4"
    )
    up = int(experts.n.argmax())
    experts = dataclasses.replace(experts, distance=[1e15, 1e15])
    loads = 2048 * 32 * 1024 * 2 + 512 * 128 * 1024 * 17 / 32
    check(
        demand_of(moe, experts, H200, **MOE, **COLD),
        row=up,
        tensor=512 * 2 * 128 * 128 * 1024,
        tensor_peak=4096,
        tensor_efficiency=0.5,
        l2=loads,
        smem=2 * loads,
        dram=8 * 4096 * 1024 * 17 / 32 + 2048 * 1024 * 2,
        issue=2 * 512 * 128 * 1024,
        path_cycles=16 * 100,
    )


def test_experts_without_vector_loads(sample, phases):
    """k = 1,000 is no multiple of 16: 8 blocks of 128, element by element."""
    experts, _ = moe_shapes(sample, phases, hidden_size=1000, tile_m=128, tile_n=128)
    up = int(experts.n.argmax())
    got = demand_of(moe, experts, H200, **MOE)
    check(got, row=up, feed=60 / (3 * 1024 / 1000), path_cycles=16 * 100)


def test_rows_of_a_rank(sample, phases):
    """Experts among four ranks, two on each: ranks that see the same 1,024 tokens have
    rows for both choices of all of them, those that are sent theirs a quarter: 512."""
    alike = moe_shapes(sample, phases, moe_ep_size=4)
    sent = moe_shapes(sample, phases, moe_ep_size=4, dispatched=True)
    for (experts, rows), number, tokens, named in (
        (alike, 2048, 1024, 8),
        (sent, 512, 512, 2),
    ):
        assert set(experts.all_rows.tolist()[:2]) == {number}
        assert set(experts.experts.tolist()[:2]) == {named}
        assert float((experts.tokens * experts.weight).sum(-1)[0]) == 512
        moved = set(zip(rows.read.tolist(), rows.write.tolist(), strict=True))
        activation = (6 * number * 2048, 4 * number * 2048)
        added = (4 * number * 1024, 4 * tokens * 1024)
        assert {activation, added} <= moved
