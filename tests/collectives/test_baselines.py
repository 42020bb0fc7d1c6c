"""Standard algorithms as schedules: verified, and as long as by hand."""

import itertools

import numpy as np
import pytest

from diffenergy.collectives import Topology, demand, load_topology
from diffenergy.collectives._algorithms import ring_order
from diffenergy.collectives._baselines import Baselines, baselines

from .builders import COLLECTIVES, second_bound, star, verify

OPEN = ("dgx1", "mi250x-1", "mi250x-2", "mesh-3", "ring-5", "ring-8")
PLAIN = [kind for kind in COLLECTIVES if kind != "custom"]
EXCHANGES = ("recursive_doubling", "recursive_halving", "recursive_halving_doubling")
SMALL = ("dgx1", "ndv2-2-published", "dgx-h100", "mesh-3")
LARGE = [
    ("dgx-a100-2", "reduce"),
    ("dgx2-2", "all_gather"),
    ("mi250x-1", "all_reduce"),
    ("mi250x-2", "gather"),
    ("ndv2-4", "reduce_scatter"),
]


def open_machine(name: str) -> Topology:
    return load_topology(name, latency=0.7e-6 if name in OPEN else None)


def standard(name: str, kind: str, size: str = "1MB", chunks: int = 1) -> Baselines:
    topology = open_machine(name)
    return baselines(topology, demand(kind, topology, size, chunks))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(SMALL, PLAIN),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in LARGE),
    ],
)
def test_every_schedule_verifies_and_obeys_the_bound(name: str, kind: str) -> None:
    topology = open_machine(name)
    wanted = demand(kind, topology, "1MB")
    least = second_bound(wanted, topology)
    result = baselines(topology, wanted)
    for algorithm, baseline in result.algorithms.items():
        schedule = baseline.schedule
        assert schedule.demand is wanted and schedule.topology is topology
        assert baseline.finish == verify(schedule), algorithm
        assert baseline.finish >= least * (1 - 1e-9), algorithm
        assert baseline.finish == pytest.approx(schedule.sends.end.max())
    assert set(result.algorithms) >= {"ring", "direct"}
    assert not any("verif" in reason for reason in result.unfit.values())
    count = 5 if kind == "all_reduce" else 4
    assert len(result.algorithms) + len(result.unfit) == count


def test_blocks_in_chunks() -> None:
    """A ring of chunks is a pipeline: the last chunk follows a chunk behind."""
    whole, parts = (standard("dgx-h100", "all_gather", "1MB", c) for c in (1, 5))
    sends = [len(x.algorithms["ring"].schedule.sends) for x in (whole, parts)]
    assert sends[1] == 5 * sends[0]
    for algorithm, baseline in parts.algorithms.items():
        assert baseline.finish <= whole.algorithms[algorithm].finish * (1 + 1e-9)


def test_a_switch_by_hand() -> None:
    block, hop = 1e6 / 8 / 450e9, 0.7e-6
    ring, at_once = 7 * (block + hop), 7 * block + hop
    for kind, rings, direct in (
        ("all_gather", ring, at_once),
        ("reduce_scatter", ring, at_once),
        ("all_reduce", 2 * ring, 2 * at_once),
        ("all_to_all", None, at_once),
        ("broadcast", ring + 7 * block, 56 * block + hop),
    ):
        result = standard("dgx-h100", kind).algorithms
        assert result["direct"].finish == pytest.approx(direct)
        assert rings is None or result["ring"].finish == pytest.approx(rings)
        assert kind != "all_gather" or result["ring"].variant == "one direction"


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_exchanges_are_the_closed_form_or_better(size: float) -> None:
    """Pipelined: never slower than step by step, never faster than the bytes allow,
    and the same where nothing but latency or nothing but bytes counts."""
    topology = star(8)
    kinds = ("all_gather", "reduce_scatter", "all_reduce")
    for kind, name in zip(kinds, EXCHANGES, strict=True):
        halves = 2 if kind == "all_reduce" else 1
        bytes_alone = halves * 7 / 8 * size / 1e11
        steps = bytes_alone + halves * 3 * 0.7e-6
        result = baselines(topology, demand(kind, topology, size))
        took = result.algorithms[name].finish
        assert bytes_alone < took <= steps * (1 + 1e-9)
        if size != 1e6:
            assert took == pytest.approx(steps, rel=0.02)


def test_a_ring_of_links_by_hand() -> None:
    """Both directions: 8 GPUs are 4 and 3 steps away, each link one block at a time."""
    step = 1e6 / 8 / 50e9 + 0.7e-6
    for kind, steps in (("all_gather", 4), ("reduce_scatter", 4), ("all_reduce", 8)):
        ring = standard("ring-8", kind).algorithms["ring"]
        assert ring.finish == pytest.approx(steps * step)
        assert ring.variant.startswith("both directions")


def test_between_chassis_by_hand() -> None:
    """One ring would pass one rail of 50 GB/s each way: 15 blocks of 62.5 MB. Of an
    all-to-all 64 blocks pass 12.5 GB/s each way."""
    ring = standard("dgx-h100-2", "all_gather", "1GB").algorithms["ring"]
    assert "rings" in ring.variant
    assert ring.finish < 15 * 62.5e6 / 50e9 / 3
    direct = standard("ndv2-2", "all_to_all", "1GB").algorithms["direct"]
    assert direct.finish == pytest.approx(0.3200013, rel=1e-6)


def test_why_algorithms_are_absent() -> None:
    result = standard("ndv2-2-published", "all_gather")
    assert set(result.algorithms) == {"ring", "tree", "direct"}
    reason = result.unfit["recursive_doubling"]
    assert "power of two" in reason and "15" in reason
    assert set(standard("dgx1", "all_to_all").unfit) == {"recursive_doubling", "tree"}
    topology = open_machine("dgx1")
    few = baselines(topology, demand("all_gather", topology, "1MB"), most_sends=55)
    assert not few.algorithms and all("55" in reason for reason in few.unfit.values())
    ring = open_machine("ring-5")
    remaining = tuple(link for link in ring.links if link.target != 2)
    cut = Topology("cut", ring.nodes, remaining, 5)
    with pytest.raises(ValueError, match="gpu2"):
        baselines(cut, demand("all_gather", ring, "1MB"))


def test_uneven_blocks_go_directly() -> None:
    topology = open_machine("dgx1")
    matrix = np.arange(64.0).reshape(8, 8) * 1e4
    wanted = demand("all_to_all", topology, matrix=matrix)
    result = baselines(topology, wanted)
    assert set(result.algorithms) == {"direct"} and "size" in result.unfit["ring"]
    sends = result.algorithms["direct"].schedule.sends
    assert np.array_equal(np.unique(sends.block), np.arange(len(wanted.size)))
    assert np.allclose(sends.bytes, wanted.size[sends.block])


@pytest.mark.parametrize("kind", PLAIN)
def test_groups(kind: str) -> None:
    """Several go directly; one by itself has all algorithms, and GPUs outside relay: 0
    and 5 of a DGX-1 are no neighbours."""
    topology = open_machine("dgx-h100")
    wanted = demand(kind, topology, "1MB", groups=[[0, 1, 2, 3], [4, 5, 6, 7]])
    result = baselines(topology, wanted)
    assert set(result.algorithms) == {"direct"} and "group" in result.unfit["tree"]
    topology = open_machine("dgx1")
    result = baselines(topology, demand(kind, topology, "1MB", groups=[[0, 5]]))
    assert {"ring", "direct"} <= set(result.algorithms)
    sends = result.algorithms["direct"].schedule.sends
    assert (topology.targets[sends.link] != 5).any()


def test_rings_are_the_best_by_trying_all() -> None:
    random = np.random.default_rng(1)
    for _ in range(5):
        cost = random.choice([1.0, 2.0, 5.0], (7, 7))
        order = ring_order(cost)
        assert sorted(order.tolist()) == list(range(7))
        took = (cost[order, np.roll(order, -1)] ** 4).sum()
        best = min(
            sum(cost[a, b] ** 4 for a, b in itertools.pairwise((0, *rest, 0)))
            for rest in itertools.permutations(range(1, 7))
        )
        assert took == pytest.approx(best)


@pytest.mark.parametrize("name", ["dgx1", "torus-3x4"])
def test_rings_pass_neighbours_where_they_can(name: str) -> None:
    """One hop a step: as many sends as steps; on a DGX-1 double lanes alone."""
    topology = open_machine(name)
    count = len(topology.gpus)
    sends = standard(name, "all_gather").algorithms["ring"].schedule.sends
    assert len(sends) == count * (count - 1)
    assert name != "dgx1" or (topology.rates[sends.link] == 50e9).all()
