"""List scheduling: right by a plain replay, and as fast as published or bounded."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Search, Topology, plan
from diffenergy.collectives._bounds import epoch_bound, second_bound
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.collectives._verify import verify

from ..bounds.test_bounds import published
from ..machine.c3_machines import (
    GB,
    all_gather,
    all_to_all,
    blocks,
    check,
    dgx1,
    dgx2_2,
    gpu_nodes,
    machine,
    ndv2_2,
    ndv2_4,
    one_to_all,
    ring,
    star,
    sums,
    torus,
)

MACHINES = [
    dgx1(),
    ndv2_2(),
    ndv2_2(published=True),
    star(6),
    star(6, copy=False),
    star(6, reduces=True),
    ring(5),
    torus(3, 4),
]
QUICK = Effort(batches=1, restarts=4)


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(x, marks=pytest.mark.slow) if x.name == "ndv2-2-published" else x
        for x in MACHINES
    ],
    ids=lambda t: t.name,
)
@pytest.mark.parametrize("kind", ["gather", "to_all", "one", "scatter", "reduce"])
@pytest.mark.parametrize("epochs", [False, True])
def test_every_schedule_replays(topology: Topology, kind: str, epochs: bool) -> None:
    size = 1e6
    demand = {
        "gather": lambda: all_gather(topology, size, 2),
        "to_all": lambda: all_to_all(topology, size),
        "one": lambda: one_to_all(topology, size),
        "scatter": lambda: sums(topology, size, False),
        "reduce": lambda: sums(topology, size, True),
    }[kind]()
    tau = epoch_length(topology, demand.size[0]) if epochs else None
    schedule = greedy(topology, demand, tau, effort=QUICK)
    # In a switch that adds up two sums of a block can pass at once: `verify` tells them
    # apart.
    adds = any(node.reduces for node in topology.nodes)
    finish = verify(schedule) if adds else check(schedule)
    assert finish >= second_bound(demand, topology) * (1 - 1e-9)
    assert schedule.epoch == (tau if kind != "to_all" else None)


@pytest.mark.slow
@pytest.mark.shared_data
def test_reaches_every_published_all_gather(shared: Path) -> None:
    topology = ndv2_2(published=True)
    for row in published(shared, "AllGather"):
        demand = all_gather(topology, float(row["output_buffer_bytes"]))
        tau, least = float(row["epoch_s"]), int(row["epochs"])
        schedule = greedy(topology, demand, tau, bound=least)
        assert schedule.epochs == least, row
        # Epochs drop latencies below a tenth of an epoch: at most 4.1 us of them.
        assert check(schedule) <= float(row["finish_s"]) + 4.1e-6, row


@pytest.mark.slow
@pytest.mark.shared_data
def test_reaches_every_published_all_to_all(shared: Path) -> None:
    topology = ndv2_2(published=True)
    published_s: dict[float, float] = {}
    for row in published(shared, "AlltoAll"):
        size, finish = float(row["output_buffer_bytes"]), float(row["finish_s"])
        published_s[size] = min(published_s.get(size, np.inf), finish)
    assert len(published_s) == 11
    for size, least in published_s.items():
        demand = all_to_all(topology, size)
        bound = second_bound(demand, topology)
        finish = check(greedy(topology, demand, bound=bound, effort=Effort(batches=2)))
        assert bound * (1 - 1e-9) <= finish <= least, size


def test_sixteen_gpus_all_to_all_meets_its_bound() -> None:
    topology = ndv2_2()
    demand = all_to_all(topology, GB)
    bound = second_bound(demand, topology)
    assert check(greedy(topology, demand, bound=bound)) == pytest.approx(0.3200013)


def test_four_chassis_within_one_per_cent() -> None:
    topology = ndv2_4()
    demand = all_gather(topology, GB)
    bound = second_bound(demand, topology)
    assert check(greedy(topology, demand, bound=bound)) <= 1.01 * bound


def test_two_switches_within_two_epochs() -> None:
    """Eight links each way share sixteen chunks out among them."""
    topology = dgx2_2()
    demand = all_gather(topology, GB)
    tau = epoch_length(topology, demand.size[0])
    bound = epoch_bound(demand, topology, epoch_model(topology, demand.size[0], tau))
    schedule = greedy(topology, demand, tau, bound, Effort(4, 8))
    check(schedule)
    assert schedule.epochs is not None and schedule.epochs <= bound + 2


@pytest.mark.parametrize(
    "sides", [(8, 16), pytest.param((8, 8, 8), marks=pytest.mark.slow)]
)
def test_tori_within_ten_per_cent(sides: tuple[int, ...]) -> None:
    topology = torus(*sides)
    demand = all_gather(topology, GB)
    schedule = greedy(topology, demand, effort=Effort(1, 1))
    assert schedule.sends.end.max() <= 1.1 * second_bound(demand, topology)
    gpus = len(topology.gpus)
    assert len(schedule.sends) == gpus * (gpus - 1)  # each chunk comes once


@pytest.mark.parametrize("latency, tau", [(0.0, 1e-6), (0.7, 1e-6)])
def test_dgx1_least_epochs(latency: float, tau: float) -> None:
    """Slow epochs of 25 KB chunks: figures known to be least."""
    topology = dgx1(latency)
    least = [2, 3, 4, 5, 6, 7] if latency == 0 else [4, 5, 6, 6, 7, 8]
    for chunks, epochs in enumerate(least, 1):
        demand = all_gather(topology, 8 * 25e3 * chunks, chunks)
        assert greedy(topology, demand, tau, bound=epochs).epochs == epochs


def test_one_seed_one_answer() -> None:
    topology = dgx1()
    for demand in (all_gather(topology, 1e6), all_to_all(topology, 1e6)):
        one, two = (greedy(topology, demand, effort=QUICK) for _ in range(2))
        np.testing.assert_array_equal(one.sends.start, two.sends.start)
        np.testing.assert_array_equal(one.sends.block, two.sends.block)


def test_stops_at_the_bound() -> None:
    """A ring of 3: neighbours all, one round, certified by the bound."""
    topology = ring(3)
    demand = all_gather(topology, 3e6)
    tau = epoch_length(topology, demand.size[0])
    bound = epoch_bound(demand, topology, epoch_model(topology, demand.size[0], tau))
    assert greedy(topology, demand, tau, bound).epochs == bound == 1


def test_only_takers_and_the_ways_to_them_are_served() -> None:
    """gpu0 -> gpu2 on a ring of 6 goes over gpu1 alone."""
    topology = ring(6)
    demand = blocks(topology, [(0, [1, 2])])
    schedule = greedy(topology, demand, effort=QUICK)
    check(schedule)
    assert len(schedule.sends) == 2


@pytest.mark.parametrize("kind", ["reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_sums_of_teams_pass_gpus_that_are_in_none(kind: str, chunks: int) -> None:
    """Opposite GPUs of a ring: copies that no relay passes on are no summands. The
    least is the all-gather of the same teams backwards."""
    asked = {"groups": [[0, 2], [1, 3]], "chunks": chunks}
    search = Search(method="greedy")
    found = plan("ring-4", kind, 1e6, search=search, **asked)  # verified inside
    gather = plan("ring-4", "all_gather", 1e6, search=search, **asked)
    times = 1 if kind == "reduce_scatter" else 2
    assert times * gather.finish * 0.999 < found.finish < 1.1 * times * gather.finish


def test_missing_way_is_named() -> None:
    topology = machine("one-way", gpu_nodes(2, 2), [(0, 1, 10.0, 1.0)], 2)
    with pytest.raises(ValueError, match="no path for .*: gpu0 wants gpu1's"):
        greedy(topology, all_gather(topology, GB))
