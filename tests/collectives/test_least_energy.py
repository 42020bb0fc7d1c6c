"""Cheaper schedules at fixed finish, and fronts: by hand, brute force and solvers."""

import itertools

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Search, Topology, demand, load_topology
from diffenergy.collectives import _least_energy as energy_search
from diffenergy.collectives._find_schedule import second_stage, silent
from diffenergy.collectives._least_energy import (
    energy_floor,
    front_rows,
    frontier,
    least_energy,
    pick,
    priced,
)
from diffenergy.hardware import load_gpu
from diffenergy.search import Solving

from .builders import (
    MB,
    QUICK,
    MemoryPrice,
    Plan,
    blocks,
    byte_prices,
    epoch_model,
    greedy,
    memory_price,
    played,
    priced_machine,
    reached,
    schedule_price,
    verify,
)

MEMORY = MemoryPrice(75e-12, 5e-12)
SLOT, BIT = MB / 100e9, MB * 8e-12
"""s of a send; J of 1 MB at 1 pJ/bit."""
DETOUR = priced_machine([(0, 2, 50.0), (0, 1, 1.0), (1, 2, 1.0)], 3)
SLOTS = epoch_model(DETOUR, MB, SLOT)
"""Epochs in which every link of DETOUR carries a block."""
PRICES = byte_prices(DETOUR, None)
TO_2 = blocks(DETOUR, [(0, 2)])
FAST = played(DETOUR, TO_2, [(0, 0)])


def priced_star(gpus: int, copy: bool = True) -> Topology:
    ends = [(n, gpus, 1.0) for n in range(gpus)] + [(gpus, n, 1.0) for n in range(gpus)]
    return priced_machine(ends, gpus, 1, copy)


def cheapest(start: Schedule, prices, **limits):
    return least_energy(priced(start, prices), prices, **limits)


def used(schedule: Schedule) -> list[int]:
    return sorted(schedule.sends.link.tolist())


def test_what_nobody_needs_is_left_out():
    start = played(DETOUR, TO_2, [(0, 0), (1, 0)])
    result = cheapest(start, PRICES)
    assert used(result.schedule) == [0]
    assert schedule_price(start, PRICES) == pytest.approx(51 * BIT)
    assert result.joules == pytest.approx(50 * BIT)
    assert result.finish == pytest.approx(SLOT)


def test_a_detour_is_taken_only_if_there_is_time():
    assert energy_floor(DETOUR, TO_2, PRICES) == pytest.approx(2 * BIT)
    tight = cheapest(FAST, PRICES, model=SLOTS, horizon=1)
    assert used(tight.schedule) == [0] and tight.schedule is FAST
    assert not tight.meets_floor
    loose = cheapest(FAST, PRICES, limit=2 * SLOT, model=SLOTS, horizon=2)
    assert used(loose.schedule) == [1, 2]
    assert loose.joules == pytest.approx(2 * BIT)
    assert loose.finish == pytest.approx(2 * SLOT)
    # With memory at 40 pJ/bit and end the short way is the cheap one: 130 < 162.
    dear = cheapest(FAST, byte_prices(DETOUR, MemoryPrice(8 * 40e-12, 0.0)), limit=1.0)
    assert dear.meets_floor and used(dear.schedule) == [0]


@pytest.mark.parametrize("copy", [True, False])
def test_unicasts_become_one_multicast(copy: bool):
    """Without copies every taker needs a send of its own."""
    hub = priced_star(4, copy)
    trips = [(0, 0), (5, 0), (0, 1), (6, 1), (0, 2), (7, 2)]
    start = played(hub, blocks(hub, [(0, [1, 2, 3])]), trips)
    slots = epoch_model(hub, MB, SLOT)
    result = cheapest(start, byte_prices(hub, None), model=slots, horizon=3)
    if copy:
        assert used(result.schedule) == [0, 5, 6, 7]
    else:
        assert result.meets_floor and result.schedule is start
    assert result.joules == pytest.approx((4 if copy else 6) * BIT)


@pytest.mark.parametrize("seed", range(6))
def test_floor_is_below_the_cheapest_tree(seed: int):
    rng = np.random.default_rng(seed)
    pairs = list(itertools.permutations(range(5), 2))
    chosen = [pairs[n] for n in rng.choice(len(pairs), 10, replace=False)]
    ends = [(a, b, float(rng.integers(1, 9))) for a, b in chosen]
    net = priced_machine(ends, 5)
    takers = [n for n in range(1, 5) if rng.random() < 0.7]
    prices = byte_prices(net, None)
    cheapest = np.inf
    for links in itertools.product((False, True), repeat=10):
        part = priced_machine(itertools.compress(ends, links), 5)
        if set(takers) <= reached(part, 0):
            cheapest = min(cheapest, float(prices[list(links)].sum()) * MB)
    floor = energy_floor(net, blocks(net, [(0, takers)]), prices)
    assert floor == np.inf if cheapest == np.inf else floor <= cheapest * (1 + 1e-9)
    if len(takers) == 1 and cheapest < np.inf:
        assert floor == pytest.approx(cheapest)


@pytest.mark.parametrize(("copy", "hops"), [(True, 5), (False, 8)])
def test_floor_of_a_star(copy: bool, hops: int):
    """Each block once into the switch and four times out of it; unicasts: four each."""
    star = priced_star(5, copy)
    floor = energy_floor(
        star, demand("all_gather", star, "5MB"), byte_prices(star, None)
    )
    assert floor == pytest.approx(5 * hops * BIT)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("dgx1", "all_to_all"),
        ("ndv2-2", "broadcast"),
        ("ndv2-2-published", "all_gather"),
        ("dgx-h100", "reduce_scatter"),
        ("dgx-h100", "all_reduce"),
        ("ndv2-2", "reduce"),
        ("dgx-a100-2", "scatter"),
    ],
)
def test_never_dearer_and_never_later(name: str, collective: str):
    topology = load_topology(name)
    start = greedy(topology, demand(collective, topology, "16MB"), effort=QUICK)
    prices = byte_prices(topology, MEMORY)
    result = cheapest(start, prices)
    assert result.finish == verify(result.schedule) <= verify(start) * (1 + 1e-9)
    assert result.joules == pytest.approx(schedule_price(result.schedule, prices))
    assert result.joules <= schedule_price(start, prices) * (1 + 1e-9)
    assert result.joules >= result.floor * (1 - 1e-9)


def test_two_points_by_hand_and_the_price_of_a_second():
    front = frontier(FAST, None, model=SLOTS)
    assert front.points == front.trades
    fast, lean = front.trades
    assert [fast.finish, lean.finish] == pytest.approx([SLOT, 2 * SLOT])
    joules = [fast.energy.active, lean.energy.active]
    assert joules == pytest.approx([50 * BIT, 2 * BIT])
    assert fast.total is None and lean.total is None
    even = 48 * BIT / SLOT
    assert pick(front, 1.01 * even) is fast
    assert pick(front, 0.99 * even) is lean
    assert pick(front, 0.0) is lean
    assert pick(front, "time") is fast


def test_waiting_gpus_make_the_fastest_the_leanest():
    # 1 MB: 400 pJ/B of the dear link against 16 and two more ends in memory (about 100
    # each) save 0.18 mJ; another 10 us of three waiting GPUs cost 20 times as much.
    gpu = load_gpu("h100-sxm")
    front = frontier(FAST, gpu, model=SLOTS)
    assert len(front.points) == 1
    fast, lean = front.trades
    saved = 48 * BIT - 2 * MB * memory_price(gpu).byte
    assert fast.energy.active - lean.energy.active == pytest.approx(saved, rel=1e-6)
    assert 0.1e-3 < saved < 0.3e-3
    assert fast.total is not None and lean.total is not None
    assert fast.energy.idle_power is not None
    waited = 3 * SLOT * fast.energy.idle_power
    assert lean.total - fast.total == pytest.approx(waited - saved, rel=0.1)
    assert pick(front, "energy").finish == pytest.approx(SLOT)


@pytest.mark.parametrize("collective", ["all_gather", "all_to_all", "all_reduce"])
def test_a_front_falls(collective: str):
    machine = load_topology("dgx-h100")
    start = greedy(machine, demand(collective, machine, "1GB"), effort=QUICK)
    front = frontier(start, load_gpu("h100-sxm"), how=Solving(time_limit=5.0))
    assert front.trades[0].finish <= verify(start) * (1 + 1e-9)
    for fast, lean in itertools.pairwise(front.trades):
        assert fast.finish < lean.finish
        assert lean.energy.active < fast.energy.active
    for fast, lean in itertools.pairwise(front.points):
        assert fast.finish < lean.finish
        assert fast.total is not None and lean.total is not None
        assert lean.total < fast.total
    for point in front.trades:
        assert verify(point.schedule) == pytest.approx(point.finish)
    assert pick(front, "energy").total == min(p.total or 0 for p in front.points)


def test_the_solver_joins_in():
    machine = load_topology("dgx1")
    start = greedy(machine, demand("all_to_all", machine, "8MB"), effort=QUICK)
    model = epoch_model(machine, MB, MB / 25e9)
    front = frontier(start, None, model=model, how=Solving(time_limit=30.0))
    # 7.5 pJ/bit; 56 pairs, 32 of them neighbours, the rest two hops: 80 sends.
    assert front.trades[-1].energy.active == pytest.approx(80 * 7.5 * BIT)


def test_what_an_objective_prefers() -> None:
    """Slots of 10 us: 0.384 mJ saved for 10 us more, or 3.6 mJ of GPUs that wait."""
    plan = Plan(FAST, SLOT, SLOT, "by hand", SLOTS)
    gpu = load_gpu("h100-sxm")
    search = Search(time_limit=60.0)
    fast, front = second_stage(plan, "time", gpu, search, silent)
    assert used(fast.schedule) == [0] and front is None
    lean, front = second_stage(plan, 1e-3, gpu, search, silent)
    assert used(lean.schedule) == [1, 2]
    assert lean.finish == pytest.approx(2 * SLOT)
    least, _ = second_stage(plan, "energy", gpu, search, silent)
    assert used(least.schedule) == [0]
    assert front is not None
    rows = front_rows(front)
    assert [row["finish_s"] for row in rows] == pytest.approx([SLOT, 2 * SLOT])
    assert rows[1]["moved_j"] < rows[0]["moved_j"] < rows[0]["energy_j"]


def test_ctrl_c_keeps_the_best(monkeypatch: pytest.MonkeyPatch):
    def stopped(*_: object, **__: object):
        raise KeyboardInterrupt

    topology = load_topology("dgx1")
    start = greedy(topology, demand("all_to_all", topology, "8MB"), effort=QUICK)
    prices = byte_prices(topology, None)
    monkeypatch.setattr(energy_search, "lp", stopped)
    model = epoch_model(topology, MB, MB / 25e9)
    result = cheapest(start, prices, model=model, horizon=5)
    assert result.interrupted
    assert result.joules <= schedule_price(start, prices)
    assert verify(result.schedule) == result.finish
