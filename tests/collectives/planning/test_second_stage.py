"""The second stage of a plan: less energy, no later, in no more epochs."""

import dataclasses

import pytest

from diffenergy.collectives import Search, demand, load_topology
from diffenergy.collectives._energy.energy import (
    MemoryPrice,
    byte_prices,
    schedule_price,
)
from diffenergy.collectives._energy.frontier import front_rows
from diffenergy.collectives._machine.routes import epoch_model
from diffenergy.collectives._planning.plan import (
    find_schedule,
    leaner,
    second_stage,
    silent,
)
from diffenergy.collectives._planning.search import Plan
from diffenergy.collectives._verify.verify import verify
from diffenergy.hardware import load_gpu

from ..energy.test_energy_search import DETOUR, MB, one_block, played, used

SLOT = MB / 100e9
MEMORY = MemoryPrice(75e-12, 5e-12)
START = played(DETOUR, one_block(DETOUR, [2]), [(0, 0)])
"""Straight, over a link of 50 pJ/bit; the way round takes two of 1 pJ/bit."""


MODEL = epoch_model(DETOUR, MB, SLOT)


def test_what_nobody_needs_is_left_out() -> None:
    """A block to gpu1, which does not want it, costs 1 pJ/bit."""
    prices = byte_prices(DETOUR, None)
    start = played(DETOUR, one_block(DETOUR, [2]), [(0, 0), (1, 0)])
    start = dataclasses.replace(start, epochs=1, epoch=SLOT)
    plan = Plan(start, SLOT, SLOT, "by hand", MODEL)
    found = leaner(plan, prices)
    assert used(found.schedule) == [0] and found.schedule.epochs == 1
    assert found.finish == pytest.approx(SLOT)
    assert schedule_price(found.schedule, prices) == pytest.approx(MB * 8 * 50e-12)
    assert (found.method, found.bound) == ("by hand", SLOT)


def test_what_cannot_be_cheaper_stays() -> None:
    plan = Plan(START, SLOT, SLOT, "by hand")
    assert leaner(plan, byte_prices(DETOUR, None)).schedule is plan.schedule


@pytest.mark.parametrize(
    ("name", "collective", "epoch"),
    [
        ("ndv2-2", "all_to_all", "slowest"),
        ("dgx1", "all_gather", "fastest"),
        ("dgx1", "reduce_scatter", "slowest"),
        ("dgx-h100", "all_reduce", None),
        ("dgx1", "all_to_all", None),
    ],
)
@pytest.mark.slow
def test_never_more_energy_nor_later(name: str, collective: str, epoch) -> None:
    topology = load_topology(name)
    wanted = demand(collective, topology, "16MB")
    plan = find_schedule(topology, wanted, Search(method="greedy", epoch=epoch))
    prices = byte_prices(topology, MEMORY)
    found = leaner(plan, prices)
    before = schedule_price(plan.schedule, prices)
    assert schedule_price(found.schedule, prices) <= before * (1 + 1e-9)
    assert found.finish == verify(found.schedule) <= plan.finish * (1 + 1e-9)
    epochs = plan.schedule.epochs
    assert (epochs is None) == (found.schedule.epochs is None)
    if epochs is not None and found.schedule.epochs is not None:
        assert found.schedule.epochs <= epochs
    assert found.bound == plan.bound


def test_what_an_objective_prefers() -> None:
    """Slots of 10 us: 0.384 mJ saved for 10 us more, or 3.6 mJ of GPUs that wait."""
    plan = Plan(START, SLOT, SLOT, "by hand", MODEL)
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
