"""Who meets in a host, and what passes between hosts, by hand."""

import math

import pytest

from diffenergy.plans import ExchangeGroup, Host, Plan, collective_row, exchange_groups
from diffenergy.plans._exchange import group


@pytest.mark.parametrize(
    ("ranks", "stride", "local", "hosts"),
    [(8, 1, 8, 1), (16, 1, 8, 2), (16, 2, 4, 4), (4, 8, 1, 4), (64, 4, 2, 32)],
)
def test_gpus_of_a_host_meet(ranks: int, stride: int, local: int, hosts: int):
    found = group(ranks, stride, 8)
    assert (found.local, found.hosts) == (local, hosts)


def test_groups_of_a_plan():
    """tp first, then cp, dp, pp: 4 x 2 x 16 x 2 GPUs in hosts of 8."""
    host = Host("x", 8)
    found = exchange_groups(Plan(tp=4, cp=2, dp=16, pp=2), host)
    assert found["tp"] == ExchangeGroup(4, 4)
    assert found["cp"] == ExchangeGroup(2, 2)
    assert found["dp"] == ExchangeGroup(32, 2)  # one every 4: two in a host
    assert found["pp"] == ExchangeGroup(2, 1)
    assert exchange_groups(Plan(tp=2, pp=4), host)["pp"] == ExchangeGroup(
        2, 2
    )  # all in one host
    moe = exchange_groups(Plan(tp=2, dp=32, ep=16, etp=1), host)
    assert moe["ep"] == ExchangeGroup(16, 8)
    assert moe["experts"] == ExchangeGroup(4, 1)  # 64 / 16 copies, one every 16


@pytest.mark.parametrize(
    ("kind", "bytes_"),
    [
        ("all_gather", 1e9 * 3 / 4 / 4),  # three of four hosts' parts by four cards
        ("reduce_scatter", 1e9 * 3 / 4 / 4),
        ("all_reduce", 2e9 * 3 / 4 / 4),
        ("all_to_all", 1e9 * 12 / 16),  # all that 12 of 16 others get
    ],
)
def test_bytes_between_hosts(kind: str, bytes_: float):
    found = collective_row(kind, 1e9, ExchangeGroup(16, 4), "bf16")
    assert found.far == pytest.approx(bytes_)
    assert found.hops == pytest.approx(math.log2(5))
    (row,) = found.rows
    assert row["num_gpus"] == 4
    share = 4 / 16 if kind == "all_to_all" else 1
    assert row["bytes"] == pytest.approx(share * 1e9)


def test_one_host_and_one_gpu():
    inside = collective_row("all_gather", 1e6, ExchangeGroup(8, 8), "bf16")
    assert inside.far == inside.hops == 0 and len(inside.rows) == 1
    assert collective_row("all_gather", 1e6, ExchangeGroup(1, 1), "bf16").rows == ()
    apart = collective_row("send_recv", 1e6, ExchangeGroup(2, 1), "bf16")
    assert apart.rows == () and apart.far == 1e6
