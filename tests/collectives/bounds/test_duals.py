"""The flow bound against a plain program by loops, hand sums and differences."""

import numpy as np
import pytest
from scipy.optimize import linprog

from diffenergy.collectives import Demand, Topology
from diffenergy.collectives import _duals as duals
from diffenergy.collectives._bounds import second_bound
from diffenergy.collectives._duals import flow_bound
from diffenergy.collectives._lp import lp
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.collectives._simulate import run_epochs
from diffenergy.collectives._verify import verify

from ..machine.c3_machines import (
    GB,
    all_gather,
    all_to_all,
    blocks,
    both,
    dgx1,
    gpu_nodes,
    machine,
    ndv2_2,
    ring,
    star,
    sums,
)


def random_case(seed: int) -> tuple[Topology, Demand]:
    """Five GPUs and a switch, links of uneven rates without latency, uneven blocks."""
    rng = np.random.default_rng(seed)
    nodes = [*gpu_nodes(5, 5), *star(2).nodes[-1:]]
    ends = {(i, (i + 1) % 6) for i in range(6)} | {
        tuple(rng.choice(6, 2, replace=False).tolist()) for _ in range(6)
    }
    edges = [(a, b, float(rng.uniform(1, 5)), 0.0) for a, b in sorted(ends)]
    topology = machine(f"random-{seed}", nodes, edges, 5)
    ends = [(a, b) for a, b in np.argwhere(rng.random((5, 5)) < 0.6).tolist() if a != b]
    sizes = [float(rng.uniform(1, 3)) * GB for _ in ends]
    return topology, blocks(topology, ends, sizes)


def plain_flow(topology: Topology, demand: Demand) -> float:
    """Least T by one flow a block, written out."""
    links, blocks, nodes = len(topology.links), len(demand.size), len(topology.nodes)
    cost = np.zeros(blocks * links + 1)
    cost[-1] = 1
    balance, given, load = [], [], []
    for block in range(blocks):
        for node in range(nodes):
            row = np.zeros(len(cost))
            for n, link in enumerate(topology.links):
                row[block * links + n] += link.source == node
                row[block * links + n] -= link.target == node
            here = float(demand.source[block] == node) - demand.wanted[block, node]
            balance.append(row)
            given.append(here * demand.size[block] / GB)
    for n, link in enumerate(topology.links):
        row = np.zeros(len(cost))
        row[n : blocks * links : links] = 1
        row[-1] = -link.rate / GB
        load.append(row)
    answer = linprog(cost, np.array(load), np.zeros(links), np.array(balance), given)
    assert answer.status == 0
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(6))
def test_equals_a_plain_program(seed: int) -> None:
    topology, demand = random_case(seed)
    found = flow_bound(demand, topology, whole=False)
    assert found == pytest.approx(plain_flow(topology, demand), rel=1e-6)


def test_mesh_by_its_middle_cut() -> None:
    """4 x 4: 64 blocks pass the 4 links from the left half to the right."""
    places = [(x, y) for x in range(4) for y in range(4)]
    edges = []
    for n, (x, y) in enumerate(places):
        if y < 3:
            edges += both(n, n + 1, 100.0, 0.7)
        if x < 3:
            edges += both(n, n + 4, 100.0, 0.7)
    mesh = machine("mesh-4", gpu_nodes(16, 16), edges, 16)
    demand = all_to_all(mesh, 16 * GB)
    # 64 GB over 400 GB/s
    assert flow_bound(demand, mesh) == pytest.approx(0.16 + 0.7e-6)
    assert second_bound(demand, mesh) < 0.14


def test_links_are_of_use_from_first_to_last_block() -> None:
    """gpu1 -> gpu3 and gpu0 -> gpu2 on a line share the middle link, one in each of two
    turns: idle for none of them at both ends, it is idle for nothing."""
    edges = [(0, 1, 1.0, 0.0), (1, 2, 1.0, 0.0), (2, 3, 1.0, 0.0)]
    line = machine("line", gpu_nodes(4, 4), edges, 4)
    demand = blocks(line, [(1, 3), (0, 2)], GB)
    assert flow_bound(demand, line) == pytest.approx(2.0)
    one = blocks(line, [(0, 3)], GB)
    assert flow_bound(one, line) == pytest.approx(3.0)
    assert flow_bound(one, line, whole=False) == pytest.approx(1.0)


def test_switch_is_not_stored_in() -> None:
    """Blocks go through a switch at once: a block of 1 GB at 100 GB/s takes 10 ms."""
    topology = star(3)
    demand = blocks(topology, [(0, 1)], GB)
    assert flow_bound(demand, topology) == pytest.approx(0.01 + 0.7e-6)


@pytest.mark.parametrize("topology", [dgx1(), ring(5)], ids=lambda t: t.name)
def test_parts_of_blocks_do_not_beat_it(topology: Topology) -> None:
    demand = all_to_all(topology, 8e6)
    model = epoch_model(topology, 1e6, epoch_length(topology, 1e6))
    found = lp(topology, demand, model)
    assert found.schedule is not None
    finish = verify(run_epochs(found.schedule, model, parts=True))
    bound = flow_bound(demand, topology, whole=False)
    assert 0.8 * finish <= bound <= finish * (1 + 1e-9)


def test_what_has_several_takers_has_none() -> None:
    topology = ring(4)
    for demand in (all_gather(topology, 4e6), sums(topology, 4e6, True)):
        found = flow_bound(demand, topology)
        assert found == 0.0


def test_too_large_falls_back_on_fixed_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = ndv2_2()
    demand = all_to_all(topology, GB)
    exact = flow_bound(demand, topology)
    monkeypatch.setattr(duals, "MOST_ROWS", 10)
    assert 0 < flow_bound(demand, topology) <= exact * (1 + 1e-9)
