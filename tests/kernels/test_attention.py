"""Blocks that fused attention visits: published counts, brute force, splits."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import smooth
from diffenergy.hardware import load_gpu
from diffenergy.kernels import attention
from diffenergy.kernels.attention._tiles import kv_blocks

from .by_hand.demands import H200, demand_of


def visited(*numbers: Any) -> tuple[jax.Array, ...]:
    """`kv_blocks` of plain numbers or columns."""
    return kv_blocks(*[jnp.asarray(x, float) for x in numbers])


def brute(q: int, kv: int, group: int, window: int, m: int, n: int) -> list[int]:
    """Counts of one KV head by a loop over its row tiles."""
    tiles, shift = math.ceil(q * group / m), kv - q
    blocks, longest, masked = 0, 0, 0
    for tile in range(tiles):
        first = tile * m // group + shift
        last = min(q - 1, ((tile + 1) * m - 1) // group) + shift
        start = max(0, first - window + 1) // n if window else 0
        end = last // n + 1
        blocks += end - start
        longest = max(longest, end - start)
        masked += end - (first + 1) // n
    return [tiles, blocks, longest, masked]


def shapes(windows: bool) -> np.ndarray:
    """500 random (q, kv, group, window, tile_m, tile_n)."""
    rng = np.random.default_rng(2)
    q = rng.integers(1, 900, 500)
    return np.stack(
        [
            q,
            q + rng.integers(0, 2000, 500) * rng.integers(0, 2, 500),
            rng.choice([1, 2, 4, 7, 8, 32], 500),
            rng.integers(1, 700, 500) * windows,
            rng.choice([64, 128, 192], 500),
            rng.choice([64, 80, 96, 128, 160], 500),
        ]
    )


@pytest.mark.parametrize("windows", [False, True])
def test_blocks_against_brute_force(windows: bool):
    q, kv, group, window, m, n = numbers = shapes(windows)
    exact = np.array([brute(*map(int, row)) for row in numbers.T]).T
    floats = list(numbers)
    got = visited(*floats[:4], np.ones(500), *floats[4:])
    tiles, blocks, longest, masked = map(np.asarray, got)
    assert tiles.tolist() == exact[0].tolist()
    assert blocks.tolist() == exact[1].tolist()
    if windows:  # closed forms: no tile visits fewer than the mean, none is far off
        assert np.all(longest >= blocks / tiles)
        assert np.all(np.abs(longest - exact[2]) <= np.ceil((m / group + n) / n))
        assert np.all((masked >= 0) & (masked <= blocks))
    else:
        assert longest.tolist() == exact[2].tolist()
        assert masked.tolist() == exact[3].tolist()


def test_without_a_mask_every_tile_visits_every_block():
    q, kv, group, window, m, n = shapes(False)
    got = visited(q, kv, group, window, np.zeros(500), m, n)
    tiles, blocks, longest, masked = map(np.asarray, got)
    assert blocks.tolist() == (tiles * np.ceil(kv / n)).tolist()
    assert longest.tolist() == np.ceil(kv / n).tolist() and not masked.any()


def test_closed_form_is_the_backward_rule():
    # causal: q G/m tiles, each (q + m/G)/2 keys and half a block: within 1 % of exact
    def blocks(tile_m: jax.Array) -> jax.Array:
        return visited(4096, 4096, 4, 0, 1, tile_m, 128)[1]

    exact, slope = jax.value_and_grad(blocks)(jnp.asarray(128.0))
    with smooth.relaxed():
        closed, relaxed_slope = jax.value_and_grad(blocks)(jnp.asarray(128.0))
    assert closed == 128 * ((4096 + 32) / 2 / 128 + 0.5)
    assert exact == pytest.approx(float(closed), rel=0.01)
    # d/dm of 4 q/m ((q + m/4)/(2 n) + 1/2)
    by_hand = -4 * 4096 / 128**2 * (4096 / 256 + 0.5)
    assert slope == pytest.approx(by_hand) == float(relaxed_slope)


def decode(**options: Any) -> attention.Decode:
    """One decode shape: batch 16, 8,192 positions, 32 heads on 8 KV heads, bf16."""
    fields: dict[str, Any] = dict.fromkeys(attention.Decode.__dataclass_fields__, 0) | {
        "batch": 16, "q_len": 1, "kv_len": 8192, "num_heads": 32, "num_kv_heads": 8,
        "head_dim": 128, "v_head_dim": 128, "causal": 1, "dtype": 2,
        "kv_cache_dtype": 2,
    }  # fmt: skip
    return attention.Decode(**{name: [x] for name, x in (fields | options).items()})


def test_a_split_of_a_prefill_row_wins():
    """Of one sequence and few heads FlashAttention 3 splits the keys; as often as it
    is told to, and never finer than blocks."""
    few = {"batch": 1, "q_len": 512, "kv_len": 8192, "num_heads": 4, "num_kv_heads": 4}

    def ctas(**options: Any) -> tuple[float, float]:
        shape = attention.Prefill(
            **vars(decode(**few, tile_m=128, tile_n=128, **options))
        )
        demand = demand_of(attention, shape, H200)
        return float(demand.ctas[0, 0]), float(demand.launches[0, 0])

    tiles = 4 * 512 / 128
    chosen, launches = ctas()
    assert chosen > tiles and launches == 2
    assert ctas(split_k=1) == (tiles, 1)
    assert ctas(split_k=3) == (3 * tiles, 2)
    assert ctas(split_k=1000) == (64 * tiles, 2)


def test_unpacked_heads_have_tiles_of_their_own():
    gpu = load_gpu("l40s")

    def ctas(**options: Any) -> float:
        return float(demand_of(attention, decode(batch=64, **options), gpu).ctas[0, 0])

    assert ctas() == ctas(unpacked=1) == 64 * 8  # single queries, no window: packed
    assert ctas(unpacked=1, window_size=512) == 64 * 32
    assert ctas(unpacked=1, window_size=9000) == 64 * 32  # whatever the window
    # heads of their own share no reads: four times the L2 traffic, the same DRAM
    packed, alone = (
        demand_of(attention, decode(batch=64, window_size=512, unpacked=x), gpu)
        for x in (0, 1)
    )
    assert alone.l2[0, 0] == pytest.approx(float(4 * packed.l2[0, 0]), rel=0.02)
    assert alone.dram[0, 0] == packed.dram[0, 0]
