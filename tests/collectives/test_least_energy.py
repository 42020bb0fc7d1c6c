"""Cheaper schedules at fixed finish, and fronts: by hand, brute force and solvers."""

import itertools

import numpy as np
import pytest

from diffenergy.collectives import (
    Demand,
    Schedule,
    Search,
    Topology,
    demand,
    load_topology,
)
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
    Effort,
    Energy,
    Link,
    MemoryPrice,
    Node,
    Plan,
    Sends,
    blocks,
    byte_prices,
    epoch_model,
    greedy,
    memory_price,
    schedule_price,
    verify,
)

QUICK = Effort(batches=1, restarts=4)
MEMORY = MemoryPrice(75e-12, 5e-12)


def priced_machine(
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


def priced_star(gpus: int, copy: bool = True) -> Topology:
    ends = [(n, gpus, 1.0) for n in range(gpus)] + [(gpus, n, 1.0) for n in range(gpus)]
    return priced_machine(ends, gpus, 1, copy)


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


DETOUR = priced_machine([(0, 2, 50.0), (0, 1, 1.0), (1, 2, 1.0)], 3)
SLOTS = epoch_model(DETOUR, MB, MB / 100e9)
"""Epochs in which every link of DETOUR carries a block."""


def test_what_nobody_needs_is_left_out():
    start = played(DETOUR, one_block(DETOUR, [2]), [(0, 0), (1, 0)])
    result = cheapest(start, byte_prices(DETOUR, None))
    assert used(result.schedule) == [0]
    assert schedule_price(start, byte_prices(DETOUR, None)) == pytest.approx(
        MB * 8 * 51e-12
    )
    assert result.joules == pytest.approx(MB * 8 * 50e-12)
    assert result.finish == pytest.approx(MB / 100e9)


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
    hub = priced_star(4)
    wanted = one_block(hub, [1, 2, 3])
    trips = [(0, 0), (5, 0), (0, 1), (6, 1), (0, 2), (7, 2)]
    start = played(hub, wanted, trips)
    prices = byte_prices(hub, None)
    slots = epoch_model(hub, MB, MB / 100e9)
    result = cheapest(start, prices, model=slots, horizon=3)
    assert used(result.schedule) == [0, 5, 6, 7]
    assert result.joules == pytest.approx(4 * MB * 8e-12)
    plain = priced_star(4, copy=False)
    start = played(plain, wanted, trips)
    unchanged = cheapest(start, byte_prices(plain, None))
    assert (
        unchanged.meets_floor and unchanged.schedule is start
    )  # every taker needs a send of its own
    assert unchanged.joules == pytest.approx(6 * MB * 8e-12)


@pytest.mark.parametrize("seed", range(12))
def test_floor_is_below_the_cheapest_tree(seed: int):
    rng = np.random.default_rng(seed)
    pairs = [p for p in itertools.permutations(range(5), 2)]
    chosen = [pairs[n] for n in rng.choice(len(pairs), 10, replace=False)]
    net = priced_machine([(a, b, float(rng.integers(1, 9))) for a, b in chosen], 5)
    takers = [n for n in range(1, 5) if rng.random() < 0.7]
    prices = byte_prices(net, None)
    cheapest = np.inf
    for links in itertools.product((False, True), repeat=10):
        unchanged = np.flatnonzero(links)
        reached, front = {0}, [0]
        while front:
            node = front.pop()
            ahead = {int(net.targets[n]) for n in unchanged if net.sources[n] == node}
            front += list(ahead - reached)
            reached |= ahead
        if set(takers) <= reached:
            cheapest = min(cheapest, float(prices[unchanged].sum()) * MB)
    floor = energy_floor(net, one_block(net, takers), prices)
    assert floor == np.inf if cheapest == np.inf else floor <= cheapest * (1 + 1e-9)
    if len(takers) == 1 and cheapest < np.inf:
        assert floor == pytest.approx(cheapest)


def test_floor_of_a_star():
    prices = byte_prices(priced_star(5), None)
    gather = demand("all_gather", priced_star(5), "5MB")
    # Each block once into the switch and four times out of it; unicasts: four each.
    assert energy_floor(priced_star(5), gather, prices) == pytest.approx(
        5 * 5 * MB * 8e-12
    )
    plain = priced_star(5, copy=False)
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
    result = cheapest(start, prices)
    after = verify(result.schedule)
    assert result.finish == after <= before * (1 + 1e-9)
    assert result.joules == pytest.approx(schedule_price(result.schedule, prices))
    assert result.joules <= schedule_price(start, prices) * (1 + 1e-9)
    assert result.joules >= result.floor * (1 - 1e-9)


SLOT = MB / 100e9
FAST = played(DETOUR, one_block(DETOUR, [2]), [(0, 0)])
DEAR, CHEAP = MB * 8 * 50e-12, MB * 8 * 2e-12


def test_two_points_by_hand():
    front = frontier(FAST, None, model=SLOTS)
    assert front.points == front.trades
    finishes = [point.finish for point in front.trades]
    assert finishes == pytest.approx([SLOT, 2 * SLOT])
    assert [p.energy.active for p in front.trades] == pytest.approx([DEAR, CHEAP])
    assert [p.total for p in front.trades] == [None, None]


def test_a_weight_is_the_price_of_a_second():
    front = frontier(FAST, None, model=SLOTS)
    fast, lean = front.trades
    even = (DEAR - CHEAP) / SLOT
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
    saved = DEAR - CHEAP - 2 * MB * memory_price(gpu).byte
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
    first = front.trades[0]
    assert first.finish <= verify(start) * (1 + 1e-9)
    for points in (front.points, front.trades):
        for fast, lean in itertools.pairwise(points):
            assert fast.finish < lean.finish
    for fast, lean in itertools.pairwise(front.trades):
        assert lean.energy.active < fast.energy.active
    for fast, lean in itertools.pairwise(front.points):
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
    assert front.trades[-1].energy.active == pytest.approx(80 * MB * 8 * 7.5e-12)


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
