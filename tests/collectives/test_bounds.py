"""Lower bounds against published epochs, plain programs and hand sums."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from diffenergy.collectives import Demand, Topology, demand, load_topology
from diffenergy.collectives import _duals as duals
from diffenergy.collectives._bounds import cut_bound

from .builders import (
    CHUNK,
    DGX1_LEAST,
    GB,
    MB,
    US,
    Effort,
    all_gather,
    all_to_all,
    blocks,
    both,
    dgx1,
    epoch_bound,
    epoch_length,
    epoch_model,
    epochs_of,
    flow_bound,
    gather_chunks,
    gpu_nodes,
    greedy,
    least_finish,
    lp,
    machine,
    ndv2_2,
    ndv2_4,
    published,
    ring,
    run_epochs,
    second_bound,
    star,
    sums,
    torus,
    verify,
)


@pytest.mark.shared_data
@pytest.mark.parametrize("collective", ["AllGather", "AlltoAll"])
def test_epochs_beside_the_published_runs(shared: Path, collective: str) -> None:
    """All-gathers need as many as published, all-to-alls no more."""
    topology = ndv2_2(published=True)
    rows = published(shared, collective)
    assert len(rows) == 22
    for row in rows:
        size, epochs = float(row["output_buffer_bytes"]), int(row["epochs"])
        whole = collective == "AllGather"
        demand = (all_gather if whole else all_to_all)(topology, size)
        model = epoch_model(topology, demand.size[0], float(row["epoch_s"]))
        bound = epoch_bound(demand, topology, model, whole)
        assert (epochs if whole else 0.88 * epochs - 64) <= bound <= epochs, row


@pytest.mark.parametrize(("latency", "kind"), DGX1_LEAST)
def test_dgx1_bounds_and_least_epochs(latency: float, kind: str) -> None:
    """Never above the proven figures, at most one below, and equal with latency 0."""
    topology = dgx1(latency)
    model = epochs_of(topology, kind)
    gap = [
        known - epoch_bound(gather_chunks(topology, CHUNK, chunks), topology, model)
        for chunks, known in enumerate(DGX1_LEAST[latency, kind], 1)
    ]
    assert min(gap) >= 0 and max(gap) <= (1 if latency else 0)


SECONDS = {
    # 64 chunks of 62.5 MB over 12.5 GB/s and 1.3 us, whole or cut up.
    "two chassis": (ndv2_2(), "all_to_all", GB, True, 0.3200013),
    "two chassis, parts": (ndv2_2(), "all_to_all", GB, False, 0.3200013),
    # 3 chunks of 1.25 ms into each GPU over two links, two hops to the far side; cut
    # up they fill both links from the first latency on.
    "ring": (ring(4), "all_gather", 250 * MB, True, 2 * (1.25e-3 + 0.7 * US)),
    "ring, parts": (ring(4), "all_gather", 250 * MB, False,
                    3 * 62.5e6 / 100e9 + 0.7 * US),
    # Cut-through: 7 chunks of 1 ms in a row and two latencies.
    "switch": (star(8), "all_gather", 0.8 * GB, True, 7e-3 + 0.7 * US),
    # An all-reduce: each GPU receives 2 (n - 1) / n of the buffer; where a switch adds
    # up n - 1 blocks pass each way in and the last has still to go out.
    "plain switch": (star(8), "all_reduce", 0.8 * GB, True, 2 * 7 / 8 * 8e-3),
    "adding switch": (star(8, reduces=True), "all_reduce", 0.8 * GB, True, 8e-3),
    # 1 GB over the one link of 12.5 GB/s each way; four chassis receive each sum 6
    # times over 4 links.
    "two": (ndv2_2(), "all_reduce", GB, True, 80.0013e-3),
    "four": (ndv2_4(), "all_reduce", GB, True, 120.0013e-3),
    # Blocks times links that they pass, shared out among all links, and one latency.
    "ring of 8": (ring(8, 0.0), "all_to_all", 8 * MB, True, 8 * MB / 50e9),
    "torus": (torus(3, 3), "all_to_all", 9 * MB, True, 3 * MB / 50e9 + 0.5 * US),
}  # fmt: skip


@pytest.mark.parametrize("case", SECONDS)
def test_seconds_by_hand(case: str) -> None:
    topology, kind, size, whole, least = SECONDS[case]
    wanted = demand(kind, topology, size)
    near = 1e-3 if case.endswith("switch") and kind == "all_reduce" else 1e-6
    assert second_bound(wanted, topology, whole) == pytest.approx(least, rel=near)


def test_cuts() -> None:
    """Max-flow finds the neck that no GPU's own links show: gpu2 and gpu3 want two
    chunks of 1 GB over 10 GB/s; into a GPU of a ring three chunks over two links."""
    rates = enumerate((100.0, 10.0, 100.0))
    edges = [e for n, rate in rates for e in both(n, n + 1, rate, 0.0)]
    line, circle = machine("line", gpu_nodes(4, 4), edges, 4), ring(4)
    assert cut_bound(all_gather(line, 4 * GB), line) == pytest.approx(0.2, rel=1e-5)
    into_one = cut_bound(all_gather(circle, 250 * MB), circle)
    assert into_one == pytest.approx(3 * 62.5e6 / 100e9)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_all_reduce_never_above_a_schedule(seed: int | None) -> None:
    topology = ring(8, 0.0) if seed is None else small_machine(seed)
    demand = sums(topology, 8 * MB, True)
    bound = second_bound(demand, topology)
    finish = verify(greedy(topology, demand, bound=bound, effort=Effort(4, 8)))
    assert bound <= finish * (1 + 1e-9)
    assert second_bound(demand, topology, whole=False) <= finish * (1 + 1e-9)
    if seed is None:  # each GPU receives 2 x 7 blocks over two links
        assert finish == pytest.approx(bound)


def test_reductions_are_bounded_on_the_reversed_machine() -> None:
    """NDv2's one-way links: what leaves chassis 1 of the reversed machine enters it."""
    topology = ndv2_2()
    reverse = topology.reversed()
    bound = second_bound(sums(topology, GB, everywhere=False), topology)
    assert bound == pytest.approx(second_bound(all_gather(reverse, GB), reverse))


def test_what_leaves_one_gpu_counts() -> None:
    """24 of 32 blocks of a scatter leave chassis 0 over one link of 12.5 GB/s."""
    topology = ndv2_4()
    wanted = demand("scatter", topology, GB)
    bound = second_bound(wanted, topology)
    assert bound == pytest.approx(24 * GB / 32 / 12.5e9 + 2.6e-6)
    assert verify(greedy(topology, wanted, bound=bound)) >= bound * (1 - 1e-9)


def small_machine(seed: int) -> Topology:
    """Four GPUs, a ring that leads everywhere and links at random, 1 or 2 GB/s."""
    rng = np.random.default_rng(seed)
    pairs = {(i, (i + 1) % 4) for i in range(4)}
    pairs |= {tuple(rng.choice(4, 2, replace=False).tolist()) for _ in range(4)}
    edges = [(a, b, float(rng.integers(1, 3)), 0.0) for a, b in sorted(pairs)]
    return machine(f"small-{seed}", gpu_nodes(4, 2), edges, 4)


@pytest.mark.parametrize("seed, kind", [(0, "gather"), (1, "to_all"), (2, "some")])
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
    result = least_finish(topology, demand, model, high=40)
    assert result.schedule is not None and result.schedule.epochs is not None
    finish = verify(run_epochs(result.schedule, model))
    least = result.schedule.epochs
    assert epoch_bound(demand, topology, model) <= least
    assert epoch_bound(demand, topology, model, whole=False) <= least
    for whole in (True, False):
        assert second_bound(demand, topology, whole) <= finish * (1 + 1e-9)
    assert cut_bound(demand, topology) <= finish * (1 + 1e-6)
    assert flow_bound(demand, topology) <= finish * (1 + 1e-9)


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
    balance, limits, load = [], [], []
    for block in range(blocks):
        for node in range(nodes):
            row = np.zeros(len(cost))
            for n, link in enumerate(topology.links):
                row[block * links + n] += link.source == node
                row[block * links + n] -= link.target == node
            here = float(demand.source[block] == node) - demand.wanted[block, node]
            balance.append(row)
            limits.append(here * demand.size[block] / GB)
    for n, link in enumerate(topology.links):
        row = np.zeros(len(cost))
        row[n : blocks * links : links] = 1
        row[-1] = -link.rate / GB
        load.append(row)
    answer = linprog(cost, np.array(load), np.zeros(links), np.array(balance), limits)
    assert answer.status == 0
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_plain_program(seed: int) -> None:
    topology, demand = random_case(seed)
    result = flow_bound(demand, topology, whole=False)
    assert result == pytest.approx(plain_flow(topology, demand), rel=1e-6)


def test_mesh_by_its_middle_cut() -> None:
    """4 x 4: 64 blocks of 1 GB pass the 4 links of 100 GB/s between the halves."""
    mesh = load_topology("mesh-4", 0.7 * US)
    demand = all_to_all(mesh, 16 * GB)
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


@pytest.mark.parametrize("topology", [dgx1(), ring(5)], ids=lambda t: t.name)
def test_parts_of_blocks_do_not_beat_it(topology: Topology) -> None:
    demand = all_to_all(topology, 8e6)
    model = epoch_model(topology, 1e6, epoch_length(topology, 1e6))
    result = lp(topology, demand, model)
    assert result.schedule is not None
    finish = verify(run_epochs(result.schedule, model, parts=True))
    bound = flow_bound(demand, topology, whole=False)
    assert 0.8 * finish <= bound <= finish * (1 + 1e-9)


def test_too_large_falls_back_on_fixed_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = ndv2_2()
    demand = all_to_all(topology, GB)
    exact = flow_bound(demand, topology)
    monkeypatch.setattr(duals, "MOST_ROWS", 10)
    assert 0 < flow_bound(demand, topology) <= exact * (1 + 1e-9)
