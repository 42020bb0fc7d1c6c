"""Paths that share links out, schedules along them, islands and deadlines."""

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Topology
from diffenergy.collectives._bounds import second_bound
from diffenergy.collectives._duals import flow_bound
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._list_schedule import Aim, Plan, island_levels
from diffenergy.collectives._queues import Planned, Requests, balanced_paths
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._verify import verify

from ..machine.c3_machines import (
    all_gather,
    all_to_all,
    both,
    dgx1,
    dgx2_2,
    gpu_nodes,
    machine,
    ndv2_2,
    ring,
    star,
    torus,
)

MACHINES = [dgx1(), ndv2_2(), ndv2_2(published=True), star(6, copy=False), torus(3, 4)]


def requests(topology: Topology, size: float) -> Requests:
    demand = all_to_all(topology, size)
    return Requests(demand.source, demand.wanted.argmax(1), demand.size)


def ways_of(topology: Topology, seed: int = 0, wobble: float = 0.0) -> list[list[int]]:
    job = requests(topology, 1e6)
    rng = np.random.default_rng(seed)
    return balanced_paths(topology, job, rng, wobble)


def most_used(topology: Topology, ways: list[list[int]]) -> int:
    return int(np.bincount(np.concatenate(ways), minlength=len(topology.links)).max())


@pytest.mark.parametrize("topology", MACHINES, ids=lambda t: t.name)
@pytest.mark.parametrize("wobble", [0.0, 0.5])
def test_ways_lead_from_source_to_taker(topology: Topology, wobble: float) -> None:
    job = requests(topology, 1e6)
    for source, taker, way in zip(
        job.source, job.taker, ways_of(topology, 1, wobble), strict=True
    ):
        nodes = [source, *topology.targets[way]]
        assert nodes[:-1] == list(topology.sources[way])
        assert nodes[-1] == taker
        assert len(set(nodes)) == len(nodes)


def test_ways_are_near_the_least_work() -> None:
    """Torus 3 x 4: 12 x 3 x 4 hops of blocks along the rings of four, whose 24 links
    carry 6 each; between two chassis 256 blocks over eight links, 32 each."""
    small = torus(3, 4)
    assert most_used(small, ways_of(small)) == 6
    large = dgx2_2()
    used = np.bincount(np.concatenate(ways_of(large)), minlength=len(large.links))
    assert used[large.rates < 20e9].max() == 32


def trips_of(topology: Topology) -> tuple[Requests, Plan]:
    job, rng = requests(topology, 1e6), np.random.default_rng(0)
    ways = balanced_paths(topology, job, rng)
    return job, Planned(topology, job, ways, rng).plan()


@pytest.mark.parametrize("topology", MACHINES, ids=lambda t: t.name)
def test_planned_schedules_are_right(topology: Topology) -> None:
    job, trips = trips_of(topology)
    size = job.size[trips.block]
    took = size / topology.rates[trips.link] + topology.latencies[trips.link]
    phase = np.zeros(len(size), int)
    sends = Sends(trips.block, trips.link, trips.start, trips.start + took, size, phase)
    found = verify(Schedule(topology, all_to_all(topology, 1e6), sends))
    assert found == pytest.approx(trips.finish)


@pytest.mark.parametrize(
    "topology",
    [ring(8), torus(3, 4), pytest.param(dgx2_2(), marks=pytest.mark.slow)],
    ids=lambda t: t.name,
)
@pytest.mark.slow
def test_all_to_all_within_two_per_cent(topology: Topology) -> None:
    demand = all_to_all(topology, 1e9)
    bound = flow_bound(demand, topology)
    schedule = greedy(topology, demand, bound=bound, effort=Effort(batches=3))
    assert bound * (1 - 1e-9) <= verify(schedule) <= 1.02 * bound


def test_more_batches_are_never_worse() -> None:
    """Also where no set of ways can end before the best so far."""
    topology = ring(4)
    demand = all_to_all(topology, 1e9)
    finish = [
        verify(greedy(topology, demand, effort=Effort(batches=n))) for n in (1, 4, 8)
    ]
    assert finish == sorted(finish, reverse=True)


def two_level() -> Topology:
    """Pairs at 100 GB/s, chassis of two pairs at 40 GB/s, 10 GB/s between chassis."""
    edges = []
    for first in (0, 4):
        edges += both(first, first + 1, 100.0, 0.5)
        edges += both(first + 2, first + 3, 100.0, 0.5)
        edges += both(first + 1, first + 2, 40.0, 0.5)
        edges += both(first, first + 3, 40.0, 0.5)
    for i in range(4):
        edges += both(i, i + 4, 10.0, 0.5)
    return machine("two-level", gpu_nodes(8, 4), edges, 8)


def test_islands_level_by_level() -> None:
    levels = island_levels(two_level())
    assert [len(set(level)) for level in levels.tolist()] == [4, 2]
    assert len(island_levels(ndv2_2())) == 1
    assert island_levels(dgx1()).tolist() == [[0] * 8]


def test_chassis_are_entered_once_on_two_levels() -> None:
    """4 blocks over 4 links between chassis, then at most two hops of 40 GB/s."""
    topology = two_level()
    demand = all_gather(topology, 8e9)
    bound = second_bound(demand, topology)
    schedule = greedy(topology, demand, bound=bound, effort=Effort(6, 8))
    assert verify(schedule) <= 1.25 * bound
    between = topology.rates[schedule.sends.link] < 20e9
    assert between.sum() == 8


def test_deadlines_lie_between_the_least_and_the_limit() -> None:
    assert np.isinf(Aim(3, 0).deadlines).all()
    found = Aim(8, 0, limit=10.0, least=6.0).deadlines
    assert (found < 10.0).all() and (found >= 6.0).all()
    assert found[0] == pytest.approx(10.0) and found.min() == pytest.approx(7.0)
    # Of whole epochs: below 10 is 9.
    assert np.floor(found[0]) == 9
