"""Lower bounds against published epochs, figures known to be least, and hand sums."""

import csv
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives.bounds import cut_bound, epoch_bound, second_bound
from diffenergy.collectives.epochs import epoch_length, epoch_model

from .c3_machines import (
    GB,
    all_gather,
    all_to_all,
    dgx1,
    gpu_nodes,
    machine,
    ndv2_2,
    ring,
    star,
    sums,
    torus,
    us,
)


def published(shared: Path, collective: str) -> list[dict[str, str]]:
    """Fast and slow rows of the published results."""
    with open(shared / "data/teccl/goldens_ndv2_2chassis.csv") as file:
        rows = list(csv.DictReader(file))
    kinds = ("Fast", "Slow")
    return [
        r for r in rows if r["collective"] == collective and r["epoch_type"] in kinds
    ]


@pytest.mark.shared_data
def test_all_gather_bounds_are_the_published_epochs(shared: Path) -> None:
    topology = ndv2_2(published=True)
    rows = published(shared, "AllGather")
    assert len(rows) == 22
    for row in rows:
        demand = all_gather(topology, float(row["output_buffer_bytes"]))
        model = epoch_model(topology, demand.size[0], float(row["epoch_s"]))
        assert epoch_bound(demand, topology, model) == int(row["epochs"]), row


@pytest.mark.shared_data
def test_all_to_all_bounds_stay_below_the_published_runs(shared: Path) -> None:
    topology = ndv2_2(published=True)
    for row in published(shared, "AlltoAll"):
        demand = all_to_all(topology, float(row["output_buffer_bytes"]))
        model = epoch_model(topology, demand.size[0], float(row["epoch_s"]))
        bound = epoch_bound(demand, topology, model, whole=False)
        assert 0.88 * int(row["epochs"]) - 64 <= bound <= int(row["epochs"]), row


@pytest.mark.parametrize("is_published", [True, False])
@pytest.mark.parametrize("kind, epochs", [("fastest", 35), ("slowest", 10)])
def test_two_chassis_at_1_gb(is_published: bool, kind: str, epochs: int) -> None:
    """8 chunks pass gpu8 -> gpu1, then two hops: 34 and 9 epochs are infeasible."""
    topology = ndv2_2(is_published)
    demand = all_gather(topology, GB)
    tau = epoch_length(topology, demand.size[0], kind)
    model = epoch_model(topology, demand.size[0], tau)
    assert epoch_bound(demand, topology, model) == epochs


@pytest.mark.parametrize("kind, epochs", [("fastest", 225), ("slowest", 57)])
def test_all_to_all_flow_at_1_gb(kind: str, epochs: int) -> None:
    """56 chunks pass gpu0 -> gpu9 and the first is at gpu0 after an epoch."""
    topology = ndv2_2(published=True)
    demand = all_to_all(topology, GB)
    tau = epoch_length(topology, demand.size[0], kind)
    model = epoch_model(topology, demand.size[0], tau)
    assert epoch_bound(demand, topology, model, whole=False) == epochs


def test_sixteen_gpus_all_to_all_in_seconds() -> None:
    """64 chunks of 62.5 MB over 12.5 GB/s and 1.3 us."""
    topology = ndv2_2()
    demand = all_to_all(topology, GB)
    for whole in (True, False):
        assert second_bound(demand, topology, whole) == pytest.approx(0.3200013)


@pytest.mark.parametrize(
    "tau, latency, least",
    [
        (1.0, 0.0, [2, 3, 4, 5, 6, 7]),
        (1.0, 0.7, [4, 5, 6, 6, 7, 8]),
        (0.5, 0.0, [3, 5, 8]),
        (0.5, 0.7, [7, 9, 10]),
    ],
)
def test_dgx1_bounds_and_least_epochs(
    tau: float, latency: float, least: list[int]
) -> None:
    """25 KB chunks: never above the proven figures, at most one below, and equal with
    latency 0."""
    topology = dgx1(latency)
    found = []
    for chunks in range(1, len(least) + 1):
        demand = all_gather(topology, 8 * 25e3 * chunks, chunks)
        model = epoch_model(topology, 25e3, tau * us)
        found.append(epoch_bound(demand, topology, model))
    gap = np.array(least) - found
    assert gap.min() >= 0 and gap.max() <= 1
    assert latency > 0 or not gap.any()


def test_dgx1_all_to_all() -> None:
    """The LP is feasible at 4 epochs of 1 us and not at 3."""
    topology = dgx1()
    demand = all_to_all(topology, 8 * 25e3)
    model = epoch_model(topology, 25e3, 1 * us)
    assert epoch_bound(demand, topology, model) == 4
    assert epoch_bound(demand, topology, model, whole=False) <= 4


def test_ring_by_hand() -> None:
    """4 GPUs, 1.25 ms a chunk: 3 chunks into each GPU over two links, two hops to the
    far side; cut up they fill both links from the first latency on."""
    topology = ring(4)
    demand = all_gather(topology, 250e6)
    assert second_bound(demand, topology) == pytest.approx(2 * (1.25e-3 + 0.7 * us))
    fluid = 3 * 62.5e6 / 100e9 + 0.7 * us
    assert second_bound(demand, topology, whole=False) == pytest.approx(fluid)
    assert cut_bound(demand, topology) == pytest.approx(3 * 62.5e6 / 100e9)


def test_switch_is_cut_through() -> None:
    """8 GPUs on a switch: 7 chunks of 1 ms in a row and two latencies."""
    topology = star(8)
    demand = all_gather(topology, 0.8 * GB)
    assert second_bound(demand, topology) == pytest.approx(7e-3 + 0.7 * us)


def test_reductions_are_bounded_on_the_reversed_machine() -> None:
    """NDv2's one-way links: what leaves chassis 1 of the reversed machine enters it."""
    topology = ndv2_2()
    scatter = sums(topology, GB, everywhere=False)
    reverse = topology.reversed()
    assert second_bound(scatter, topology) == pytest.approx(
        second_bound(all_gather(reverse, GB), reverse)
    )


def test_all_reduce_needs_two_rounds_without_reducing_switches() -> None:
    """2 (n - 1) / n of the buffer into each GPU; a switch that adds up needs n - 1."""
    plain, adding = star(8), star(8, reduces=True)
    time = 0.8 * GB / 100e9
    assert second_bound(sums(plain, 0.8 * GB, True), plain) == pytest.approx(
        2 * 7 / 8 * time, rel=1e-3
    )
    assert second_bound(sums(adding, 0.8 * GB, True), adding) == pytest.approx(
        7 / 8 * time, rel=1e-3
    )


def test_cut_inside_the_machine() -> None:
    """Max-flow finds the neck that no GPU's own links show: two pairs over one link."""
    edges = [
        (a, b, rate, 0.0)
        for x, y, rate in [(0, 1, 100.0), (1, 2, 10.0), (2, 3, 100.0)]
        for a, b in ((x, y), (y, x))
    ]
    topology = machine("line", gpu_nodes(4, 4), edges, 4)
    demand = all_gather(topology, 4e9)
    # gpu2 and gpu3 want two chunks of 1 GB over 10 GB/s.
    assert cut_bound(demand, topology) == pytest.approx(0.2, rel=1e-5)


def test_unreachable_taker() -> None:
    topology = machine("one-way", gpu_nodes(2, 2), [(0, 1, 10.0, 1.0)], 2)
    with pytest.raises(ValueError, match="cannot reach"):
        second_bound(all_gather(topology, GB), topology)


def test_bound_of_a_large_torus_is_quick_and_by_volume() -> None:
    """127 chunks over 4 links into each of 128 GPUs: 32 rounds."""
    topology = torus(8, 16)
    demand = all_gather(topology, GB)
    chunk = GB / 128
    bound = second_bound(demand, topology)
    assert bound >= 127 * chunk / 200e9
    assert bound <= 32 * chunk / 50e9 + 16 * 0.5 * us
