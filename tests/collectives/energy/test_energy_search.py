"""Cheaper schedules at fixed finish: never dearer, never later, as cheap as by hand,
by brute force or by a solver where that can be said."""

import itertools

import numpy as np
import pytest

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives import _least_energy as energy_search
from diffenergy.collectives._energy import (
    MemoryPrice,
    byte_prices,
    schedule_price,
)
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._least_energy import (
    energy_floor,
    least_energy,
    priced,
)
from diffenergy.collectives._lp import flow_count, flow_model, lp
from diffenergy.collectives._routes import epoch_model
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._topology import Energy, Link, Node
from diffenergy.collectives._verify import verify

from ..machine.c3_machines import blocks
from ..machine.c4_machines import all_to_all, made, scipy_least

MB = 1e6
QUICK = Effort(batches=1, restarts=4)
MEMORY = MemoryPrice(75e-12, 5e-12)


def machine(
    ends: list[tuple[int, int, float]], gpus: int, switches: int = 0, copy: bool = True
) -> Topology:
    """Links (from, to, pJ/bit) of 100 GB/s without latency."""
    nodes = [Node(f"gpu{n}", "gpu") for n in range(gpus)]
    nodes += [Node(f"sw{n}", "switch", copy=copy) for n in range(switches)]
    links = [
        Link(a, b, 100e9, 0.0, "wire", Energy(e * 1e-12, 0.0, 1e-9, "by hand"))
        for a, b, e in ends
    ]
    return Topology("by hand", tuple(nodes), tuple(links), gpus)


def star(gpus: int, copy: bool = True) -> Topology:
    ends = [(n, gpus, 1.0) for n in range(gpus)] + [(gpus, n, 1.0) for n in range(gpus)]
    return machine(ends, gpus, 1, copy)


def one_block(topology: Topology, takers: list[int]) -> Demand:
    return blocks(topology, [(0, takers)])


def played(
    topology: Topology, wanted: Demand, trips: list[tuple[int, int]]
) -> Schedule:
    """Sends (link, slot) of block 0, a slot as long as a send."""
    link, slot = (np.array(column) for column in zip(*trips, strict=True))
    took = MB / 100e9
    start, zeros = slot * took, np.zeros(len(link), int)
    sizes = np.full(len(link), MB)
    sends = Sends(zeros, link, start, start + took, sizes, zeros)
    return Schedule(topology, wanted, sends)


def cheapest(start: Schedule, prices, **limits):
    return least_energy(priced(start, prices), prices, **limits)


def used(schedule: Schedule) -> list[int]:
    return sorted(schedule.sends.link.tolist())


DETOUR = machine([(0, 2, 50.0), (0, 1, 1.0), (1, 2, 1.0)], 3)
SLOTS = epoch_model(DETOUR, MB, MB / 100e9)
"""Epochs in which every link of DETOUR carries a block."""


def test_what_nobody_needs_is_left_out():
    start = played(DETOUR, one_block(DETOUR, [2]), [(0, 0), (1, 0)])
    found = cheapest(start, byte_prices(DETOUR, None))
    assert used(found.schedule) == [0]
    assert schedule_price(start, byte_prices(DETOUR, None)) == pytest.approx(
        MB * 8 * 51e-12
    )
    assert found.joules == pytest.approx(MB * 8 * 50e-12)
    assert found.finish == pytest.approx(MB / 100e9)


def test_a_detour_is_taken_only_if_there_is_time():
    start = played(DETOUR, one_block(DETOUR, [2]), [(0, 0)])
    prices = byte_prices(DETOUR, None)
    assert energy_floor(DETOUR, start.demand, prices) == pytest.approx(MB * 8 * 2e-12)
    tight = cheapest(start, prices, model=SLOTS, horizon=1)
    assert used(tight.schedule) == [0] and tight.schedule is start
    assert not tight.meets_floor
    loose = cheapest(start, prices, limit=2 * MB / 100e9, model=SLOTS, horizon=2)
    assert used(loose.schedule) == [1, 2]
    assert loose.joules == pytest.approx(MB * 8 * 2e-12)
    assert loose.finish == pytest.approx(2 * MB / 100e9)
    # With memory at 40 pJ/bit and end the short way is the cheap one: 130 < 162.
    dear = byte_prices(DETOUR, MemoryPrice(8 * 40e-12, 0.0))
    assert cheapest(start, dear, limit=1.0).meets_floor
    assert used(cheapest(start, dear, limit=1.0).schedule) == [0]


def test_unicasts_become_one_multicast():
    hub = star(4)
    wanted = one_block(hub, [1, 2, 3])
    trips = [(0, 0), (5, 0), (0, 1), (6, 1), (0, 2), (7, 2)]
    start = played(hub, wanted, trips)
    prices = byte_prices(hub, None)
    slots = epoch_model(hub, MB, MB / 100e9)
    found = cheapest(start, prices, model=slots, horizon=3)
    assert used(found.schedule) == [0, 5, 6, 7]
    assert found.joules == pytest.approx(4 * MB * 8e-12)
    plain = star(4, copy=False)
    start = played(plain, wanted, trips)
    kept = cheapest(start, byte_prices(plain, None))
    assert (
        kept.meets_floor and kept.schedule is start
    )  # every taker needs a send of its own
    assert kept.joules == pytest.approx(6 * MB * 8e-12)


@pytest.mark.parametrize("seed", range(12))
def test_floor_is_below_the_cheapest_tree(seed: int):
    rng = np.random.default_rng(seed)
    pairs = [p for p in itertools.permutations(range(5), 2)]
    chosen = [pairs[n] for n in rng.choice(len(pairs), 10, replace=False)]
    net = machine([(a, b, float(rng.integers(1, 9))) for a, b in chosen], 5)
    takers = [n for n in range(1, 5) if rng.random() < 0.7]
    prices = byte_prices(net, None)
    cheapest = np.inf
    for links in itertools.product((False, True), repeat=10):
        kept = np.flatnonzero(links)
        reached, front = {0}, [0]
        while front:
            node = front.pop()
            ahead = {int(net.targets[n]) for n in kept if net.sources[n] == node}
            front += list(ahead - reached)
            reached |= ahead
        if set(takers) <= reached:
            cheapest = min(cheapest, float(prices[kept].sum()) * MB)
    floor = energy_floor(net, one_block(net, takers), prices)
    assert floor == np.inf if cheapest == np.inf else floor <= cheapest * (1 + 1e-9)
    if len(takers) == 1 and cheapest < np.inf:
        assert floor == pytest.approx(cheapest)


def test_floor_of_a_star():
    prices = byte_prices(star(5), None)
    gather = demand("all_gather", star(5), "5MB")
    # Each block once into the switch and four times out of it; unicasts: four each.
    assert energy_floor(star(5), gather, prices) == pytest.approx(5 * 5 * MB * 8e-12)
    plain = star(5, copy=False)
    assert energy_floor(plain, gather, prices) == pytest.approx(5 * 8 * MB * 8e-12)


CASES = [
    ("dgx1", "all_to_all"),
    ("ndv2-2", "broadcast"),
    ("ndv2-2-published", "all_gather"),
    ("ndv2-2", "all_to_all"),
    ("dgx-h100", "all_gather"),
    ("dgx-h100", "reduce_scatter"),
    ("dgx-h100", "all_reduce"),
    ("ndv2-2", "reduce"),
    ("torus-3x3", "all_reduce"),
    ("dgx-a100-2", "scatter"),
]


@pytest.mark.parametrize(("name", "collective"), CASES)
def test_never_dearer_and_never_later(name: str, collective: str):
    topology = load_topology(name)
    wanted = demand(collective, topology, "16MB")
    start = greedy(topology, wanted, effort=QUICK)
    prices = byte_prices(topology, MEMORY)
    before = verify(start)
    found = cheapest(start, prices)
    after = verify(found.schedule)
    assert found.finish == after <= before * (1 + 1e-9)
    assert found.joules == pytest.approx(schedule_price(found.schedule, prices))
    assert found.joules <= schedule_price(start, prices) * (1 + 1e-9)
    assert found.joules >= found.floor * (1 - 1e-9)


def test_the_solver_finds_the_cheapest_of_as_many_epochs():
    hub = star(4)
    wanted = demand("all_gather", hub, "4MB")
    start = greedy(hub, wanted, effort=QUICK)
    prices = byte_prices(hub, None)
    model = epoch_model(hub, MB, MB / 100e9)
    found = cheapest(start, prices, limit=1.0, model=model, horizon=5)
    # Four multicasts, each alone on three ways out: one epoch in, four out.
    assert found.joules == pytest.approx(4 * 4 * MB * 8e-12)
    assert verify(found.schedule) <= 5 * MB / 100e9 * (1 + 1e-9)


def test_least_cost_of_the_linear_program():
    net = machine([(0, 2, 50.0), (0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0), (1, 0, 1.0)], 3)
    wanted = all_to_all(net, MB)
    model = epoch_model(net, MB, MB / 100e9)
    prices = byte_prices(net, None)
    cost = prices / prices.mean()
    for horizon in (2, 8):
        found = lp(net, wanted, model, low=horizon, high=horizon, link_cost=cost)
        linear = flow_model(net, wanted, model, horizon, cost).linear
        assert found.objective == pytest.approx(scipy_least(linear))
        moved = schedule_price(made(found), prices)
        assert moved == pytest.approx(found.objective * prices.mean() * MB)
        flows = flow_model(net, wanted, model, horizon).link
        assert flow_count(net, wanted, model, horizon) == len(flows)
    # With time, all by cheap links: 0-1, 0-1-2, 1-2, 1-0, 2-0, 2-0-1.
    assert moved == pytest.approx(8 * 8e-12 * MB)


def test_ctrl_c_keeps_the_best(monkeypatch: pytest.MonkeyPatch):
    def stopped(*_: object, **__: object):
        raise KeyboardInterrupt

    topology = load_topology("dgx1")
    start = greedy(topology, demand("all_to_all", topology, "8MB"), effort=QUICK)
    prices = byte_prices(topology, None)
    monkeypatch.setattr(energy_search, "lp", stopped)
    model = epoch_model(topology, MB, MB / 25e9)
    found = cheapest(start, prices, model=model, horizon=5)
    assert found.interrupted
    assert found.joules <= schedule_price(start, prices)
    assert verify(found.schedule) == found.finish
