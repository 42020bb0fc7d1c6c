"""Replay in continuous time: closed forms, gradients, what-if rates, pruning."""

import dataclasses

import numpy as np
import pytest

from diffenergy.collectives import Demand, Schedule, Topology
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._order import finish_time
from diffenergy.collectives._routes import epoch_length
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._simulate import order_of, prune, retime

from ..machine.c3_machines import (
    all_gather,
    all_to_all,
    blocks,
    check,
    gpu_nodes,
    machine,
    ndv2_2,
    star,
    sums,
    us,
)


def by_hand(
    topology: Topology, demand: Demand, rows: list[tuple[int, int, float, float]]
) -> Schedule:
    """Schedule of (block, link, start, end)."""
    block, link, start, end = map(np.array, zip(*rows, strict=True))
    phase = np.zeros(len(rows), int)
    sends = Sends(block, link, start, end, demand.size[block], phase)
    return Schedule(topology, demand, sends)


def chain() -> tuple[Topology, Demand, Schedule]:
    """Two chunks of 1 MB over gpu0 -> gpu1 (10 GB/s, 3 us) -> gpu2 (20 GB/s, 5 us),
    with idle time everywhere."""
    edges = [(0, 1, 10.0, 3.0), (1, 2, 20.0, 5.0)]
    topology = machine("chain", gpu_nodes(3, 3), edges, 1)
    demand = blocks(topology, [(0, 2), (0, 2)])
    rows = [(0, 0, 1.0, 1.5), (1, 0, 2.0, 2.5), (0, 1, 3.0, 3.5), (1, 1, 4.0, 4.5)]
    return topology, demand, by_hand(topology, demand, rows)


def test_chain_by_hand() -> None:
    """100 us a chunk on the first link, then 3 us, 50 us and 5 us."""
    tight = retime(chain()[2])
    expected = np.array([0.0, 100.0, 103.0, 203.0]) * us
    np.testing.assert_allclose(tight.sends.start, expected)
    assert tight.sends.end.max() == pytest.approx(258 * us)
    assert check(tight) == pytest.approx(258 * us)


def test_chain_gradient_by_hand() -> None:
    """Finish = 2 b / r0 + a0 + b / r1 + a1."""
    topology, _, schedule = chain()
    order = order_of(schedule)
    found = finish_time(order, topology.rates, topology.latencies)
    np.testing.assert_allclose(found.by_latency, [1.0, 1.0])
    np.testing.assert_allclose(found.by_rate, [-2e6 / 10e9, -1e6 / 20e9])


def jittered(topology: Topology) -> Topology:
    """Rates and latencies without ties, so that finite differences are defined."""
    rng = np.random.default_rng(3)
    links = tuple(
        dataclasses.replace(
            link,
            rate=link.rate * rng.uniform(0.9, 1.1),
            latency=link.latency * rng.uniform(0.9, 1.1),
        )
        for link in topology.links
    )
    return dataclasses.replace(topology, links=links)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("published", marks=pytest.mark.slow),
        "sums",
        pytest.param("gather", marks=pytest.mark.slow),
        pytest.param("switch", marks=pytest.mark.slow),
    ],
)
def test_gradient_against_finite_differences(kind: str) -> None:
    topology = jittered(
        {
            "gather": ndv2_2(),
            "published": ndv2_2(published=True),
            "switch": star(5),
            "sums": star(4, reduces=True),
        }[kind]
    )
    demand = sums(topology, 4e6, True) if kind == "sums" else all_gather(topology, 16e6)
    schedule = greedy(topology, demand, effort=Effort(1, 2))
    order = order_of(schedule)
    rates, latencies = topology.rates, topology.latencies
    found = finish_time(order, rates, latencies)
    gradient = found.by_rate / rates, found.by_latency
    timed = retime(schedule)
    assert found.time == pytest.approx(float(timed.sends.end.max()), rel=1e-12)
    used = np.unique(schedule.sends.link)
    for which, base in enumerate((rates, latencies)):
        for link in used[:: max(1, len(used) // 12)]:
            step = np.zeros_like(base)
            step[link] = 1e-5 * base[link]
            up, down = (
                finish_time(order, *(b + s * step if n == which else b for n, b in
                                     enumerate((rates, latencies)))).time
                for s in (1, -1)
            )  # fmt: skip
            slope = (up - down) / (2 * step[link])
            assert abs(gradient[which][link] - slope) <= 1e-6 * found.time / base[link]


def test_rates_and_latencies_scale_the_finish() -> None:
    """Rates times k and latencies over k: the finish over k."""
    topology = ndv2_2()
    schedule = greedy(topology, all_gather(topology, 1e6), effort=Effort(1, 2))
    order = order_of(schedule)
    finish = retime(schedule).sends.end.max()
    for factor in (0.5, 1.0, 4.0):
        rates, latencies = topology.rates * factor, topology.latencies / factor
        found = finish_time(order, rates, latencies)
        assert found.time == pytest.approx(finish / factor, rel=1e-9)


@pytest.mark.parametrize("topology", [ndv2_2(True), star(4, copy=False)])
def test_replay_never_delays_and_then_rests(topology: Topology) -> None:
    """Stretched schedules come back; a tight one stays."""
    demand = all_to_all(topology, 1e6)
    schedule = greedy(topology, demand, effort=Effort(1, 1))
    again = retime(schedule)
    np.testing.assert_allclose(again.sends.start, schedule.sends.start, atol=1e-15)
    assert (again.sends.end <= schedule.sends.end + 1e-15).all()
    check(again)


def test_epochs_become_real_times() -> None:
    """Slow epochs waste three quarters of a fast link; the replay does not."""
    topology = ndv2_2(published=True)
    demand = all_gather(topology, 1e9)
    tau = epoch_length(topology, demand.size[0], "slowest")
    schedule = greedy(topology, demand, tau, bound=10)
    assert schedule.epochs == 10
    assert check(schedule) < 10 * tau


def test_prune_leaves_out_what_nobody_needs() -> None:
    """A chunk brought back to its source, one brought twice, and one sent on to a GPU
    that does not want it."""
    edges = [(0, 1, 10.0, 0.0), (1, 0, 10.0, 0.0), (1, 2, 10.0, 0.0)]
    topology = machine("prune", gpu_nodes(3, 3), edges, 1)
    demand = blocks(topology, [(0, 1)])
    took = 1e-4
    starts = [(0, 0), (0, 1), (1, 1), (2, 1)]  # link, round
    rows = [(0, link, turn * took, (turn + 1) * took) for link, turn in starts]
    left = prune(by_hand(topology, demand, rows))
    assert left.sends.link.tolist() == [0] and left.sends.start.tolist() == [0.0]


def test_prune_keeps_every_needed_send() -> None:
    topology = ndv2_2(published=True)
    schedule = greedy(topology, all_gather(topology, 1e6), effort=Effort(1, 2))
    assert len(prune(schedule).sends) == len(schedule.sends)
