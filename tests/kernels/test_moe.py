"""Mixture of experts: tokens per expert, tiles, what all top-k rows pass through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import estimator
from diffenergy.corrections import Corrections
from diffenergy.hardware import load_gpu
from diffenergy.kernels import moe, stream
from diffenergy.kernels.moe import expert_counts

SIZES = [
    (1, 8, 2), (7, 8, 2), (256, 128, 8), (4096, 128, 8), (1000, 60, 4), (3, 256, 8)
]  # fmt: skip

lowered = jax.jit(moe.demand, compiler_options=estimator.compiler_options(once=True))


@pytest.mark.parametrize(("tokens", "experts", "topk"), SIZES)
@pytest.mark.parametrize(
    "distribution", ["balanced", "power_law_0.5", "power_law_1.0", "power_law_1.2"]
)
def test_counts(tokens: int, experts: int, topk: int, distribution: str):
    counts = expert_counts(tokens, experts, topk, distribution)
    assert counts.shape == (experts,) and counts.sum() == tokens * topk
    assert counts.min() >= 0 and counts.max() <= tokens
    assert np.all(np.diff(counts) >= 0)
    if distribution == "balanced":
        assert counts.max() - counts.min() <= 1


def test_a_steeper_law_is_less_even():
    spread = [
        expert_counts(4096, 128, 8, f"power_law_{a}").std() for a in (0.5, 1.0, 1.5)
    ]
    assert spread == sorted(spread) and spread[0] > 0


def test_unknown_distribution():
    with pytest.raises(ValueError, match="`distribution` is 'uniform'"):
        expert_counts(8, 8, 2, "uniform")


def launches(sample, phases, **given):
    """Shape records of a listing row: (experts, streams)."""
    workload = phases([sample("moe", **given)])
    by_type = {type(shape): shape for shape in workload.shapes}
    return by_type[moe.Experts], by_type[stream.Stream]


@pytest.mark.parametrize(
    ("given", "active", "rows", "tiles"),
    [
        ({"num_tokens": 256}, 128, 2048, (128, 128, 128, 128)),  # 16 tokens per expert
        (
            {"num_tokens": 4096, "moe_ep_size": 8, "dtype": "fp8"},
            16,
            4096,
            (256, 128, 64, 32),
        ),
    ],
)
def test_published_counts(sample, phases, given, active, rows, tiles):
    shape = dict(hidden_size=2048, inter_size=768, num_experts=128, topk=8)
    experts, _ = launches(sample, phases, **(shape | given))
    assert jnp.sum(experts.weight, -1).tolist() == [active, active]
    assert jnp.sum(experts.weight * experts.tokens, -1).tolist() == [rows, rows]
    assert sorted(zip(experts.n.tolist(), experts.k.tolist(), strict=True)) == [
        (1536.0, 2048.0),  # gate and up
        (2048.0, 768.0),  # down
    ]
    ctas = lowered(experts, load_gpu("h200-sxm"), Corrections()).ctas
    wide = np.ceil(np.asarray(experts.n)[:, None] / np.array([64, 64, 128, 128]))
    assert np.asarray(ctas / wide).tolist() == [list(tiles)] * 2


def test_element_wise_work_covers_all_rows(sample, phases):
    shape = dict(hidden_size=2048, inter_size=768, num_experts=128, topk=8)
    for ranks in (1, 8):
        _, streams = launches(
            sample, phases, num_tokens=256, moe_ep_size=ranks, **shape
        )
        # M k (10 I + 4 h) + 4 M h = 34.6 MB
        total = float(jnp.sum(streams.read + streams.write))
        assert total == 2048 * (10 * 768 + 4 * 2048) + 4 * 256 * 2048


def test_flop_of_full_tiles(sample, phases):
    # 1,024 tokens x 2 over 8 experts: 256 rows each; 6 h I FLOP a row
    experts, _ = launches(
        sample, phases, num_tokens=1024, hidden_size=1024, inter_size=2048,
        num_experts=8, topk=2, tile_m=128, tile_n=128,
    )  # fmt: skip
    demand = lowered(experts, load_gpu("h200-sxm"), Corrections())
    assert float(jnp.sum(demand.tensor[:, 0])) == 2048 * 6 * 1024 * 2048


@pytest.mark.parametrize(
    ("given", "word"),
    [({"moe_ep_size": 3}, "moe_ep_size"), ({"topk": 9}, "topk")],
)
def test_impossible_routing(sample, phases, given, word: str):
    with pytest.raises(ValueError, match=f"`{word}`|`num_experts`"):
        phases([sample("moe", num_experts=8, **given)])
