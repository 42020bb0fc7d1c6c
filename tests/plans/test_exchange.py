"""Who meets in a host, and what passes between hosts, by hand."""

import dataclasses
import math

import numpy as np
import pytest

from diffenergy.plans import ExchangeGroup, Host, Plan, collective_row, exchange_groups
from diffenergy.plans._exchange import Dispatch, group, reached_groups


def test_groups_of_a_plan():
    """tp first, then cp, dp, pp: 4 x 2 x 16 x 2 GPUs in hosts of 8."""
    for ranks, stride, *expected in ((8, 1, 8, 1), (16, 2, 4, 4), (4, 8, 1, 4)):
        result = group(ranks, stride, 8)
        assert [result.local, result.hosts] == expected
    host = Host("x", 8)
    result = exchange_groups(Plan(tp=4, cp=2, dp=16, pp=2), host)
    assert result["tp"] == ExchangeGroup(4, 4)
    assert result["cp"] == ExchangeGroup(2, 2)
    assert result["dp"] == ExchangeGroup(32, 2)  # one every 4: two in a host
    assert result["pp"] == ExchangeGroup(2, 1)
    inside = exchange_groups(Plan(tp=2, pp=4), host)
    assert inside["pp"] == ExchangeGroup(2, 2)  # all in one host
    moe = exchange_groups(Plan(tp=2, dp=32, ep=16, etp=1), host)
    assert moe["ep"] == ExchangeGroup(16, 8)
    assert moe["experts"] == ExchangeGroup(4, 1)  # 64 / 16 copies, one every 16


def test_bytes_between_hosts():
    for kind, far, share in (
        ("all_gather", 3 / 4 / 4, 1),  # three of four hosts' parts by four cards
        ("reduce_scatter", 3 / 4 / 4, 1), ("all_reduce", 2 * 3 / 4 / 4, 1),
        ("all_to_all", 12 / 16, 4 / 16),  # all that 12 of 16 others get
    ):  # fmt: skip
        result = collective_row(kind, 1e9, ExchangeGroup(16, 4), "bf16")
        assert result.far == pytest.approx(far * 1e9)
        assert result.hops == pytest.approx(math.log2(5))
        (row,) = result.rows
        assert (row["num_gpus"], row["bytes"]) == (4, pytest.approx(share * 1e9))
    inside = collective_row("all_gather", 1e6, ExchangeGroup(8, 8), "bf16")
    assert inside.far == inside.hops == 0 and len(inside.rows) == 1
    assert collective_row("all_gather", 1e6, ExchangeGroup(1, 1), "bf16").rows == ()
    apart = collective_row("send_recv", 1e6, ExchangeGroup(2, 1), "bf16")
    assert apart.rows == () and apart.far == 1e6


@pytest.mark.parametrize(
    ("experts", "groups", "chosen", "wanted"),
    [(256, 8, 8, 5.29), (128, 2, 8, 1.99), (128, 64, 4, 3.95)],
)
def test_groups_that_a_token_reaches(experts, groups, chosen, wanted: float):
    """As drawn at random, too."""
    assert reached_groups(experts, groups, chosen) == pytest.approx(wanted, abs=0.005)
    draw = np.random.default_rng(1).random((20_000, experts)).argsort(1)[:, :chosen]
    drawn = np.mean([len(set(x)) for x in (draw * groups // experts).tolist()])
    assert reached_groups(experts, groups, chosen) == pytest.approx(drawn, rel=0.01)


def test_rows_go_once_to_a_host_and_a_gpu():
    """DeepSeek-V3 on 2,048 H800: 4,096 tokens of 7,168 values, 64 GPUs in 8 hosts, at
    most 4 of them: 96 MB out in 8 bits and 186 back in 16 over the network card, where
    a row to each expert in 16 bits takes 411."""
    size = 4096 * 7168 * 8 * 2.0
    plain = ExchangeGroup(64, 8)
    assert plain.far("all_to_all", size) / 1e6 == pytest.approx(411, abs=0.5)
    for width, wanted in ((1 + 4 / 128, 96), (2.0, 186)):
        result = dataclasses.replace(plain, dispatch=Dispatch(256, 8, 4, width))
        assert result.far("all_to_all", size) / 1e6 == pytest.approx(wanted, abs=0.5)
    # within a host: to D(32) GPUs of 4 hosts with 128 experts, 7 of 8 others
    reached = 32 * (1 - math.comb(124, 8) / math.comb(128, 8))
    row = collective_row("all_to_all", size, result, "bf16").rows[0]
    assert row["bytes"] == pytest.approx(4096 * 7168 * 2 * reached)
