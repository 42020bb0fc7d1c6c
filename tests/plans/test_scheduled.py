"""Collectives on machines without one switch, against closed forms of their links."""

from typing import Any

import pytest

import diffenergy as de
from diffenergy.hardware import read_gpu
from diffenergy.plans import Host, Plan, collective_row, exchange_groups, host_of
from diffenergy.plans._host import line, pairs, teams

RING = 50e9
"""B/s of a link of a ring, each way."""


@pytest.mark.parametrize(
    ("kind", "share"),
    [  # of the buffer over two links; of all to all quarters go 1, 1 and 2 links far
        ("all_gather", 3 / 4), ("reduce_scatter", 3 / 4), ("all_reduce", 2 * 3 / 4),
        ("custom_all_reduce", 2 * 3 / 4), ("all_to_all", 4 / 4),
    ],
)  # fmt: skip
def test_a_ring(kind: str, share: float):
    latency, each = line("ring-4", kind, ((0, 1, 2, 3),))
    assert each == pytest.approx(share / (2 * RING), rel=1e-3)
    assert 0.7e-6 < latency < 4 * 0.7e-6  # of one link to all of four


@pytest.mark.slow
def test_groups_run_at_once():
    """Neighbours have a link of their own; (0, 2), (1, 3), ... share theirs."""
    _, alone = line("ring-8", "all_gather", teams(8, 2, 1))
    assert alone == pytest.approx(0.5 / RING, rel=1e-3)
    _, among = line("ring-8", "all_gather", teams(8, 2, 2))
    assert among > 1.3 * alone
    assert line("ring-8", "send_recv", pairs(8, 1)) == pytest.approx((0.7e-6, 1 / RING))


def test_who_meets():
    """tp first, then dp, last pp, on the 16 GPUs of a grid."""
    host = host_of(read_gpu("h100-sxm"), "mesh-4")
    assert (host.size, host.hosts, host.rate) == (16, 1, None)
    result = exchange_groups(Plan(tp=2, dp=4, pp=2), host)
    assert result["tp"].teams[:2] == ((0, 1), (2, 3)) and len(result["tp"].teams) == 8
    assert result["dp"].teams[:2] == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert result["pp"].teams == tuple((i, i + 8) for i in range(8))


def test_an_exchange_is_a_send_at_the_rate_of_its_schedule():
    result = exchange_groups(Plan(tp=8), Host("ring-8", 8, machine="ring-8"))["tp"]
    for kind, times in (("all_gather", 1), ("all_reduce", 2)):
        (row,) = collective_row(kind, 1e9, result, "bf16").rows
        latency, each = line("ring-8", kind, result.teams)
        assert row["collective"] == "send_recv" and row["num_gpus"] == 2
        assert row["bytes"] == pytest.approx(times * 7 / 8 * 1e9)
        seconds = row["bytes"] / row["link_rate"]
        assert seconds == pytest.approx(latency + each * 1e9)


@pytest.mark.slow
def test_slow_links_make_long_steps():
    """Llama on a switch of 450 GB/s, and on a torus whose GPUs have 3 links of 50."""
    request: Any = dict(phase="prefill", input_len=2048, plan="tp=4,pp=2")
    switch, torus = (
        de.estimate("llama-3.1-8b", "h100-sxm", topology=x, **request).summary
        for x in ("dgx-h100", "torus-4x2")
    )
    assert torus["time_s"] > switch["time_s"]
    switch, torus = (x["communication"] for x in (switch, torus))
    assert torus["tp"]["total_s"] > 2 * switch["tp"]["total_s"]
    assert torus["pp"]["total_s"] > 2 * switch["pp"]["total_s"]
    _, each = line("torus-4x2", "all_reduce", teams(8, 4, 1))
    sums = 2 * 32 + 1  # two a layer, and the look-up
    least = sums * each * 2048 * 4096 * 2
    assert least < torus["tp"]["total_s"] < 1.6 * least
    step = de.estimate(
        "gpt2", "h100-sxm", phase="train", topology="torus-4x2", plan="tp=4,dp=2"
    ).summary
    assert step["communication"]["dp"]["total_s"] > 0
