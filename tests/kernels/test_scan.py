"""State mixers: FLOP, bytes, CTAs and chunks in turn, by hand and as published."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from diffenergy import estimator
from diffenergy.corrections import Corrections
from diffenergy.hardware import OperatingPoint, load_gpu
from diffenergy.kernels import scan

from .by_hand.demands import COLD, H200, WARM, check, demand_of

DELTA = dict(kind="gated_delta", num_heads=32, groups=16, head_dim=128, chunk=64)
"""Gated delta net of Qwen3.5-35B-A3B."""
NANO = dict(
    kind="mamba2", num_heads=64, groups=8, head_dim=128, v_head_dim=64, chunk=128
)
"""Mamba2 of Nemotron-3-Nano."""
AREA = 128 * 128


def launches(phases, sample, **options: Any) -> list[Any]:
    """Shape records of a row, each launch a record of one row."""
    work = phases([sample("scan", **options)])
    result = []
    for shape, group in zip(work.shapes, work.groups, strict=True):
        for i in jnp.flatnonzero(group.count > 0):
            result.append(jax.tree.map(lambda x, i=i: x[i : i + 1], shape))
    return result


def chunks(phases, sample, **options: Any) -> tuple[Any, Any]:
    """(kernels of all chunks at once, the one that takes them in turn)."""
    first, second = launches(phases, sample, **options)
    turns = first if float(first.launches[0]) == 1 else second
    return (second if turns is first else first), turns


@pytest.mark.parametrize(
    ("options", "flop"),
    [
        (DELTA, 32 * (6 * AREA + 64 * (6 * 128 + 4 * 128) + 2 / 3 * 64**2)),
        (DELTA | dict(kind="kda"), 32 * 182_954.6666666),
        (NANO, 64 * 53_248),
    ],
)
def test_flop_of_a_position(sample, phases, options, flop):
    """182,955 a head of a delta rule at 128/128, 53,248 of Nemotron-3-Nano; a last
    chunk that is not full is computed in full."""
    chunk = options["chunk"]
    for q_len, executed in ((5 * chunk, 5 * chunk), (5 * chunk - 9, 5 * chunk)):
        parts = chunks(phases, sample, batch=3, q_len=q_len, **options)
        total = sum(float(x.flop[0]) for x in parts)
        assert total == pytest.approx(3 * executed * flop)


def test_bytes_of_a_delta_rule(sample, phases):
    """Of 1,024 positions in 16 chunks: operands once, what the kernels of FLA hand on,
    chunk states in bf16 written and read (1,024 B a position and head), and fp32 states
    of a sequence (2.1 MB) read and written."""
    at_once, turns = chunks(phases, sample, q_len=1024, **DELTA)
    states = 1024 * 32 * 512
    operands = 2 * 16 * 128 * 2 + 2 * 32 * 128 * 2 + 32 * 8
    handed = 32 * ((128 + 2 * 128) * 2)  # w, u; new values
    products = 32 * 2 * 64 * (4 + 2)
    assert float(at_once.moved[0]) == 1024 * (operands + handed + products) + states
    keys = 16 * 128 * 2
    assert float(turns.moved[0]) == 1024 * (handed + keys) + states + 2 * 32 * AREA * 4
    by_channel, _ = chunks(phases, sample, q_len=1024, **DELTA | dict(kind="kda"))
    more = float(by_channel.moved[0] - at_once.moved[0])
    assert more == 1024 * 32 * 4 * (128 + 1 - 2)


def test_bytes_of_mamba2(sample, phases):
    """Of 1,024 positions in 8 chunks: states of a chunk in fp32 as made, in bf16 as
    passed on."""
    at_once, turns = chunks(phases, sample, q_len=1024, **NANO)
    states = 8 * 64 * 128 * 64
    operands = (2 * 64 * 64 + 2 * 8 * 128) * 2 + 64 * 4
    handed = 2 * 8 * 128 * 4 + 2 * 64 * 4  # C B^T, sums of the decay
    assert float(at_once.moved[0]) == 1024 * (operands + handed) + 6 * states
    assert float(turns.moved[0]) == 6 * states + 2 * 64 * 128 * 64 * 4
    assert float(turns.fma[0]) == 2 * states and float(turns.flop[0]) == 0


def test_chunks_in_turn(sample, phases):
    """One sequence: 32 heads x 2 blocks of 64 columns are 64 CTAs, which take 16 chunks
    in turn: products over 128 keys and 64 positions, two loads."""
    at_once, turns = chunks(phases, sample, q_len=1024, **DELTA)
    c = dict(
        step_cycles=100.0, own_cycles=700.0, stream_feed=20.0, operand_half_tile=16.0,
        tensor_efficiency=0.9, energy_tensor=1e-12, zero_saving=0.0,
    )  # fmt: skip
    moved = float(turns.moved[0])
    check(
        demand_of(scan, turns, H200, **c, **COLD),
        tensor=1024 * 32 * 4 * AREA,
        ctas=64,
        path_cycles=16 * 100 * (128 + 64) * 2 / 128,
        path_seconds=16 * 2 * float(H200.dram_latency),
        own_cycles=700,
        l2=moved + 1024 * 16 * 128 * 2,  # keys by every head
        dram=moved,
        feed=20,
        launches=1,
        tensor_peak=4096,
        tensor_efficiency=0.9 * (64 / (64 + 32)) ** 2,
        tensor_energy=1e-12,
        smem=1024 * 32 * 4 * AREA * (1 / 64 + 1 / 64),
    )
    check(
        demand_of(scan, at_once, H200, **c, **WARM),
        ctas=16 * 32,
        path_cycles=100 * (2 * 128 + 64) * 2 / 128,
        launches=5,
        dram=0,
    )


@pytest.mark.parametrize(
    ("options", "flop", "state"),
    [
        (DELTA, 7 * 32 * AREA, 32 * AREA * 4),  # 2.10 MB
        (DELTA | dict(kind="kda", state_dtype="bf16"), 7 * 32 * AREA, 32 * AREA * 2),
        (NANO, 6 * 64 * 128 * 64, 64 * 128 * 64 * 4),
    ],
)
@pytest.mark.parametrize("q_len", [1, 4])
def test_decode(sample, phases, options, flop, state, q_len):
    """States of 5 requests read and written once, however many positions."""
    (shape,) = launches(phases, sample, batch=5, q_len=q_len, **options)
    got = demand_of(scan, shape, H200, **COLD)
    moved = float(shape.moved[0])
    more = options["num_heads"] - options["groups"]  # q and k by every head
    check(
        got,
        fma=5 * q_len * flop,
        tensor=0,
        l2=moved + 5 * q_len * more * 2 * 128 * 2 + 10 * state,
        dram=moved + 10 * state,
        ctas=5 * options["num_heads"] * options.get("v_head_dim", 128) / 8,
        path_cycles=q_len * float(H200.l2_latency),
    )
    # in a large L2 the state is there unless the pass has pushed it out
    check(demand_of(scan, shape, H200, **WARM), dram=0)


@pytest.mark.parametrize("q_len", [1, 3000])
def test_a_short_convolution(sample, phases, q_len):
    """4 taps on 8,192 channels: 8 FLOP an element, three positions kept, in bf16."""
    conv = dict(kind="short_conv", batch=2, q_len=q_len, num_heads=8192, head_dim=4)
    row = sample("scan", **conv)
    assert (row["v_head_dim"], row["state_dtype"]) == (1, "bf16")
    (shape,) = launches(phases, sample, **conv)
    elements = 2 * q_len * 8192
    assert float(shape.fma[0]) == 8 * elements
    assert float(shape.moved[0]) == 2 * elements * 2
    assert float(shape.state[0]) == 2 * 8192 * 3 * 2
    assert float(shape.steps[0]) == 1


def seconds(phases, sample, gpu: str, *rows: dict[str, Any]) -> list[float]:
    """Times of rows at full clock without a limit, priors."""
    work = phases(*([sample("scan", **row)] for row in rows))
    card = load_gpu(gpu)
    point = OperatingPoint(card.sm_clock_max, card.mem_clock, 1e9, 50.0)
    return estimator.estimate_once(
        work, card, point, Corrections()
    ).phases.time.tolist()


@pytest.mark.parametrize(
    ("heads", "batch", "length", "published"),
    [
        (8, 1, 65536, 1.954e-3), (8, 1, 2048, 86e-6), (8, 8, 8192, 866e-6),
        (64, 1, 65536, 8.633e-3), (64, 4, 2048, 1.068e-3),
    ],
)  # fmt: skip
def test_published_prefill_of_fla(sample, phases, heads, batch, length, published):
    """FLA on an H100, flashinfer pull requests 3788 and 3866 (8 x 8,192: 3902)."""
    row = DELTA | dict(num_heads=heads, groups=heads // 4, batch=batch, q_len=length)
    (got,) = seconds(phases, sample, "h100-sxm", row)
    assert got == pytest.approx(published, rel=0.3)
