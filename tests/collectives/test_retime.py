"""Re-timing: right, never later, least; gradients; on random machines and methods."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives._simulate import prune
from diffenergy.collectives._time_reversal import reduction

from .builders import (
    US,
    Effort,
    Node,
    Sends,
    SolverResult,
    all_gather,
    blocks,
    both,
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
    one_to_all,
    order_of,
    reached,
    retime,
    ring,
    rounds,
    run_epochs,
    seeds,
    spread_of,
    star,
    sums,
    verify,
)

QUICK = Effort(1, 2)
"""Each with the collective that is fast enough to check every time."""
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
        wanted = demand(kind, topology, 60e6)
        schedule = greedy(topology, wanted, effort=QUICK)
        verify(schedule)
        again = retime(schedule)
        assert verify(again) <= verify(schedule) * (1 + 1e-9)
        slow = stretched(schedule)
        assert verify(slow) == pytest.approx(
            2 * verify(schedule) + 0.1 * schedule.last_end
        )
        assert verify(retime(slow)) <= verify(slow) * (1 + 1e-9)
        assert verify(prune(again)) == verify(again)


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


@pytest.mark.parametrize("seed", range(6))
def test_least_starts_by_plain_search(seed: int) -> None:
    whole = random_machine(seed)
    gpus = [n for n, node in enumerate(whole.nodes) if node.stores]
    links = [link for link in whole.links if {link.source, link.target} <= set(gpus)]
    topology = dataclasses.replace(
        whole, nodes=whole.nodes[: len(gpus)], links=tuple(links)
    )
    schedule = greedy(topology, all_gather(topology, 60e6), effort=QUICK)
    result = retime(stretched(schedule)).sends.start
    np.testing.assert_allclose(result, event_by_event(schedule), rtol=1e-12, atol=1e-18)


def agrees(schedule: Schedule, original: Any = None) -> float:
    """Share by which the finish of the order differs from that of `retime`."""
    topology = schedule.topology
    order = order_of(schedule, original)
    result = finish_time(order, topology.rates, topology.latencies)
    return abs(result.time / retime(schedule, original).last_end - 1)


def searched(method: str, topology: Topology, wanted: Demand) -> Schedule:
    """In epochs by the method, then run with true rates and latencies."""
    if wanted.reduces:
        spread = searched(method, *spread_of(topology, wanted))
        return reduction(topology, wanted, spread)
    size = float(wanted.size.max())
    model = epoch_model(topology, size, epoch_length(topology, size, "slowest"))
    solve = {"lp": lp, "milp": least_finish, "rounds": rounds}[method]
    result: SolverResult = solve(topology, wanted, model)
    assert result.schedule is not None
    return run_epochs(result.schedule, model, parts=method == "lp")


@pytest.mark.parametrize(
    "name, kind, method",
    [
        ("dgx1", "all_gather", "milp"),
        ("dgx1", "all_to_all", "lp"),
        pytest.param("dgx-h100-2", "all_to_all", "lp", marks=pytest.mark.slow),
        pytest.param("dgx1", "reduce_scatter", "milp", marks=pytest.mark.slow),
        pytest.param("dgx1", "all_gather", "rounds", marks=pytest.mark.slow),
        pytest.param("ndv2-2", "all_gather", "milp", marks=pytest.mark.slow),
        pytest.param("ndv2-2", "all_to_all", "lp", marks=pytest.mark.slow),
        pytest.param("ndv2-2-published", "all_gather", "milp", marks=pytest.mark.slow),
        pytest.param("ndv2-2-published", "all_to_all", "lp", marks=pytest.mark.slow),
        pytest.param("dgx-h100-2", "reduce_scatter", "milp", marks=pytest.mark.slow),
        pytest.param("dgx2-2", "all_to_all", "lp", marks=pytest.mark.slow),
    ],
)
def test_searched_schedules(name: str, kind: str, method: str) -> None:
    topology = load_topology(name)
    schedule = searched(method, topology, demand(kind, topology, 1e9))
    finish = verify(schedule)
    assert verify(retime(schedule)) <= finish * (1 + 1e-9)
    assert agrees(schedule) < 1e-9


def test_overlapping_sends_go_one_after_the_other() -> None:
    """1 MB over 10 GB/s takes 100 us; stated are 400 and, in the midst, 200 us."""
    topology = ring(3, latency=0.0)
    topology = dataclasses.replace(
        topology,
        links=tuple(dataclasses.replace(x, rate=10e9) for x in topology.links),
    )
    wanted = one_to_all(topology, 6e6)
    wanted = dataclasses.replace(wanted, wanted=wanted.wanted & False)
    wanted.wanted[:, 1] = True
    first = int(np.flatnonzero((topology.sources == 0) & (topology.targets == 1))[0])
    start, end = np.array([100.0, 200.0]) * 1e-6, np.array([500.0, 400.0]) * 1e-6
    sends = Sends(
        np.arange(2), np.full(2, first), start, end, wanted.size, np.zeros(2, int)
    )
    original = Schedule(topology, wanted, sends)
    assert verify(original) == pytest.approx(500e-6)
    early = retime(original)
    np.testing.assert_allclose(early.sends.end, [100e-6, 200e-6])
    assert verify(early) == pytest.approx(200e-6)


def timed_rows(
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
    return topology, demand, timed_rows(topology, demand, rows)


def test_chain_by_hand() -> None:
    """100 us a chunk on the first link, then 3 us, 50 us and 5 us."""
    tight = retime(chain()[2])
    expected = np.array([0.0, 100.0, 103.0, 203.0]) * US
    np.testing.assert_allclose(tight.sends.start, expected)
    assert tight.sends.end.max() == pytest.approx(258 * US)
    assert verify(tight) == pytest.approx(258 * US)


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
    result = finish_time(order, rates, latencies)
    gradient = result.by_rate / rates, result.by_latency
    timed = retime(schedule)
    assert result.time == pytest.approx(float(timed.sends.end.max()), rel=1e-12)
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
            assert abs(gradient[which][link] - slope) <= 1e-6 * result.time / base[link]


def test_rates_and_latencies_scale_the_finish() -> None:
    """Rates times k and latencies over k: the finish over k."""
    topology = ndv2_2()
    schedule = greedy(topology, all_gather(topology, 1e6), effort=Effort(1, 2))
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
    demand = blocks(topology, [(0, 1)])
    took = 1e-4
    starts = [(0, 0), (0, 1), (1, 1), (2, 1)]  # link, round
    rows = [(0, link, turn * took, (turn + 1) * took) for link, turn in starts]
    left = prune(timed_rows(topology, demand, rows))
    assert left.sends.link.tolist() == [0] and left.sends.start.tolist() == [0.0]
