"""Mixture of experts: tokens per expert, tiles, what all top-k rows pass through."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from diffenergy.corrections import Corrections
from diffenergy.kernels import moe
from diffenergy.kernels.moe import _routing
from diffenergy.kernels.moe._routing import expert_counts

from .by_hand.demands import H200, demand_of


@pytest.mark.parametrize(
    ("tokens", "experts", "topk"), [(1, 8, 2), (256, 128, 8), (1000, 60, 4)]
)
@pytest.mark.parametrize("distribution", ["balanced", "power_law_0.5", "power_law_1.0"])
def test_counts(tokens: int, experts: int, topk: int, distribution: str):
    counts = expert_counts(tokens, experts, topk, distribution)
    assert counts.shape == (experts,) and counts.sum() == tokens * topk
    assert counts.min() >= 0 and counts.max() <= tokens
    assert np.all(np.diff(counts) >= 0)
    if distribution == "balanced":
        assert counts.max() - counts.min() <= 1


def dealt_one_by_one(
    tokens: int, topk: int, ranks: int, exponent: float, u: np.ndarray
) -> tuple[np.ndarray, int]:
    """(power-law counts by the rule itself, units dealt one at a time)."""
    total, a = tokens * topk, exponent
    low, high = (1.0, 0.8 * tokens) if total > len(u) else (0.01, 2.0)
    x = ((high ** (1 - a) - low ** (1 - a)) * u + low ** (1 - a)) ** (1 / (1 - a))
    counts = np.round(x / x.sum() * total).astype(int)
    groups = np.minimum(counts, tokens).reshape(ranks, -1).copy()

    def adjust(units: int, step: int) -> None:
        while units:
            for group in groups:
                fits = np.flatnonzero(group < tokens if step > 0 else group > 0)
                if len(fits) and units:
                    pick = np.argmin if step > 0 else np.argmax
                    group[fits[pick(group[fits])]] += step
                    units -= 1

    cut = int(counts.sum() - groups.sum())
    adjust(cut, 1)
    missing = total - int(groups.sum())
    adjust(abs(missing), 1 if missing > 0 else -1)
    return groups.ravel(), cut + abs(missing)


@pytest.mark.parametrize(
    ("experts", "topk", "tokens", "ranks"),
    [
        (128, 8, 4, 1), (128, 8, 4, 16), (512, 22, 2, 64), (256, 8, 64, 8),
        (16, 1, 3, 4), (384, 6, 100, 1), (128, 1, 50, 32), (8, 2, 900, 8),
    ],
)  # fmt: skip
def test_power_law_by_the_rule(experts: int, topk: int, tokens: int, ranks: int):
    u = np.random.default_rng(1).random(experts)
    arguments = (tokens, topk, ranks, 1.2, u)
    counts, dealt = dealt_one_by_one(*arguments)
    assert _routing.power_law_counts(*arguments).tolist() == counts.tolist()
    assert np.abs(_routing._rounded(tokens, topk, 1.2, u)[1:]).sum() == dealt


def test_units_dealt():
    for distribution in ("balanced", "random", "lognormal_1"):
        assert _routing.units_dealt(4096, 8, 2, distribution) == 0
    # top-2 of 8 experts: what one expert draws beyond all tokens is dealt to the others
    few, many = (_routing.units_dealt(n, 8, 2, "power_law_1.2") for n in (64, 4096))
    assert 0 < few < many < 2 * 4096


@pytest.mark.parametrize(
    ("tokens", "experts", "topk"), [(1, 8, 2), (7, 8, 3), (256, 128, 8), (5, 512, 22)]
)
def test_balanced_by_the_rule(tokens: int, experts: int, topk: int):
    stride = -(-experts // topk)
    counts = np.zeros(experts, int)
    for i in range(tokens):
        start = i if tokens >= stride else i * stride // tokens
        for j in range(topk):
            counts[(start + j * stride) % experts] += 1
    assert _routing.balanced_counts(tokens, experts, topk).tolist() == counts.tolist()


def test_one_token_reaches_one_expert_of_each_rank(sample, phases):
    shape = dict(hidden_size=64, inter_size=64, num_experts=128, topk=8)
    experts, _ = launches(sample, phases, num_tokens=1, moe_ep_size=8, **shape)
    assert jnp.sum(experts.weight, -1).tolist() == [1, 1]


def test_bins_keep_the_tiles():
    counts = np.random.default_rng(2).integers(1, 1000, 300)
    loads, weights = _routing._binned(counts, np.ones(300), 0.2)
    assert (loads @ weights, weights.sum()) == pytest.approx((0.2 * counts.sum(), 60))
    for tile in (16, 32, 64, 128):
        got = np.ceil(loads / tile) @ weights
        assert got == pytest.approx(0.2 * np.ceil(counts / tile).sum())


@pytest.mark.parametrize(
    ("tokens", "experts", "topk", "touched"),
    [
        (8, 128, 8, 51.6), (1, 128, 4, 4), (32, 128, 4, 81.7), (32, 384, 8, 188.2),
        (5, 8, 8, 8),
        (500_000, 128, 8, 128),  # more tokens than bins of tiles have room for
    ],
)  # fmt: skip
def test_random_routing_touches_experts(tokens, experts, topk, touched):
    """E (1 - (1 - k/E)^T) of them; gpt-oss-120b and Kimi K2 as published."""
    load, weight = _routing.loads(tokens, experts, topk, 1, "random")
    assert weight.sum() == pytest.approx(touched, abs=0.05)
    exact = experts * (1 - (1 - topk / experts) ** tokens)
    assert weight.sum() == pytest.approx(exact)
    assert load @ weight == pytest.approx(tokens * topk)
    assert load.max() <= tokens


@pytest.mark.parametrize(("tokens", "experts", "topk"), [(300, 16, 2), (40, 8, 4)])
@pytest.mark.parametrize("routing", ["random", "lognormal_1"])
def test_routing_by_chance_fills_tiles(
    tokens: int, experts: int, topk: int, routing: str
):
    """Tiles of binomial counts, by their terms."""
    load, weight = _routing.loads(tokens, experts, topk, 1, routing)
    for tile in (16, 32, 64, 128):
        tiles = sum(
            math.comb(tokens, n) * p**n * (1 - p) ** (tokens - n) * math.ceil(n / tile)
            for p in popular(experts, topk, float(routing == "lognormal_1"))
            for n in range(tokens + 1)
        )
        assert np.ceil(load / tile) @ weight == pytest.approx(tiles, rel=1e-9)


def popular(experts: int, topk: int, spread: float) -> list[float]:
    """Chances 1 - exp(-l w) that sum to topk, w lognormal at quantile mid-points."""
    middles = (np.arange(experts) + 0.5) / experts
    weights = np.exp(spread * scipy.stats.norm.ppf(middles))
    level: Any = scipy.optimize.brentq(
        lambda x: np.sum(1 - np.exp(-x * weights)) - topk, 0, 1e3, xtol=1e-13
    )
    if spread == 0:
        return [topk / experts] * experts
    return (1 - np.exp(-level * weights)).tolist()


def test_unequal_experts():
    """Fewer experts have a row, the fullest of them more; all tokens find theirs."""
    for tokens in (2, 8, 64, 4096):
        even, some, much = (
            _routing.loads(tokens, 128, 8, 1, x)
            for x in ("random", "lognormal_0.7", "lognormal_1.4")
        )
        for load, weight in (even, some, much):
            assert load @ weight == pytest.approx(8 * tokens)
        touched = [weight.sum() for _, weight in (even, some, much)]
        assert tokens > 64 or touched[0] > touched[1] > touched[2]
        assert even[0].max() < some[0].max() < much[0].max()
    load, weight = _routing.loads(8, 128, 8, 1, "lognormal_1")
    exact = sum(1 - (1 - p) ** 8 for p in popular(128, 8, 1.0))
    assert weight.sum() == pytest.approx(exact)
    assert exact == pytest.approx(43.6, abs=0.05)
    # of endlessly unequal experts all tokens take the same
    load, weight = _routing.loads(50, 128, 8, 1, "lognormal_999")
    np.testing.assert_allclose((weight.sum(), load.max()), (8, 50))


def test_the_most_loaded_rank_of_unequal_experts():
    """Of many tokens: what a rank's experts take of all rows, mean over placements."""
    chance = np.array(popular(64, 4, 1.0))
    rng = np.random.default_rng(3)
    most = [rng.permutation(chance).reshape(8, 8).sum(1).max() for _ in range(2000)]
    load, weight = _routing.loads(100_000, 64, 4, 8, "lognormal_1")
    assert load @ weight / 100_000 == pytest.approx(np.mean(most), rel=0.05)
    assert np.mean(most) > 1.3 * 4 / 8


@pytest.mark.parametrize(
    ("tokens", "experts", "topk", "ranks"),
    [(1, 128, 8, 8), (64, 128, 8, 8), (300, 32, 4, 4), (6000, 256, 8, 32)],
)
def test_the_most_loaded_rank_at_random(tokens, experts, topk, ranks):
    """Against tokens that draw their experts one by one."""
    rng = np.random.default_rng(7)
    most = []
    for _ in range(40):
        chosen = rng.random((tokens, experts)).argpartition(topk, axis=1)[:, :topk]
        on_rank = chosen // (experts // ranks)
        most.append(np.bincount(on_rank.ravel(), minlength=ranks).max())
    load, weight = _routing.loads(tokens, experts, topk, ranks, "random")
    got = load @ weight
    beyond = np.mean(most) - tokens * topk / ranks
    assert got - tokens * topk / ranks == pytest.approx(beyond, rel=0.25)
    assert weight.sum() <= experts / ranks


def launches(sample, phases, **arguments):
    """Shape records of a listing row: (experts, kernels over the rows)."""
    workload = phases([sample("moe", **arguments)])
    by_type = {
        type(shape): jax.tree.map(lambda x, real=group.count > 0: x[real], shape)
        for shape, group in zip(workload.shapes, workload.groups, strict=True)
    }
    return by_type[moe.Experts], by_type[moe.Rows]


@pytest.mark.parametrize(
    ("tokens", "ranks", "sorts"), [(4, 1, 0), (5, 1, 1), (4, 2, 1), (900, 1, 1)]
)
def test_few_rows_are_not_sorted(sample, phases, tokens: int, ranks: int, sorts: int):
    # 4 x 4 tokens x 8 choices = 128 experts
    shape = dict(hidden_size=64, inter_size=64, num_experts=128, topk=8)
    _, rows = launches(sample, phases, num_tokens=tokens, moe_ep_size=ranks, **shape)
    assert float(jnp.sum(rows.sorts)) == sorts


@pytest.mark.parametrize(
    ("dtype", "weights", "inner"),
    [("mxfp8", "mxfp4", 384), ("nvfp4", "", 368), ("bf16", "", 360)],
)
def test_narrow_experts_have_whole_blocks(sample, phases, dtype, weights, inner):
    # 2880 / 8 = 360 features; a trace of gpt-oss-120b on eight B200 has 384
    shape = dict(hidden_size=2880, inter_size=2880, num_experts=128, topk=4)
    shape |= dict(moe_tp_size=8, dtype=dtype, weight_dtype=weights)
    experts, _ = launches(sample, phases, num_tokens=16, **shape)
    sides = np.stack([experts.n, experts.k], 1).tolist()
    assert sorted(sides) == sorted([[2 * inner, 2880], [2880, inner]])


def test_idle_tiles_of_the_grid(sample, phases):
    # 64 tokens x 2 over 8 experts on 4 ranks: 32 rows and 2 tiles of 16 on each of 8
    # experts; the grid has min(128, (128 + 8 x 15)/16 = 15.5) tiles of rows
    experts, _ = launches(
        sample, phases, num_tokens=64, hidden_size=1024, inter_size=2048,
        num_experts=8, topk=2, moe_ep_size=4, tile_m=16, tile_n=64,
    )  # fmt: skip
    got = demand_of(moe, experts, H200).fixed_cycles[:, 0]
    local = 2 * 16 / 16  # two experts of 16 rows
    wide = np.sort(np.asarray(experts.n)) / 64
    idle = (15.5 - local) * wide
    assert np.sort(np.asarray(got)) == pytest.approx(
        Corrections().moe_empty * idle / 132
    )
