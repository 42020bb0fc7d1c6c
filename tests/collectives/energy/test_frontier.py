"""Finish against energy: fronts by hand, and what is picked from them."""

import itertools

import pytest

from diffenergy.collectives import Search, demand, load_topology
from diffenergy.collectives._energy import memory_price
from diffenergy.collectives._find_schedule import second_stage, silent
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._least_energy import (
    front_rows,
    frontier,
    pick,
    read_objective,
)
from diffenergy.collectives._plan import Plan
from diffenergy.collectives._routes import epoch_model
from diffenergy.collectives._verify import verify
from diffenergy.hardware import load_gpu
from diffenergy.search import Solving

from .test_energy_search import DETOUR, MB, SLOTS, one_block, played, used

SLOT = MB / 100e9
FAST = played(DETOUR, one_block(DETOUR, [2]), [(0, 0)])
DEAR, CHEAP = MB * 8 * 50e-12, MB * 8 * 2e-12
QUICK = Effort(batches=1, restarts=4)


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


def test_objectives_as_written():
    assert read_objective(" Time ") == "time"
    assert read_objective("energy") == "energy"
    assert read_objective("1.5e2") == 150.0


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
