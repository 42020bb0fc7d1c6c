"""Re-timing: right, never later, least; gradients; on random machines and methods."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Topology, demand, load_topology
from diffenergy.collectives._simulate import prune

from .builders import (
    US,
    Effort,
    Node,
    SolverResult,
    all_gather,
    blocks,
    both,
    chain,
    epoch_length,
    epoch_model,
    finish_time,
    gpu_nodes,
    greedy,
    jittered,
    least_finish,
    lp,
    machine,
    ndv2_2,
    order_of,
    reached,
    retime,
    run_epochs,
    schedule_of,
    seeds,
    star,
    sums,
    timed,
    verify,
)

EFFORT = Effort(1, 2)
KINDS = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce", "broadcast")


def random_machine(seed: int) -> Topology:
    """Three to five GPUs in a ring, and up to two switches of any kind
    beside it; rates and latencies without ties, some latencies between GPUs zero."""
    rng = np.random.default_rng(seed)
    gpus, switches = int(rng.integers(3, 6)), int(rng.integers(0, 3))
    nodes = gpu_nodes(gpus, gpus)
    edges = []
    for n in range(gpus):
        edges += both(n, (n + 1) % gpus, 1.0, 0.0)[: int(rng.integers(1, 3))]
    for n in range(switches):
        copy, reduces = (bool(x) for x in rng.integers(0, 2, 2))
        nodes.append(Node(f"sw{n}", "switch", copy, reduces))
        for gpu in rng.permutation(gpus)[: int(rng.integers(2, gpus + 1))].tolist():
            edges += both(gpu, gpus + n, 1.0, 0.0)
    if switches == 2 and rng.integers(2):
        edges += both(gpus, gpus + 1, 1.0, 0.0)
    pairs = dict.fromkeys((a, b) for a, b, _, _ in edges)
    timed = [
        (a, b, float(rng.uniform(10, 100)), float(rng.uniform(0, 3)))
        if max(a, b) >= gpus or rng.integers(2)
        else (a, b, float(rng.uniform(10, 100)), 0.0)
        for a, b in pairs
    ]
    return machine(f"random-{seed}", nodes, timed, gpus)


def stretched(schedule: Schedule) -> Schedule:
    """The same, begun late and twice as slow."""
    sends = schedule.sends
    late = 0.1 * sends.end.max()
    slow = dataclasses.replace(
        sends, start=2 * sends.start + late, end=2 * sends.end + late
    )
    return schedule.with_sends(slow)


@pytest.mark.parametrize("seed", seeds(12, quick=6))
def test_random_machines(seed: int) -> None:
    """Right, never later, and again the same from a stretched schedule or better."""
    topology = random_machine(seed)
    assert all(len(reached(topology, gpu)) > 2 for gpu in topology.gpus.tolist())
    for kind in KINDS:
        schedule = greedy(topology, demand(kind, topology, 60e6), effort=EFFORT)
        finish = verify(schedule)
        early = retime(schedule)
        assert verify(early) <= finish * (1 + 1e-9)
        slow = stretched(schedule)
        assert verify(slow) == pytest.approx(2 * finish + 0.1 * schedule.last_end)
        assert verify(retime(slow)) <= verify(slow) * (1 + 1e-9)
        assert verify(prune(early)) == verify(early)


def event_by_event(schedule: Schedule) -> np.ndarray:
    """Least starts of whole blocks on a machine of GPUs, by plain search: whoever can
    go next on its link goes, until all have gone."""
    sends, topology, wanted = schedule.sends, schedule.topology, schedule.demand
    queue = {
        link: [s for s in np.argsort(sends.start).tolist() if sends.link[s] == link]
        for link in set(sends.link.tolist())
    }
    free = dict.fromkeys(queue, 0.0)
    arrival = {(b, int(n)): 0.0 for b, n in enumerate(wanted.source)}
    start = np.full(len(sends), np.nan)
    while any(queue.values()):
        for link, row in queue.items():
            here = (
                int(sends.block[row[0]]) if row else -1,
                int(topology.sources[link]),
            )
            if row and here in arrival:
                send = row.pop(0)
                start[send] = max(free[link], arrival[here])
                took = sends.bytes[send] / topology.rates[link]
                free[link] = float(start[send] + took)
                there = here[0], int(topology.targets[link])
                when = free[link] + float(topology.latencies[link])
                arrival[there] = min(arrival.get(there, np.inf), when)
    return start


@pytest.mark.parametrize("seed", range(3))
def test_least_starts_by_plain_search(seed: int) -> None:
    whole = random_machine(seed)
    gpus = [n for n, node in enumerate(whole.nodes) if node.stores]
    links = [link for link in whole.links if {link.source, link.target} <= set(gpus)]
    topology = dataclasses.replace(
        whole, nodes=whole.nodes[: len(gpus)], links=tuple(links)
    )
    schedule = greedy(topology, all_gather(topology, 60e6), effort=EFFORT)
    result = retime(stretched(schedule)).sends.start
    np.testing.assert_allclose(result, event_by_event(schedule), rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize(
    "kind, solve", [("all_gather", least_finish), ("all_to_all", lp)]
)
def test_searched_schedules(kind: str, solve: Callable[..., SolverResult]) -> None:
    """In epochs, whole or in parts, then run with true rates and latencies."""
    topology = load_topology("dgx1")
    wanted = demand(kind, topology, 1e9)
    size = float(wanted.size.max())
    model = epoch_model(topology, size, epoch_length(topology, size, "slowest"))
    epochs = schedule_of(solve(topology, wanted, model))
    schedule = run_epochs(epochs, model, parts=kind == "all_to_all")
    early = retime(schedule)
    assert verify(early) <= verify(schedule) * (1 + 1e-9)
    result = finish_time(order_of(schedule), topology.rates, topology.latencies)
    assert result.time == pytest.approx(early.last_end, rel=1e-9)


def test_overlapping_sends_go_one_after_the_other() -> None:
    """1 MB over 10 GB/s takes 100 us; stated are 400 and, in the midst, 200 us."""
    topology = machine("pair", gpu_nodes(2, 2), both(0, 1, 10.0, 0.0), 2)
    rows = [(0, 0, 100e-6, 500e-6), (1, 0, 200e-6, 400e-6)]
    original = timed(topology, blocks(topology, [(0, 1), (0, 1)]), rows)
    assert verify(original) == pytest.approx(500e-6)
    early = retime(original)
    np.testing.assert_allclose(early.sends.end, [100e-6, 200e-6])
    assert verify(early) == pytest.approx(200e-6)


def test_chain_by_hand() -> None:
    """100 us a chunk on the first link, then 3 us, 50 us and 5 us."""
    tight = retime(chain())
    np.testing.assert_allclose(tight.sends.start, np.array([0, 100, 103, 203]) * US)
    assert verify(tight) == tight.sends.end.max() == pytest.approx(258 * US)


@pytest.mark.parametrize(
    "kind",
    ["sums", "gather", "switch", pytest.param("published", marks=pytest.mark.slow)],
)
def test_gradient_against_finite_differences(kind: str) -> None:
    machines = {
        "gather": ndv2_2(),
        "published": ndv2_2(published=True),
        "switch": star(5),
        "sums": star(4, reduces=True),
    }
    topology = jittered(machines[kind])
    demand = sums(topology, 4e6, True) if kind == "sums" else all_gather(topology, 16e6)
    schedule = greedy(topology, demand, effort=EFFORT)
    order, values = order_of(schedule), (topology.rates, topology.latencies)
    result = finish_time(order, *values)
    assert result.time == pytest.approx(retime(schedule).last_end, rel=1e-12)
    gradient = result.by_rate / topology.rates, result.by_latency
    used = np.unique(schedule.sends.link)
    for which, base in enumerate(values):
        for link in used[:: max(1, len(used) // 12)]:
            times, step = [], 1e-5 * base[link]
            for sign in (1, -1):
                moved = [x.copy() for x in values]
                moved[which][link] += sign * step
                times.append(finish_time(order, *moved).time)
            slope = (times[0] - times[1]) / (2 * step)
            assert abs(gradient[which][link] - slope) <= 1e-6 * result.time / base[link]


def test_rates_and_latencies_scale_the_finish() -> None:
    """Rates times k and latencies over k: the finish over k."""
    topology = ndv2_2()
    schedule = greedy(topology, all_gather(topology, 1e6), effort=EFFORT)
    order = order_of(schedule)
    finish = retime(schedule).sends.end.max()
    for factor in (0.5, 1.0, 4.0):
        rates, latencies = topology.rates * factor, topology.latencies / factor
        result = finish_time(order, rates, latencies)
        assert result.time == pytest.approx(finish / factor, rel=1e-9)


def test_prune_leaves_out_what_nobody_needs() -> None:
    """A chunk brought back to its source, one brought twice, and one sent on to a GPU
    that does not want it."""
    edges = [(0, 1, 10.0, 0.0), (1, 0, 10.0, 0.0), (1, 2, 10.0, 0.0)]
    topology = machine("prune", gpu_nodes(3, 3), edges, 1)
    hops = [(0, 0), (0, 1), (1, 1), (2, 1)]  # link, round of 100 us
    rows = [(0, link, turn * 1e-4, (turn + 1) * 1e-4) for link, turn in hops]
    left = prune(timed(topology, blocks(topology, [(0, 1)]), rows))
    assert left.sends.link.tolist() == [0] and left.sends.start.tolist() == [0.0]
