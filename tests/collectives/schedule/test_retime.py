"""Re-timing: right, never later, least, and the same in JAX; on random machines and on
schedules of every method."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives._dependencies import stated, switched
from diffenergy.collectives._epoch_schedule import Found, distances
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._lp import lp
from diffenergy.collectives._milp import least_finish, rounds
from diffenergy.collectives._order import finish_time
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._simulate import (
    order_of,
    prune,
    retime,
    run_epochs,
)
from diffenergy.collectives._time_reversal import reduction, spread_of
from diffenergy.collectives._topology import Node
from diffenergy.collectives._verify import verify

from ..machine.c3_machines import (
    all_gather,
    both,
    gpu_nodes,
    machine,
    one_to_all,
    ring,
    star,
)
from ..machine.graphs import reached
from .seeds import seeds

QUICK = Effort(1, 2)
MACHINES = {
    "dgx1": "all_gather",
    "ndv2-2": "reduce_scatter",
    "ndv2-2-published": "all_to_all",
    "dgx-h100-2": "all_reduce",
    "dgx2-2": None,
}
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
    held = {(b, int(n)): 0.0 for b, n in enumerate(wanted.source)}
    start = np.full(len(sends), np.nan)
    while any(queue.values()):
        for link, row in queue.items():
            here = (
                int(sends.block[row[0]]) if row else -1,
                int(topology.sources[link]),
            )
            if row and here in held:
                send = row.pop(0)
                start[send] = max(free[link], held[here])
                took = sends.bytes[send] / topology.rates[link]
                free[link] = float(start[send] + took)
                there = here[0], int(topology.targets[link])
                when = free[link] + float(topology.latencies[link])
                held[there] = min(held.get(there, np.inf), when)
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
    found = retime(stretched(schedule)).sends.start
    np.testing.assert_allclose(found, event_by_event(schedule), rtol=1e-12, atol=1e-18)


def agrees(schedule: Schedule, given: Any = None) -> float:
    """Share by which the finish of the order differs from that of `retime`."""
    topology = schedule.topology
    order = order_of(schedule, given)
    found = finish_time(order, topology.rates, topology.latencies)
    return abs(found.time / retime(schedule, given).last_end - 1)


@pytest.mark.parametrize(
    "name, kind",
    [
        pytest.param(name, kind, marks=[] if quick == kind else pytest.mark.slow)
        for name, quick in MACHINES.items()
        for kind in KINDS[:4]
    ],
)
def test_order_agrees_on_greedy(name: str, kind: str) -> None:
    topology = load_topology(name)
    schedule = greedy(topology, demand(kind, topology, 1e6), effort=Effort(1, 1))
    assert agrees(schedule) < 1e-9


def searched(method: str, topology: Topology, wanted: Demand) -> Schedule:
    """In epochs by the method, then run with true rates and latencies."""
    if wanted.reduces:
        spread = searched(method, *spread_of(topology, wanted))
        return reduction(topology, wanted, spread)
    size = float(wanted.size.max())
    model = epoch_model(topology, size, epoch_length(topology, size, "slowest"))
    solve = {"lp": lp, "milp": least_finish, "rounds": rounds}[method]
    found: Found = solve(topology, wanted, model)
    assert found.schedule is not None
    return run_epochs(found.schedule, model, parts=method == "lp")


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parts", "sums"])
def test_gradient_against_finite_differences(kind: str) -> None:
    """Of parts through a switch, and of sums in one."""
    topology = jittered(star(4, copy=kind != "parts", reduces=kind == "sums"))
    collective = {"parts": "all_to_all", "sums": "reduce_scatter"}[kind]
    wanted = demand(collective, topology, 4e6)
    if kind == "parts":
        schedule = searched("lp", topology, wanted)
        assert (schedule.sends.bytes < 0.99 * wanted.size[schedule.sends.block]).any()
    else:
        schedule = greedy(topology, wanted, effort=QUICK)
    order = order_of(schedule)
    # Beside the rates that a linear program fills to the brim, where paths tie.
    off = np.random.default_rng(6).uniform(0.9, 1.1, len(topology.links))
    point = topology.rates * off, topology.latencies / off
    found = finish_time(order, *point)
    slopes = found.by_rate / point[0], found.by_latency
    for which, base in enumerate(point):
        for link in range(len(base)):
            step = np.zeros_like(base)
            step[link] = 1e-5 * base[link]
            up, down = (
                finish_time(order, *(x + s * step if n == which else x
                                     for n, x in enumerate(point))).time
                for s in (1, -1)
            )  # fmt: skip
            slope = (up - down) / (2 * step[link])
            near = 1e-5 * found.time / base[link]
            assert slopes[which][link] == pytest.approx(slope, abs=near)


def jittered(topology: Topology) -> Topology:
    """Without ties, so that finite differences are defined."""
    rng = np.random.default_rng(5)
    links = tuple(
        dataclasses.replace(
            link,
            rate=link.rate * rng.uniform(0.9, 1.1),
            latency=link.latency * rng.uniform(0.9, 1.1),
        )
        for link in topology.links
    )
    return dataclasses.replace(topology, links=links)


def test_slow_epochs_through_a_switch_run() -> None:
    """Ten chunks an epoch into a switch, in no order that their starts tell."""
    topology = star(5, copy=True)
    wanted = all_gather(topology, 5e6, 4)
    size = float(wanted.size[0])
    model = epoch_model(topology, size, 4 * size / topology.rates[0])
    found = least_finish(topology, wanted, model)
    assert found.schedule is not None and found.schedule.epochs is not None
    timed = run_epochs(found.schedule, model)
    assert verify(timed) <= found.schedule.epochs * model.tau
    assert verify(retime(timed)) <= verify(timed) * (1 + 1e-9)


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
    given = Schedule(topology, wanted, sends)
    assert verify(given) == pytest.approx(500e-6)
    early = retime(given)
    np.testing.assert_allclose(early.sends.end, [100e-6, 200e-6])
    assert verify(early) == pytest.approx(200e-6)


def test_matching_moves_others() -> None:
    """Two summands through a switch: the first to come may leave to either GPU, the
    second only with the later send; both find one, whatever the order of choice."""
    topology = star(4, copy=False)
    wanted = demand("reduce_scatter", topology, 4e6)
    index = {(x.source, x.target): n for n, x in enumerate(topology.links)}
    rows = [(0, 4, 0.0, 10.0), (1, 4, 0.0, 4.0), (4, 2, 2.0, 11.0), (4, 3, 9.0, 12.0)]
    link = np.array([index[a, b] for a, b, _, _ in rows])
    start, end = (np.array([row[n] for row in rows]) for n in (2, 3))
    sends = Sends(np.zeros(4, int), link, start, end, np.ones(4), np.zeros(4, int))
    given = Schedule(topology, wanted, sends)
    found = switched(given, stated(given))
    assert found.odd == []
    assert {
        out: [part.send for part in parts] for out, parts in found.feeds.items()
    } == {
        2: [1],
        3: [0],
    }


def test_what_nothing_feeds_is_refused() -> None:
    topology = star(3)
    wanted = all_gather(topology, 3e6)
    schedule = greedy(topology, wanted, effort=QUICK)
    out = ~topology.stores[topology.sources[schedule.sends.link]]
    sends = dataclasses.replace(
        schedule.sends, start=np.where(out, 0.0, schedule.sends.start + 1.0)
    )
    twice = [np.append(getattr(sends, f.name), getattr(sends, f.name)[~out])
             for f in dataclasses.fields(sends)]  # fmt: skip
    with pytest.raises(ValueError, match="that the switch cannot pass on"):
        retime(dataclasses.replace(schedule, sends=Sends(*twice)))


def test_distances_in_epochs() -> None:
    """Around a ring of five, 2 epochs a link; a free link takes none."""
    topology = ring(5)
    away = distances(topology, np.full(len(topology.links), 2))
    assert away[0].tolist() == [0, 2, 4, 4, 2]
    free = np.where(topology.targets == 1, 0, 2)
    assert distances(topology, free)[0].tolist() == [0, 0, 2, 4, 2]
    alone = dataclasses.replace(
        topology, links=tuple(x for x in topology.links if x.target)
    )
    never = distances(alone, np.full(len(alone.links), 2))
    assert (never[1:, 0] >= 1 << 30).all() and never.dtype == int
