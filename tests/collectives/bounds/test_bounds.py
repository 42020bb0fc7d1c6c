"""Lower bounds against published epochs, figures known to be least, and hand sums."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Demand, Topology
from diffenergy.collectives._bounds import cut_bound, epoch_bound, second_bound
from diffenergy.collectives._duals import flow_bound
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._milp import least_finish
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.collectives._simulate import run_epochs
from diffenergy.collectives._verify import verify

from ..machine.c3_machines import (
    GB,
    all_gather,
    all_to_all,
    blocks,
    dgx1,
    gpu_nodes,
    machine,
    ndv2_2,
    ndv2_4,
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
    """Each GPU receives 2 (n - 1) / n of the buffer; where a switch adds up n - 1
    blocks pass each way in and the last one to be complete has still to go out."""
    plain, adding = star(8), star(8, reduces=True)
    time = 0.8 * GB / 100e9
    assert second_bound(sums(plain, 0.8 * GB, True), plain) == pytest.approx(
        2 * 7 / 8 * time, rel=1e-3
    )
    assert second_bound(sums(adding, 0.8 * GB, True), adding) == pytest.approx(
        time, rel=1e-3
    )


def test_all_reduce_between_chassis() -> None:
    """1 GB over the one link of 12.5 GB/s each way; four chassis receive each sum 6
    times over 4 links."""
    two, four = ndv2_2(), ndv2_4()
    assert second_bound(sums(two, GB, True), two) == pytest.approx(80.0013e-3)
    assert second_bound(sums(four, GB, True), four) == pytest.approx(120.0013e-3)


def test_what_leaves_one_gpu_counts() -> None:
    """24 of 32 blocks of a scatter leave chassis 0 over one link of 12.5 GB/s."""
    topology = ndv2_4()
    whole = all_to_all(topology, GB)
    keep = whole.source == 0
    columns = [column[keep] for column in dataclasses.astuple(whole)[1:]]
    demand = Demand("scatter", *columns)
    bound = second_bound(demand, topology)
    assert bound == pytest.approx(24 * GB / 32 / 12.5e9 + 2.6e-6)
    assert verify(greedy(topology, demand, bound=bound)) >= bound * (1 - 1e-9)


@pytest.mark.parametrize("count", [4, 5, 8])
def test_all_reduce_on_a_ring_meets_its_bound(count: int) -> None:
    """Each GPU receives 2 (n - 1) blocks over two links."""
    topology = ring(count, latency=0.0)
    demand = sums(topology, 1e6 * count, True)
    bound = second_bound(demand, topology)
    assert bound >= (count - 1) * 1e6 / 50e9 * (1 - 1e-9)
    schedule = greedy(topology, demand, bound=bound, effort=Effort(4, 8))
    assert bound <= verify(schedule) * (1 + 1e-9)
    if count == 8:
        assert verify(schedule) == pytest.approx(bound)


@pytest.mark.parametrize(
    "topology, hops, links",
    [(ring(8, 0.0), 8 * 16, 16), (torus(3, 3), 9 * 12, 36), (torus(4, 4), 512, 64)],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.slow
def test_all_to_all_by_volume_and_distance(
    topology: Topology, hops: int, links: int
) -> None:
    """Blocks times links that they pass, shared out among all links."""
    demand = all_to_all(topology, 1e6 * len(topology.gpus))
    fill = hops * 1e6 / (links * 50e9)
    bound = second_bound(demand, topology)
    latency = float(topology.latencies[0])
    assert bound == pytest.approx(fill + latency)
    if len(topology.gpus) < 10:
        schedule = greedy(topology, demand, bound=bound)
        assert verify(schedule) <= bound + 2 * latency + 1e-12


def small_machine(seed: int) -> Topology:
    """Four GPUs, a ring that leads everywhere and links at random, 1 or 2 GB/s."""
    rng = np.random.default_rng(seed)
    pairs = {(i, (i + 1) % 4) for i in range(4)}
    pairs |= {tuple(rng.choice(4, 2, replace=False).tolist()) for _ in range(4)}
    edges = [(a, b, float(rng.integers(1, 3)), 0.0) for a, b in sorted(pairs)]
    return machine(f"small-{seed}", gpu_nodes(4, 2), edges, 4)


@pytest.mark.parametrize(
    "seed, kind", [(0, "gather"), (1, "to_all"), (2, "some"), (3, "some")]
)
def test_never_above_the_least_finish(seed: int, kind: str) -> None:
    """Least epochs by integer programming, as seconds of a verified schedule."""
    topology = small_machine(seed)
    demand = all_gather(topology, 4 * GB)
    if kind != "gather":
        demand = all_to_all(topology, 4 * GB)
    if kind == "some":
        keep = np.random.default_rng(seed).random(len(demand.size)) < 0.4
        keep[0] = True
        demand = Demand("custom", *(c[keep] for c in dataclasses.astuple(demand)[1:]))
    model = epoch_model(topology, GB, 0.5)
    found = least_finish(topology, demand, model, high=40)
    assert found.schedule is not None and found.schedule.epochs is not None
    finish = verify(run_epochs(found.schedule, model))
    least = found.schedule.epochs
    assert epoch_bound(demand, topology, model) <= least
    assert epoch_bound(demand, topology, model, whole=False) <= least
    for whole in (True, False):
        assert second_bound(demand, topology, whole) <= finish * (1 + 1e-9)
    assert cut_bound(demand, topology) <= finish * (1 + 1e-6)
    assert flow_bound(demand, topology) <= finish * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_all_reduce_never_above_a_schedule(seed: int) -> None:
    topology = small_machine(seed)
    demand = sums(topology, 4 * GB, True)
    schedule = greedy(topology, demand, effort=Effort(4, 8))
    finish = verify(schedule) * (1 + 1e-9)
    assert second_bound(demand, topology) <= finish
    assert second_bound(demand, topology, whole=False) <= finish


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
        second_bound(blocks(topology, [(1, 0)], GB), topology)


def test_bound_of_a_large_torus_is_quick_and_by_volume() -> None:
    """127 chunks over 4 links into each of 128 GPUs: 32 rounds."""
    topology = torus(8, 16)
    demand = all_gather(topology, GB)
    chunk = GB / 128
    bound = second_bound(demand, topology)
    assert bound >= 127 * chunk / 200e9
    assert bound <= 32 * chunk / 50e9 + 16 * 0.5 * us
