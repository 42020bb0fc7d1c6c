"""Standard algorithms as schedules: verified, and as long as by hand."""

import itertools

import numpy as np
import pytest

from diffenergy.collectives import Topology, demand, load_topology
from diffenergy.collectives._algorithms import ring_order
from diffenergy.collectives._baselines import Baselines, baselines
from diffenergy.collectives._trees import (
    binomial,
    both_ways,
    double_binary,
    doubling,
)

from .builders import (
    COLLECTIVES,
    second_bound,
    star,
    verify,
)

OPEN = ("dgx1", "mi250x-1", "mi250x-2", "mesh-3", "mesh-4", "ring-5", "ring-8")
PLAIN = [kind for kind in COLLECTIVES if kind != "custom"]
EXCHANGES = ("recursive_doubling", "recursive_halving", "recursive_halving_doubling")


def open_machine(name: str) -> Topology:
    return load_topology(name, latency=0.7e-6 if name in OPEN else None)


def standard(name: str, kind: str, size: str = "1MB", chunks: int = 1) -> Baselines:
    topology = open_machine(name)
    return baselines(topology, demand(kind, topology, size, chunks))


# --- right on every open_machine


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize(
    "name",
    ["dgx1", "ndv2-2-published", "dgx-h100", "mesh-3"],
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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dgx-a100-2", "reduce"),
        ("dgx2-2", "all_gather"),
        ("mi250x-1", "all_reduce"),
        ("mi250x-2", "gather"),
        ("ndv2-4", "reduce_scatter"),
    ],
)
@pytest.mark.slow
def test_machines_of_several_chassis(name: str, kind: str) -> None:
    result = standard(name, kind)
    assert not any("verif" in reason for reason in result.unfit.values())
    assert {"ring", "direct"} <= set(result.algorithms)


def test_blocks_in_chunks() -> None:
    """A ring of chunks is a pipeline: the last chunk follows a chunk behind."""
    whole, parts = (standard("dgx-h100", "all_gather", "1MB", c) for c in (1, 5))
    assert len(parts.algorithms["ring"].schedule.sends) == 5 * len(
        whole.algorithms["ring"].schedule.sends
    )
    for algorithm, baseline in parts.algorithms.items():
        assert baseline.finish <= whole.algorithms[algorithm].finish * (1 + 1e-9)


# --- closed forms: n GPUs on a switch of rate r, hops of a s there and back in all


@pytest.mark.parametrize("size", ["1KB", "1GB"])
def test_a_switch_by_hand(size: str) -> None:
    topology = open_machine("dgx-h100")
    block = demand("all_gather", topology, size).size[0] / 450e9
    hop = 0.7e-6
    ring = 7 * (block + hop)
    all_at_once = 7 * block + hop
    for kind in ("all_gather", "reduce_scatter"):
        result = standard("dgx-h100", kind, size).algorithms
        assert result["ring"].finish == pytest.approx(ring)
        assert result["ring"].variant == "one direction"
        assert result["direct"].finish == pytest.approx(all_at_once)
    result = standard("dgx-h100", "all_reduce", size).algorithms
    assert result["ring"].finish == pytest.approx(2 * ring)
    assert result["direct"].finish == pytest.approx(2 * all_at_once)
    result = standard("dgx-h100", "all_to_all", size).algorithms
    assert result["direct"].finish == pytest.approx(all_at_once)
    result = standard("dgx-h100", "broadcast", size).algorithms
    assert result["ring"].finish == pytest.approx(7 * (block + hop) + 7 * block)
    assert result["direct"].finish == pytest.approx(56 * block + hop)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_exchanges_are_the_closed_form_or_better(size: float) -> None:
    """Pipelined: never slower than step by step, never faster than the bytes allow,
    and the same where nothing but latency or nothing but bytes counts."""
    topology = star(8)
    times = {
        kind: baselines(topology, demand(kind, topology, size)).algorithms
        for kind in ("all_gather", "reduce_scatter", "all_reduce")
    }
    for kind, name in zip(times, EXCHANGES, strict=True):
        halves = 2 if kind == "all_reduce" else 1
        bytes_alone = halves * 7 / 8 * size / 1e11
        steps = bytes_alone + halves * 3 * 0.7e-6
        took = times[kind][name].finish
        assert bytes_alone < took <= steps * (1 + 1e-9)
        if size != 1e6:
            assert took == pytest.approx(steps, rel=0.02)


@pytest.mark.parametrize("size", ["1MB", "1GB"])
def test_a_ring_of_links_by_hand(size: str) -> None:
    """Both directions: 8 GPUs are 4 and 3 steps away, each link one block at a time."""
    topology = open_machine("ring-8")
    step = demand("all_gather", topology, size).size[0] / 50e9 + 0.7e-6
    for kind, steps in (("all_gather", 4), ("reduce_scatter", 4), ("all_reduce", 8)):
        ring = standard("ring-8", kind, size).algorithms["ring"]
        assert ring.finish == pytest.approx(steps * step)
        assert ring.variant.startswith("both directions")


def test_chassis_with_several_ways_out_have_several_rings() -> None:
    """One ring would pass one rail of 50 GB/s each way: 15 blocks of 62.5 MB."""
    one_rail = 15 * 62.5e6 / 50e9
    ring = standard("dgx-h100-2", "all_gather", "1GB").algorithms["ring"]
    assert "rings" in ring.variant
    assert ring.finish < one_rail / 3


def test_direct_all_to_all_meets_the_bound_of_one_way_links() -> None:
    """64 blocks of 62.5 MB pass 12.5 GB/s each way."""
    direct = standard("ndv2-2", "all_to_all", "1GB").algorithms["direct"]
    assert direct.finish == pytest.approx(0.3200013, rel=1e-6)


# --- what does not fit


def test_why_algorithms_are_absent() -> None:
    result = standard("ndv2-2-published", "all_gather")
    assert set(result.algorithms) == {"ring", "tree", "direct"}
    assert "power of two" in result.unfit["recursive_doubling"]
    assert "15" in result.unfit["recursive_doubling"]
    result = standard("dgx1", "all_to_all")
    assert set(result.unfit) == {"recursive_doubling", "tree"}


def test_uneven_blocks_go_directly() -> None:
    topology = open_machine("dgx1")
    matrix = np.arange(64.0).reshape(8, 8) * 1e4
    wanted = demand("all_to_all", topology, matrix=matrix)
    result = baselines(topology, wanted)
    assert set(result.algorithms) == {"direct"}
    assert "size" in result.unfit["ring"]
    sends = result.algorithms["direct"].schedule.sends
    assert np.array_equal(np.unique(sends.block), np.arange(len(wanted.size)))
    assert np.allclose(sends.bytes, wanted.size[sends.block])


@pytest.mark.parametrize("kind", PLAIN)
def test_tenants_go_directly(kind: str) -> None:
    topology = open_machine("dgx-h100")
    wanted = demand(kind, topology, "1MB", groups=[[0, 1, 2, 3], [4, 5, 6, 7]])
    result = baselines(topology, wanted)
    assert set(result.algorithms) == {"direct"}
    assert "group" in result.unfit["tree"]


@pytest.mark.parametrize("kind", PLAIN)
def test_a_group_by_itself_has_all_algorithms(kind: str) -> None:
    """GPUs outside the group relay: 0 and 5 of a DGX-1 are no neighbours."""
    topology = open_machine("dgx1")
    result = baselines(topology, demand(kind, topology, "1MB", groups=[[0, 5]]))
    assert {"ring", "direct"} <= set(result.algorithms)
    sends = result.algorithms["direct"].schedule.sends
    assert (topology.targets[sends.link] != 5).any()


def test_too_many_sends() -> None:
    topology = open_machine("dgx1")
    result = baselines(topology, demand("all_gather", topology, "1MB"), most_sends=55)
    assert not result.algorithms
    assert all("55" in reason for reason in result.unfit.values())


def test_what_cannot_be_reached_is_named() -> None:
    topology = open_machine("ring-5")
    remaining = tuple(link for link in topology.links if link.target != 2)
    cut = Topology("cut", topology.nodes, remaining, 5)
    with pytest.raises(ValueError, match="gpu2"):
        baselines(cut, demand("all_gather", topology, "1MB"))


# --- the parts


def test_trees_reach_everybody_once() -> None:
    order = list(range(3, 11))
    groups = [order[:4], order[4:]]
    for root in order:
        edges = [
            both_ways(order, root),
            doubling(order, root),
            binomial(groups, root),
            double_binary(order, root, False),
            double_binary(order, root, True),
        ]
        for tree in edges:
            there = {root}
            for up, down, _ in tree:
                assert up in there and down not in there
                there.add(down)
            assert there == set(order)


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


@pytest.mark.parametrize("name", ["dgx1", "mesh-4", "torus-3x4", "torus-4x4"])
def test_rings_pass_neighbours_where_they_can(name: str) -> None:
    """One hop a step: as many sends as steps; on a DGX-1 double lanes alone."""
    topology = open_machine(name)
    count = len(topology.gpus)
    sends = standard(name, "all_gather").algorithms["ring"].schedule.sends
    assert len(sends) == count * (count - 1)
    if name == "dgx1":
        assert (topology.rates[sends.link] == 50e9).all()
